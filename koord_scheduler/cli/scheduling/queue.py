"""``koord-scheduler queue``: who waits, in the order of a scheduler that began now."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from koord_scheduler.cli.output import clean, columns, emit, span
from koord_scheduler.cli.scheduling.source import look, profiles_of
from koord_scheduler.plan.course import Decision, units
from koord_scheduler.plan.hints import waits_for
from koord_scheduler.plan.run import Run

_MOST_ROWS = 40
_MOST_CHARACTERS = 120


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """``position`` counts from 1. ``state``: gated (it may not be tried), next (it gets ``nodes``
    as soon as it is its turn), or waits for one of ``waits_for``. ``condition``: what a scheduler
    wrote at the first of its pods."""

    position: int
    unit: str
    pods: tuple[str, ...]
    priority: int
    age_s: float
    state: str
    nodes: tuple[str, ...] = ()
    why: str = ""
    waits_for: tuple[str, ...] = ()
    condition: str = ""


class Answer(msgspec.Struct, frozen=True):
    """``others``: scheduler -> pods that wait for it."""

    waiting: tuple[Waiting, ...]
    others: Mapping[str, int]


def main(args: argparse.Namespace) -> int:
    world, now_s = look(args, profiles_of(args))
    said = dict(world.said)
    order = units(world, now_s)
    made: dict[str, Decision] = {}

    def heard(decision: Decision) -> None:
        made[decision.pod] = decision

    run = Run(world, heard)
    for pod in tuple(world.waiting.values()):
        run.changed(pod, now_s)
    run.step(now_s)
    found = []
    for at, unit in enumerate(order, 1):
        decided = [made[key] for key in unit.pods if key in made]
        failed = [each for each in decided if not each.node]
        refused_by = frozenset().union(*(each.refused_by for each in failed))
        state = "gated" if unit.gate else "waits" if failed or not decided else "next"
        found.append(
            Waiting(
                position=at,
                unit=unit.name,
                pods=unit.pods,
                priority=unit.priority,
                age_s=round(max(now_s - unit.created_s, 0.0), 1) if unit.created_s else 0.0,
                state=state,
                nodes=tuple(sorted({each.node for each in decided if each.node})),
                why=unit.gate or (failed[0].why if failed else ""),
                waits_for=waits_for(refused_by) if failed else (),
                condition=next((text for key in unit.pods if (text := said.get(key))), ""),
            )
        )
    others = Counter(pod.scheduler for pod in world.others.values())
    answer = Answer(tuple(found), dict(sorted(others.items())))
    emit(answer, args.output, lambda: _lines(answer, args.all))
    return 0


def _lines(answer: Answer, everything: bool) -> Iterator[str]:
    shown = answer.waiting if everything else answer.waiting[:_MOST_ROWS]
    if not shown:
        yield "nobody waits"
    else:
        header = (">#", "UNIT", ">PODS", ">PRIORITY", ">AGE", "STATE", "WHY")
        yield from columns(header, map(_row, shown))
    if len(answer.waiting) > len(shown):
        yield f"and {len(answer.waiting) - len(shown)} more (--all)"
    for scheduler, number in answer.others.items():
        yield f"{number} pods wait for the scheduler {clean(scheduler)!r}"


def _row(each: Waiting) -> tuple[str, ...]:
    why = each.why
    if each.state == "next":
        why = f"gets {', '.join(each.nodes[:3])}"
    elif each.waits_for:
        why = f"{why[:_MOST_CHARACTERS]} | until {', or '.join(each.waits_for[:3])}"
    if each.condition and not each.condition.startswith(each.why or "\n"):
        why = f"{why} | its condition says: {each.condition[:_MOST_CHARACTERS]}"
    return (
        str(each.position), each.unit, str(len(each.pods)), str(each.priority), span(each.age_s),
        each.state, why,
    )  # fmt: skip
