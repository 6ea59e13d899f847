"""``koordlet why``: what is wrong, now or at a time of the past, with a daemon or without one."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from koordlet.admin.blame import HeldView, WhyView
from koordlet.admin.verdict import pause_by, pause_title, waits
from koordlet.cli import output
from koordlet.cli.main import Exit, complain
from koordlet.cli.past import instant, told
from koordlet.decision.record import Record

if TYPE_CHECKING:
    from koordlet.diagnosis.why import Left

SHOWN = 5
"""Most lines of each sort; `-o json` has all."""
_NEXT = "next: "


def main(args: argparse.Namespace) -> int:
    try:
        at = instant(args)
    except ValueError as error:
        return complain(error, Exit.USAGE)
    answer = told(
        args,
        lambda client: client.why(args.target, at),
        lambda left, time: _from_disk(left, args.target, time, at),
    )
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK


def _from_disk(left: Left, target: str, time: float, at: float | None) -> WhyView:
    from koordlet.diagnosis.why import why

    return why(left, target, time, at)


def lines(answer: WhyView) -> Iterator[str]:
    where = f", from {answer.source}" if answer.source else ""
    yield output.clean(f"{answer.matched}, {output.date(answer.time)}{where}")
    for text in answer.notes:
        yield from output.wrap(output.clean(text), "note: ", "      ")
    paragraphs = (
        ("Evictions of the day before", ended(answer.ended)),
        ("Suffers", _waiting(answer)),
        ("Paused", (f"{pause_title(each)} {pause_by(each)}" for each in answer.pauses)),
        ("Held back by koordlet", _held(answer.held)),
    )
    for title, found in paragraphs:
        yield from paragraph(title, found)
    if not (answer.ended or answer.waiting):
        yield ""
        yield from output.wrap(_nothing(answer))


def _nothing(answer: WhyView) -> str:
    held = "; what koordlet holds back is listed above" if answer.held else ""
    if answer.notes:
        return f"Nothing else is known to be wrong, as far as the notes above allow{held}."
    return f"Nothing is wrong that koordlet knows of: nobody was evicted, nobody suffers{held}."


def paragraph(title: str, texts: Iterable[str]) -> Iterator[str]:
    """A title and texts that fit the terminal, or nothing without any. What is to be typed stays in
    one line."""
    for number, text in enumerate(texts):
        if not number:
            yield from ("", f"{title}:")
        if text.startswith(_NEXT):
            yield f"{output.INDENT}  {text}"
        else:
            yield from output.wrap(text, output.INDENT, f"{output.INDENT}  ")


def ended(records: Iterable[Record], most: int = SHOWN) -> Iterator[str]:
    """A line for each kill or eviction, the newest first."""
    found = list(records)
    for each in found[:most]:
        yield output.clean(f"{output.date(each.time)}  {each.why.text} (by {each.owner})")
    if len(found) > most:
        yield f"and {len(found) - most} more: koordlet events --kind eviction --since 24h"


def _waiting(answer: WhyView) -> Iterator[str]:
    for each in answer.waiting[:SHOWN]:
        yield output.clean(waits(each))
        if each.advice:
            yield output.clean(f"{_NEXT}{each.advice}")
    if len(answer.waiting) > SHOWN:
        yield f"and {len(answer.waiting) - SHOWN} more"


def _held(every: Iterable[HeldView]) -> Iterator[str]:
    """One line for each thing that is done to several."""

    def same(each: HeldView) -> tuple[object, ...]:
        return each.owner, each.resource, each.what, each.would

    groups = [list(group) for _, group in groupby(sorted(every, key=same), key=same)]
    groups.sort(key=lambda group: (group[0].cgroup.count("/"), group[0].cgroup))
    for group in groups[:SHOWN]:
        first = group[0]
        more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
        verb = "would be held" if first.would else "is held"
        text = f"{first.cgroup or 'the node'}{more} {verb} {first.what} by {first.owner}"
        since = output.date(first.since)
        yield output.clean(f"{text} since {since}, because {_clause(first.because)}")
        yield output.clean(f"{_NEXT}koordlet explain {shlex.quote(_file(first))}")
    if len(groups) > SHOWN:
        yield f"and {len(groups) - SHOWN} more; -o json has all"


def _clause(sentence: str) -> str:
    """``sentence`` as the rest of another one; a name or an abbreviation keeps its capital."""
    first, rest = sentence[:1], sentence[1:].rstrip(".")
    return (first.lower() if rest[:1].islower() or rest[:1] == " " else first) + rest


def _file(each: HeldView) -> str:
    return f"{each.cgroup}/{each.resource}" if each.cgroup else each.resource
