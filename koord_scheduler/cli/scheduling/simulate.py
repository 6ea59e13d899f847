"""``koord-scheduler simulate``: what a scheduler would make of these objects, before they exist."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from koord_scheduler.cli.output import amount as shown
from koord_scheduler.cli.output import clean, columns, emit
from koord_scheduler.cli.scheduling.source import look, profiles_of
from koord_scheduler.cli.seen import read_documents
from koord_scheduler.plan.course import Course, decide
from koord_scheduler.plan.figures import Figures, curve, figures, reasons

_MOST_ROWS = 40
_ABOUT = ("cpu", "memory")


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """``placements``: pod -> node. ``pending``: pod -> why. ``evicted``: pods that lost their node
    for others."""

    placed: int
    pending_count: int
    hash: str
    placements: Mapping[str, str]
    pending: Mapping[str, str]
    reasons: Mapping[str, int]
    evicted: tuple[str, ...]
    before: Figures
    after: Figures


def main(args: argparse.Namespace) -> int:
    """1 where a pod finds no node and ``--exit-code`` is given."""
    profiles = profiles_of(args)
    extra = [each for path in args.files for each in read_documents(path)]
    # Where they, or --nodes, bring nodes, these are the whole cluster.
    whole = any(not each.startswith("+") for each in args.nodes) or any(map(_is_node, extra))
    source = argparse.Namespace(**{**vars(args), "files": []})
    source.empty = whole and not args.journal
    world, now_s = look(source, profiles, extra=extra)
    before, first = figures(world.cluster), curves(world)
    course = decide(world, now_s, preempts=not args.no_preemption)
    answer = answer_of(course, before, figures(world.cluster))
    if args.html:
        from koord_scheduler.cli.scheduling import html

        html.write(args.html, html.simulation(answer, first, curves(world)))
    emit(answer, args.output, lambda: _lines(answer, args.all))
    return 1 if args.exit_code and answer.pending_count else 0


def answer_of(course: Course, before: Figures, after: Figures) -> Answer:
    decisions = course.decisions
    return Answer(
        placed=course.placed,
        pending_count=len(decisions) - course.placed,
        hash=course.fingerprint,
        placements={key: each.node for key, each in decisions.items() if each.node},
        pending={key: each.why for key, each in decisions.items() if not each.node},
        reasons=reasons(decisions.values()),
        evicted=course.evicted,
        before=before,
        after=after,
    )


def curves(world: Any) -> dict[str, list[tuple[float, float]]]:
    return {name: curve(world.cluster, name) for name in _ABOUT}


def _is_node(document: Any) -> bool:
    if not isinstance(document, dict):
        return False
    items = document.get("items")
    if isinstance(items, list):
        return any(_is_node(each) for each in items)
    return document.get("kind") == "Node"


def _lines(answer: Answer, everything: bool) -> Iterator[str]:
    total = answer.placed + answer.pending_count
    yield f"{answer.placed} of {total} pods find a node; placements {answer.hash[:16]}"
    if answer.reasons:
        yield ""
        rows = [(str(number), why) for why, number in answer.reasons.items()]
        yield from columns((">PODS", "WHY THEY HAVE NO NODE"), _cut(rows, everything))
    if answer.placements:
        yield ""
        rows = [(pod, node) for pod, node in answer.placements.items()]
        yield from columns(("POD", "NODE"), _cut(rows, everything))
    if answer.evicted:
        yield ""
        yield f"{len(answer.evicted)} pods lose their node: {_names(answer.evicted, everything)}"
    yield ""
    yield from packing(answer.before, answer.after)


def packing(before: Figures, after: Figures, names: tuple[str, str] = ("BEFORE", "AFTER")) -> Any:
    header = ("RESOURCE", ">ALLOCATABLE", f">{names[0]}", f">{names[1]}", ">P50", ">P90", ">MAX")
    rows = []
    for name, now in after.resources.items():
        was = before.resources.get(name)
        rows.append(
            (
                name,
                shown(name, now.allocatable),
                f"{was.percent:.1f} %" if was is not None else "-",
                f"{now.percent:.1f} %",
                f"{now.percent_p50:.1f} %",
                f"{now.percent_p90:.1f} %",
                f"{now.percent_max:.1f} %",
            )
        )
    yield from columns(header, rows)
    yield f"{after.nodes} nodes: {after.empty} empty, {after.hot} nearly full"


def _cut(rows: Sequence[tuple[str, ...]], everything: bool) -> list[tuple[str, ...]]:
    if everything or len(rows) <= _MOST_ROWS:
        return list(rows)
    more = f"and {len(rows) - _MOST_ROWS} more (--all)"
    return [*rows[:_MOST_ROWS], (more, *("" for _ in rows[0][1:]))]


def _names(names: tuple[str, ...], everything: bool) -> str:
    shown_names = names if everything else names[:_MOST_ROWS]
    left = len(names) - len(shown_names)
    text = ", ".join(map(clean, shown_names))
    return f"{text} and {left} more" if left else text
