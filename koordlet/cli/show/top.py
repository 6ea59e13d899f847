"""``koordlet top``: one screen, redrawn as frames come and keys are pressed."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from koordlet.admin.client import Client
from koordlet.admin.model.usage import TopView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit, complain
from koordlet.cli.past import newest, opened, time_of
from koordlet.cli.settings import peek
from koordlet.cli.show.frames import Inbox, Past, follow_present
from koordlet.cli.show.keys import Screen, keys, press
from koordlet.cli.show.limits import Limits
from koordlet.cli.show.processes import SystemProcesses
from koordlet.cli.show.screen import Frame, chosen, draw, worth_a_line
from koordlet.cli.show.terminal import KEY_BYTES, keyboard_of_terminal, text
from koordlet.drawing.spans import plain
from koordlet.history.source import DaemonSource, Source

_ONCE_S = 0.5
"""How long processes are watched for one frame."""
Begin = Callable[[Inbox], None]


def main(args: argparse.Namespace) -> int:
    is_live = not args.once and args.output == "table" and sys.stdout.isatty()
    if args.at or args.state_dir:
        return _from_past(args, is_live=is_live)
    limits = _limits(args)
    with connect(args) as client:
        if is_live:
            _live(DaemonSource(client), args, None)
        else:
            view = next(client.top(args.interval))
            output.emit(view, args.output, lambda: _once(view, args.processes, limits))
    return Exit.OK


def _from_past(args: argparse.Namespace, *, is_live: bool) -> int:
    try:
        at = time_of(args) if args.at else None
    except ValueError as error:
        return complain(error, Exit.USAGE)
    from koordlet.history.past import Decisions, past

    with opened(args) as source:
        at = newest(source) if at is None else at
        if is_live:
            _live(source, args, at)
            return Exit.OK
        view = past(source, at, Decisions(source, 0.0).before(at))
    frame = Frame(view, worth_a_line((), view.decisions))
    output.emit(view, args.output, lambda: map(plain, draw(frame, Screen())))
    return Exit.OK


def _limits(args: argparse.Namespace) -> Limits:
    roots = {
        key: root
        for key in ("cgroup_root", "proc_root")
        if (root := peek(args.config, "paths", key))
    }
    return Limits(**roots)


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


def _present(args: argparse.Namespace, client: Client, inbox: Inbox) -> None:
    follow_present(inbox, client.top(args.interval), args.processes, _limits(args))


class _Trip:
    """Where in time the screen is, and the newest frame from there. ``at`` None: the present."""

    def __init__(self, inbox: Inbox, source: Source, at: float | None, begin: Begin | None) -> None:
        """``begin``: makes frames of the present come; None where there is none."""
        self._inbox = inbox
        self._past = Past(inbox, source)
        self._begin, self._is_begun = begin, False
        self.frame: Frame | None = None
        self._go(at)

    def hear(self) -> bool:
        """Take the next frame; False when the stream of the present has ended."""
        arrived = self._inbox.latest()
        if arrived.at == self.at:
            self.frame = arrived.frame
        return arrived.frame is not None

    def follow(self, screen: Screen) -> Screen:
        """Go where keys want to."""
        if screen.returns and self._begin is not None:
            self._go(None)
        elif screen.travel_s and self.frame is not None:
            base = self.frame.view.time if self.at is None else self.at
            at = base + screen.travel_s
            has_come = at > time.time() - screen.interval_s
            self._go(None if has_come and self._begin is not None else at)
        return replace(screen, travel_s=0.0, returns=False)

    def _go(self, at: float | None) -> None:
        self.at = at
        if at is not None:
            self._past.ask(at)
        elif self._begin is not None and not self._is_begun:
            self._is_begun = True
            self._begin(self._inbox)


def _live(source: Source, args: argparse.Namespace, at: float | None) -> None:
    """Redraw until ``q``. Raises KeyboardInterrupt on Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console, inbox = Console(), Inbox()
    begin = partial(_present, args, source.client) if isinstance(source, DaemonSource) else None
    trip = _Trip(inbox, source, at, begin)
    with (
        keyboard_of_terminal() as keyboard,
        Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
    ):
        sources = [inbox.descriptor] if keyboard is None else [inbox.descriptor, keyboard]
        screen, drawn = Screen(interval_s=args.interval), None
        while not screen.is_over:
            ready, _, _ = select.select(sources, [], [])
            if inbox.descriptor in ready and not trip.hear():
                return
            if keyboard in ready:
                typed = os.read(keyboard, KEY_BYTES)
                if not typed:  # the terminal has gone
                    return
                for key in keys(typed):
                    pods = 0 if drawn is None else len(chosen(drawn.view.pods, screen))
                    screen = trip.follow(press(screen, key, pods))
            if not screen.is_paused or drawn is None or trip.at is not None:
                drawn = trip.frame
            if drawn is not None:
                lines = draw(drawn, screen, console.height, console.width)
                live.update(text(lines), refresh=True)
