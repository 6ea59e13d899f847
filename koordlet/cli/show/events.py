"""``koordlet events``."""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from koordlet.admin.client import Client, Fault, RefusedError
from koordlet.admin.daemon import InvalidError
from koordlet.admin.model.events import EventView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit, complain, warn
from koordlet.cli.past import client_or_remains
from koordlet.cli.times import parse_time

if TYPE_CHECKING:
    from koordlet.diagnosis.why import Left

NEWEST = 500
"""So many are shown of a log without a daemon where no time is named, as of a daemon's own run."""


def main(args: argparse.Namespace) -> int:
    """json prints one object per line, yaml one document per event: a stream has no end."""
    try:
        since = _since(args.since, follow=args.follow)
    except ValueError as error:
        return complain(f"--since {error}", Exit.USAGE)
    if args.follow and args.state_dir:
        return complain("--follow needs a daemon: leave --state-dir out", Exit.USAGE)
    source = connect(args) if args.follow else client_or_remains(args)
    if not isinstance(source, Client):
        _print(_on_disk(source, args, since), args)
        return Exit.OK
    with source as client:
        events = client.events(
            since=since, follow=args.follow, kinds=args.kinds, subject=args.subject
        )
        _print(events, args, "" if since else " in this run; --since 24h looks further back")
    return Exit.OK


def _print(events: Iterable[EventView], args: argparse.Namespace, earlier: str = "") -> None:
    """``earlier``: what to say where there are none."""
    is_empty = True
    for event in events:
        is_empty = False
        print(_text(event, args.output), flush=args.follow)
    if is_empty:
        warn(f"no such event{earlier}")


def _on_disk(left: Left, args: argparse.Namespace, since: float) -> Iterable[EventView]:
    from koordlet.diagnosis.events import wanted
    from koordlet.diagnosis.explained import damage, meanings_of
    from koordlet.diagnosis.why import last_known, names_left
    from koordlet.engine.events import event_view
    from koordlet.report.decision_search import history, unreadable

    damaged = damage(unreadable(left.log))
    if damaged:
        warn(f"damaged, and left out: {damaged}")
    try:
        names = names_left(left, last_known(left, time.time())) if args.subject else {}
        is_wanted = wanted(args.kinds, args.subject, meanings_of(names))
    except InvalidError as error:
        raise RefusedError(Fault.INVALID, str(error)) from None
    records = history(left.log, since or None)
    events = (each for each in map(event_view, records) if is_wanted(each))
    return events if since else deque(events, NEWEST)


def _since(text: str | None, *, follow: bool) -> float:
    """Unix time of the first event that is wanted: all there are, or with ``follow`` none of the
    past. Raises ValueError."""
    now = time.time()
    if text:
        return parse_time(text, now)
    return now if follow else 0.0


def _text(event: EventView, form: str) -> str:
    if form == "json":
        return msgspec.json.encode(event).decode()
    if form == "yaml":
        return "---\n" + output.document(event, "yaml").rstrip("\n")
    subject = f"{event.subject}: " if event.subject else ""
    return (
        f"{output.date(event.time)}  {event.kind.value:<13}  {output.clean(subject + event.text)}"
    )
