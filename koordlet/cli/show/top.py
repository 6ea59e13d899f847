"""``koordlet top``: one screen, redrawn as frames come and keys are pressed."""

from __future__ import annotations

import argparse
import os
import queue
import select
import sys
import time
from collections.abc import Iterator
from threading import Thread

from koordlet.admin.model import TopView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit
from koordlet.cli.settings import find
from koordlet.cli.show.keys import Screen, keys, press
from koordlet.cli.show.limits import Limits
from koordlet.cli.show.processes import SystemProcesses
from koordlet.cli.show.screen import Frame, chosen, draw, plain, worth_a_line
from koordlet.cli.show.terminal import KEY_BYTES, keyboard_of_terminal, text

_ONCE_S = 0.5
"""How long processes are watched for one frame."""


def main(args: argparse.Namespace) -> int:
    paths = find(args.config).config.paths
    limits = Limits(paths.cgroup_root, paths.proc_root)
    with connect(args) as client:
        frames = client.top(args.interval)
        if not args.once and args.output == "table" and sys.stdout.isatty():
            _live(_Frames(frames, args.processes, limits))
        else:
            view = next(frames)
            output.emit(view, args.output, lambda: _once(view, args.processes, limits))
    return Exit.OK


def _once(view: TopView, processes: int, limits: Limits) -> list[str]:
    watched = SystemProcesses()
    cgroups = [pod.cgroup for pod in view.pods]
    if processes:
        watched.biggest(cgroups, processes)
        time.sleep(_ONCE_S)
    frame = Frame(
        view,
        worth_a_line((), view.decisions),
        watched.biggest(cgroups, processes) if processes else (),
        limits.of(cgroups),
    )
    return list(map(plain, draw(frame, Screen())))


class _Frames:
    """Frames with what this machine adds to them, read by a thread so that keys never wait.
    ``descriptor`` is readable when ``latest`` has something."""

    def __init__(self, views: Iterator[TopView], processes: int, limits: Limits) -> None:
        self.descriptor, self._wake = os.pipe()
        self._queue: queue.SimpleQueue[Frame | Exception | None] = queue.SimpleQueue()
        self._views, self._processes, self._limits = views, processes, limits
        Thread(target=self._read, daemon=True).start()

    def latest(self) -> Frame | None:
        """None at the end of the stream. Raises what ended it."""
        os.read(self.descriptor, 1)
        found = self._queue.get()
        if isinstance(found, Exception):
            raise found
        return found

    def _read(self) -> None:
        watched = SystemProcesses()
        decisions = worth_a_line((), ())
        try:
            for view in self._views:
                decisions = worth_a_line(decisions, view.decisions)
                cgroups = [pod.cgroup for pod in view.pods]
                biggest = watched.biggest(cgroups, self._processes) if self._processes else ()
                self._put(Frame(view, decisions, biggest, self._limits.of(cgroups)))
            self._put(None)
        except Exception as error:  # raised again where the screen is
            self._put(error)

    def _put(self, found: Frame | Exception | None) -> None:
        self._queue.put(found)
        os.write(self._wake, b"\0")


def _live(frames: _Frames) -> None:
    """Redraw until ``q``. Raises KeyboardInterrupt on Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        keyboard_of_terminal() as keyboard,
        Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
    ):
        sources = [frames.descriptor] if keyboard is None else [frames.descriptor, keyboard]
        screen, newest, drawn = Screen(), None, None
        while not screen.is_over:
            ready, _, _ = select.select(sources, [], [])
            if frames.descriptor in ready:
                newest = frames.latest()
                if newest is None:
                    return
            if keyboard in ready:
                typed = os.read(keyboard, KEY_BYTES)
                if not typed:  # the terminal has gone
                    return
                for key in keys(typed):
                    pods = 0 if drawn is None else len(chosen(drawn.view.pods, screen))
                    screen = press(screen, key, pods)
            if not screen.is_paused or drawn is None:
                drawn = newest
            if drawn is not None:
                lines = draw(drawn, screen, console.height, console.width)
                live.update(text(lines), refresh=True)
