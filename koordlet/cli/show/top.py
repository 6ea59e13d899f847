"""``koordlet top``: one screen, redrawn as frames come."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread, main_thread

from koordlet.admin.client import Client
from koordlet.admin.model import PodView, PressureView, TopView
from koordlet.cli import output
from koordlet.cli.main import Exit
from koordlet.cli.show.explain import headline
from koordlet.cli.show.pods import table
from koordlet.decision.record import Record

BAR_CELLS = 40
DECISIONS_SHOWN = 6
# In the order of the bar; what is neither is free.
CLASSES = (("LS", "#"), ("BE", "="), ("system", "+"))


def main(args: argparse.Namespace) -> int:
    with Client(args.socket) as client:
        frames = client.top(args.interval)
        if args.once or args.output != "table" or not sys.stdout.isatty():
            view = next(frames)
            output.emit(view, args.output, lambda: frame(view))
            return Exit.OK
        _draw(frames)
    return Exit.OK


def _draw(frames: Iterator[TopView]) -> None:
    """Redraw until ``q``. Raises KeyboardInterrupt on Ctrl-C."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with (
        _ended_by_q(),
        Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
    ):
        for view in frames:
            text = "\n".join(frame(view, console.height))
            live.update(Text(text, no_wrap=True, overflow="crop"), refresh=True)


@contextmanager
def _ended_by_q() -> Iterator[None]:
    """Leaves the block when ``q`` is typed, also while it waits for a frame."""
    if not sys.stdin.isatty():
        yield
        return
    terminal, quitting = sys.stdin.fileno(), Event()

    def watch() -> None:
        while key := os.read(terminal, 1):
            if key in b"qQ":
                quitting.set()
                # A signal, because only that ends the wait of grpc in the main thread.
                signal.pthread_kill(main_thread().ident or 0, signal.SIGINT)
                return

    before = termios.tcgetattr(terminal)
    # A script's background job starts with SIGINT ignored, and neither key would end it.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tty.setcbreak(terminal)
        Thread(target=watch, daemon=True).start()
        yield
    except KeyboardInterrupt:
        if not quitting.is_set():
            raise
    finally:
        signal.signal(signal.SIGINT, handler)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def frame(view: TopView, height: int | None = None) -> list[str]:
    """Node, last decisions, pods: with many pods the least busy do not fit into ``height``."""
    shown = DECISIONS_SHOWN if height is None else min(DECISIONS_SHOWN, height // 4)
    used = {"LS": view.cpu_ls_cores, "BE": view.cpu_be_cores, "system": view.cpu_system_cores}
    legend = "  ".join(f"{sign} {name} {output.cores(used[name])}" for name, sign in CLASSES)
    limit = "" if view.be_limit_cores is None else f"  BE limit {output.cores(view.be_limit_cores)}"
    cpu = f"{output.cores(view.cpu_used_cores)} of {output.cores(view.cpu_capacity_cores)} cores"
    memory = f"{output.size(view.memory_used_bytes)} of {output.size(view.memory_capacity_bytes)}"
    found = [
        f"{output.clean(view.node)}  {output.clock(view.time)}",
        f"CPU     {_cpu_bar(used, view.cpu_capacity_cores)} {cpu}",
        f"        {legend}{limit}",
        f"Memory  {_memory_bar(view)} {memory}",
        f"PSI     {_pressure(view.pressure)}",
        *output.section("Last decisions", list(map(_decision, view.decisions[:shown]))),
        "",
        *table(tuple(sorted(view.pods, key=_busiest_first))),
    ]
    if height is None or len(found) <= height:
        return found
    hidden = len(found) - height + 1
    return [*found[: height - 1], f"... {hidden} more; `koordlet pods` lists all"]


def _decision(decision: Record) -> str:
    what = headline(decision) if decision.resource else output.clean(decision.why.text)
    return f"{output.clock(decision.time)}  {decision.owner}: {what}"


def _busiest_first(pod: PodView) -> tuple[float, str]:
    return -(pod.cpu_cores or 0.0), pod.cgroup


def _cpu_bar(used: dict[str, float | None], capacity: float) -> str:
    """Cells by cumulated cores, so that rounding never makes the bar longer than the whole."""
    bar, cores = "", 0.0
    for name, sign in CLASSES:
        cores += used[name] or 0.0
        bar += sign * (_cells(cores, capacity) - len(bar))
    return f"[{bar.ljust(BAR_CELLS)}]"


def _memory_bar(view: TopView) -> str:
    cells = _cells(view.memory_used_bytes or 0, view.memory_capacity_bytes)
    return f"[{('#' * cells).ljust(BAR_CELLS)}]"


def _cells(part: float, whole: float) -> int:
    return round(BAR_CELLS * min(max(part / whole, 0.0), 1.0)) if whole > 0 else 0


def _pressure(pressure: PressureView | None) -> str:
    if pressure is None:
        return "not known"
    return (
        f"cpu {output.percent(pressure.cpu_some)}  memory {output.percent(pressure.memory_some)}  "
        f"io {output.percent(pressure.io_some)}  of the last 10 s"
    )
