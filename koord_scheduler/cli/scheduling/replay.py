"""``koord-scheduler replay``: a recorded time once more, decision by decision."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from koord_scheduler.cli.errors import BadInputError
from koord_scheduler.cli.output import clean, columns, emit, span
from koord_scheduler.cli.scheduling.source import profiles_of, time_of
from koord_scheduler.kube.scheduling import journal
from koord_scheduler.kube.scheduling.loading import World
from koord_scheduler.kube.scheduling.replaying import Report, again, course

_MOST_ROWS = 20


def main(args: argparse.Namespace) -> int:
    """1 where ``--expect`` names another hash, or, with ``--exit-code``, where a decision differs
    from the record."""
    world = World(profiles_of(args))
    until_s = time_of(args.at) if args.at else None
    try:
        recorded = journal.read(args.journal)
        if args.course:
            preempts = not args.no_preemption
            found, _ = course(recorded, world, until_s, preempts=preempts)
        else:
            found = again(recorded, world, until_s)
    except journal.JournalError as error:
        raise BadInputError(f"{args.journal}: {error}") from None
    if args.html:
        from koord_scheduler.cli.scheduling import html

        html.write(args.html, html.replay(found, args.journal))
    emit(found, args.output, lambda: _lines(found, args))
    if args.expect and not found.hash.startswith(args.expect.lower()):
        raise BadInputError(f"the placements have the hash {found.hash}, not {args.expect}")
    return 1 if args.exit_code and found.differing else 0


def _lines(found: Report, args: argparse.Namespace) -> Iterator[str]:
    lasted = span(found.ended_s - found.began_s)
    yield f"{found.entries} changes in {lasted}, {found.decisions} placements"
    yield f"hash of all placements: {found.hash}"
    yield f"as in the record: {found.agreeing} of {found.agreeing + len(found.differing)}"
    if args.course:
        yield f"wait for a node: p50 {found.wait_p50_s:.1f} s, p99 {found.wait_p99_s:.1f} s"
        yield f"evicted: {found.evicted}"
    yield f"without a node at the end: {found.waiting}"
    if found.differing:
        yield ""
        most = len(found.differing) if args.all else _MOST_ROWS
        rows = ((clean(each.pod), each.old, each.new) for each in found.differing[:most])
        yield from columns(("POD", "RECORD", "REPLAY"), rows)
        if len(found.differing) > most:
            yield f"and {len(found.differing) - most} more (--all)"
