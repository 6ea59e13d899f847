"""``koordlet events``."""

from __future__ import annotations

import argparse
import time

import msgspec

from koordlet.admin.model import EventView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit, complain
from koordlet.cli.times import parse_time


def main(args: argparse.Namespace) -> int:
    """json prints one object per line, yaml one document per event: a stream has no end."""
    try:
        since = _since(args.since, follow=args.follow)
    except ValueError as error:
        return complain(f"--since {error}", Exit.USAGE)
    with connect(args) as client:
        for event in client.events(since=since, follow=args.follow):
            print(_text(event, args.output), flush=args.follow)
    return Exit.OK


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
