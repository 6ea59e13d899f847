"""What the CRI proxy adds to a call: the same calls to the runtime and through the proxy, in turn.

``KOORDLET_REFERENCE_PROXY`` names a binary of the reference's koord-runtime-proxy, where there is
one: it takes its turn in the same run, and what ours adds is compared with what it adds. It reads
its hook servers from a directory below ``/etc``, so it gets an ``/etc`` of its own (as root).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from bench.figures import Figure, NotMeasuredError, quantile
from bench.proxy_peers import CONTAINERS, requests
from koordlet.demo.process import die_with_parent

_SERVICE = "/runtime.v1.RuntimeService/"
_READY_TIMEOUT_S = 20.0
_GOAL_MS = 0.3
_HOOKED = ("RunPodSandbox", "CreateContainer", "UpdateContainerResources")
_REFERENCE = "KOORDLET_REFERENCE_PROXY"

Say = Callable[[str], None]
Channels = Mapping[str, grpc.Channel]
"""``direct``, ``proxy``, and ``reference`` where there is one."""


class Case(NamedTuple):
    """``hooks``: whose hook server is asked, if any. ``goal_ms``: of the added p50. ``large``: of
    more bytes than the reference takes, and slow."""

    title: str
    method: str
    hooks: str = ""
    goal_ms: float | None = None
    large: bool = False


_CASES = (
    Case("Version", "Version", goal_ms=_GOAL_MS),
    Case(f"{CONTAINERS} containers", "ListContainers", goal_ms=_GOAL_MS),
    Case("a list of 15 MiB", "ListContainerStats", large=True),
    *(Case(method, method) for method in _HOOKED),
    *(Case(f"{method}, hook server", method, "hooks") for method in _HOOKED),
    *(Case(f"{method}, koordlet", method, "koordlet") for method in _HOOKED),
)


def run(smoke: bool, say: Say) -> list[Figure]:
    rounds = 60 if smoke else 1500
    directory = Path(tempfile.mkdtemp(prefix="koordlet-bench-"))
    try:
        with _processes(directory) as channels:
            found: list[Figure] = []
            hooks = None
            for case in _CASES:
                if case.hooks != hooks:
                    hooks = case.hooks
                    _configure(directory, hooks)
                    for channel in channels.values():  # what the proxies have to know
                        for method in _HOOKED[:2]:
                            _call(channel, method)
                found += _figures(case, channels, rounds, say)
            return found
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _figures(case: Case, channels: Channels, rounds: int, say: Say) -> Iterator[Figure]:
    if case.large:
        rounds = rounds // 50 + 1
        channels = {name: each for name, each in channels.items() if name != "reference"}
    say(f"{case.title}: {rounds} calls each way")
    request = requests()[case.method]
    calls = {
        name: channel.unary_unary(_SERVICE + case.method, None, None)
        for name, channel in channels.items()
    }
    took: dict[str, list[float]] = {name: [] for name in channels}
    for number in range(rounds + max(rounds // 10, 1)):
        for name, call in calls.items():
            begun = time.perf_counter()
            call(request)
            if number >= max(rounds // 10, 1):  # the first ones warm up
                took[name].append(time.perf_counter() - begun)
    for share, title in ((0.5, "p50"), (0.99, "p99")):
        plain, *through = (quantile(took[name], share) for name in channels)
        added = [each - plain for each in through]
        goal = case.goal_ms if share == 0.5 else None
        yield Figure(f"{case.title}: added {title}", added[0] * 1e3, "ms", goal)
        if len(added) > 1:
            name = f"{case.title}: added {title} to the reference's"
            yield Figure(name, added[0] / added[1], "x", 1.0 if share == 0.5 else None)


@contextmanager
def _processes(directory: Path) -> Iterator[Channels]:
    """Channels to the runtime and to the proxies in front of it."""
    paths = {name: str(directory / f"{name}.sock") for name in ("direct", "proxy", "reference")}
    _hook_files(directory).mkdir(parents=True)
    with ExitStack() as stack:
        stack.enter_context(_process("-m", "bench.proxy_peers", "runtime", paths["direct"]))
        for role in ("hooks", "koordlet"):
            (directory / role).mkdir()
            socket = str(directory / role / "hooks.sock")
            stack.enter_context(_process("-m", "bench.proxy_peers", role, socket))
        stack.enter_context(
            _process(
                *("-m", "koordlet", "runtime-proxy"),
                f"--koord-runtimeproxy-endpoint={paths['proxy']}",
                f"--remote-runtime-service-endpoint={paths['direct']}",
                f"--hook-config-dir={_hook_files(directory)}",
                f"--status-socket={directory}/status.sock",
            )
        )
        names = ["direct", "proxy"]
        channels = {name: stack.enter_context(_channel(paths[name])) for name in names}
        for name in names:
            _call(channels[name], "Version", wait_for_ready=True, timeout=_READY_TIMEOUT_S)
        binary = os.environ.get(_REFERENCE)
        if binary:
            # After the runtime, without which it would not listen.
            stack.enter_context(_reference(binary, directory, paths))
            channel = stack.enter_context(_channel(paths["reference"]))
            _call(channel, "Version", wait_for_ready=True, timeout=_READY_TIMEOUT_S)
            channels["reference"] = channel
        yield channels


def _reference(binary: str, directory: Path, paths: Mapping[str, str]) -> Any:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        raise NotMeasuredError(f"{_REFERENCE}: an /etc of its own needs root and unshare(1)")
    script = f'mount --bind "{directory}/etc" /etc && exec "$0" "$@"'
    return _process(
        *(binary, f"--koord-runtimeproxy-endpoint={paths['reference']}"),
        f"--remote-runtime-service-endpoint={paths['direct']}",
        before=("unshare", "-m", "sh", "-c", script),
    )


def _hook_files(directory: Path) -> Path:
    """As the reference has it, seen from its own ``/etc``."""
    return directory / "etc" / "runtime" / "hookserver.d"


@contextmanager
def _process(*command: str, before: tuple[str, ...] = (sys.executable,)) -> Iterator[None]:
    parent = os.getpid()
    child = subprocess.Popen(
        [*before, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: die_with_parent(parent),
    )
    try:
        yield
    finally:
        child.kill()
        child.wait()


def _channel(path: str) -> grpc.Channel:
    # A pool of its own: channels to different sockets shall share nothing.
    options = (
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_reconnect_backoff_ms", 200),
        ("grpc.max_receive_message_length", 32 << 20),
    )
    return grpc.insecure_channel(f"unix://{path}", options)


def _call(channel: grpc.Channel, method: str, **options: Any) -> None:
    channel.unary_unary(_SERVICE + method, None, None)(requests()[method], **options)


def _configure(directory: Path, hooks: str) -> None:
    file = _hook_files(directory) / "bench.json"
    stages = [f"Pre{method}" for method in _HOOKED] if hooks else []
    socket = str(directory / (hooks or "hooks") / "hooks.sock")
    content = {"remote-endpoint": socket, "runtime-hooks": stages}
    file.with_suffix(".new").write_text(json.dumps(content))
    os.rename(file.with_suffix(".new"), file)
    time.sleep(1.5)  # our proxy looks once a second
