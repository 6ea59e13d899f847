"""What one scrape costs the daemon on a node of 300 pods with 600 containers.

The real engine on the fake kernel, the pages as its HTTP server asks for them. All times are CPU
times, so that other work on the machine does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import msgspec

from bench.figures import Figure, quantile
from bench.hooks_node import Node
from koordlet.collectors.psi import PsiOptions
from koordlet.decision.family import Page
from koordlet.kernel.host import Host
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.proc.files import SelfUsage, self_usage
from koordlet.report.pages import Pages
from koordlet.views import usage
from koordlet.views.publish import steps
from koordlet.views.views import Views

_KIB, _MIB = 1 << 10, 1 << 20
_BOTH = (Page.INTERNAL, Page.EXTERNAL)
_SETTLE_TICKS = 25  # pressure is read every ten seconds
_TEXT: dict[str, str] = {}
_GZIP = {"accept-encoding": "gzip"}
_OPENMETRICS = {"accept": "application/openmetrics-text;version=1.0.0", **_GZIP}
_IMPORT = """
import asyncio, time
from koordlet.cli.process import lean
with lean.unavailable(*lean.UNUSED):
    from koordlet.cli.process import run
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
before, started = rss(), time.process_time()
import koordlet.report.page
print(time.process_time() - started, rss() - before)
"""


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    pods, times = (30, 2) if smoke else (300, 15)
    figures = []
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-page-") as directory:
        say(f"{pods} pods")
        node = Node(Path(directory), pods)
        try:
            _configure(node, containers=False)
            for _ in range(_SETTLE_TICKS):
                node.host.advance(1.0)
                node.engine.tick()
            views = Views(node.engine, lambda: None)
            with patch.object(usage, "self_usage", _self_usage):
                figures += asyncio.run(_scrapes(node, views, times))
                _configure(node, containers=True)
                figures += [
                    msgspec.structs.replace(figure, name=f"{figure.name}, with containers")
                    for figure in asyncio.run(_scrapes(node, views, times))
                    if figure.name.startswith(("series", "page as text:"))
                ]
        finally:
            node.stop()
    done = subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, check=True)
    import_s, import_bytes = map(float, done.stdout.split())
    return [
        *figures,
        Figure("first scrape: CPU for the library's import", 1000 * import_s, "ms"),
        Figure("memory it takes in the daemon", import_bytes / _MIB, "MiB"),
    ]


def _self_usage(_host: Host, _proc_root: str) -> SelfUsage:
    """The fake kernel takes 10 ms to say what the daemon uses, the real one 0.1."""
    return self_usage(LinuxHost())


def _configure(node: Node, *, containers: bool) -> None:
    """The fake kernel's time is the engine's, so a budget would switch collectors off."""
    config = node.engine.loaded.config
    config = msgspec.structs.replace(
        config,
        daemon=msgspec.structs.replace(config.daemon, cpu_budget_percent=0),
        collectors=msgspec.structs.replace(
            config.collectors, psi=PsiOptions(containers=containers)
        ),
    )
    node.engine.reconfigure(msgspec.structs.replace(node.engine.loaded, config=config))


async def _scrapes(node: Node, views: Views, times: int) -> list[Figure]:
    refreshed_ms: list[float] = []

    def refresh() -> Iterator[None]:
        took_s = -time.thread_time()
        for step in steps(node.engine, views):
            took_s += time.thread_time()
            yield step
            took_s -= time.thread_time()
        refreshed_ms.append(1000 * (took_s + time.thread_time()))

    figures: list[Figure] = []
    for name, headers in (
        ("text", _TEXT),
        ("text, gzip", _GZIP),
        ("OpenMetrics, gzip", _OPENMETRICS),
    ):
        took_ms, held_ms, size = [], [], 0
        for _ in range(times):
            pages = Pages(node.parts.metrics, refresh)  # with all of its budget
            await pages.answer((Page.INTERNAL,), headers)  # the import is not the page's
            refreshed_ms.clear()
            loop_ms, watching = _watch()
            started_s = time.process_time()
            response = await pages.answer(_BOTH, headers)
            whole_ms = 1000 * (time.process_time() - started_s)
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
            took_ms.append(whole_ms - refreshed_ms[0])
            held_ms.append(max(loop_ms))
            size = len(response.body)
        if not figures:
            text = response.body.decode()
            series = sum(not line.startswith("#") for line in text.splitlines())
            figures += [
                Figure("series on the page", series, ""),
                Figure("bring the numbers up to date, p50", quantile(refreshed_ms, 0.5), "ms"),
            ]
        figures += [
            Figure(f"page as {name}: CPU, p50", quantile(took_ms, 0.5), "ms"),
            Figure(f"page as {name}: the loop's longest turn", quantile(held_ms, 0.5), "ms"),
            Figure(f"page as {name}: size", size / _KIB, "KiB"),
        ]
    return figures


def _watch() -> tuple[list[float], asyncio.Task[None]]:
    """CPU times of the loop's turns."""
    turns_ms: list[float] = []

    async def watch() -> None:
        while True:
            started_s = time.thread_time()
            await asyncio.sleep(0)
            turns_ms.append(1000 * (time.thread_time() - started_s))

    return turns_ms, asyncio.ensure_future(watch())
