"""Victims of one round, chosen once for all that has to be released (docs/reference/qos.md 4.6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

import msgspec

from koordlet.decision.plan import Victim
from koordlet.decision.why import Input
from koordlet.qos.evict.config import Feature
from koordlet.qos.evict.victims import Candidate

Amounts = Mapping[str, int]


class CountedBy(StrEnum):
    """What a release is counted in."""

    USED = "used"
    REQUESTED = "requested"


class Task(msgspec.Struct, frozen=True):
    """What one feature has to release, and from whom. ``victims``: the first to go first.
    ``gains``: what the end of each of them, and of those already on their way, gives."""

    feature: Feature
    target: CountedBy
    need: Amounts
    victims: tuple[Candidate, ...]
    gains: Mapping[Victim, Amounts]
    text: str = ""
    inputs: tuple[Input, ...] = ()


class Choice(msgspec.Struct, frozen=True):
    """``gains``: what counts as released by it, for all tasks together."""

    task: Task
    candidate: Candidate
    gains: tuple[tuple[str, int], ...]


class Chosen(msgspec.Struct, frozen=True):
    """``lacking``: what no victim was left for. ``over_budget``: more would have been chosen."""

    choices: tuple[Choice, ...]
    lacking: tuple[tuple[Task, Amounts], ...] = ()
    over_budget: bool = False


def choose(
    tasks: Collection[Task],
    *,
    terminating: Collection[Victim] = (),
    failed: Collection[Victim] = (),
    budget: int,
) -> Chosen:
    """No more than is needed, in the order of the tasks and of their victims.

    Those already on their way count as released before anybody else is chosen. One that gives
    nothing of what a task still lacks is passed over. ``budget``: the most to choose.
    """
    released: dict[tuple[CountedBy, str], int] = {}
    seen = set(terminating) | set(failed)
    for victim in terminating:
        _credit(released, _gains(tasks, victim))
    choices: list[Choice] = []
    lacking = []
    over_budget = False
    for task in tasks:
        for candidate in task.victims:
            left = _left(task, released)
            if not left:
                break
            useful = left.keys() & _positive(task.gains.get(candidate.victim, {})).keys()
            if candidate.victim in seen or not useful:
                continue
            if len(choices) >= budget:
                over_budget = True
                break
            gains = _gains(tasks, candidate.victim)
            _credit(released, gains)
            seen.add(candidate.victim)
            said = tuple((f"{name} {target}", n) for (target, name), n in sorted(gains.items()))
            choices.append(Choice(task, candidate, said))
        if left := _left(task, released):
            lacking.append((task, left))
    return Chosen(tuple(choices), tuple(lacking), over_budget)


def _left(task: Task, released: Mapping[tuple[CountedBy, str], int]) -> Amounts:
    left = {name: n - released.get((task.target, name), 0) for name, n in task.need.items()}
    return _positive(left)


def _gains(tasks: Collection[Task], victim: Victim) -> dict[tuple[CountedBy, str], int]:
    """Of several tasks with the same target the larger figure counts, not their sum."""
    gains: dict[tuple[CountedBy, str], int] = {}
    for task in tasks:
        for name, amount in _positive(task.gains.get(victim, {})).items():
            key = task.target, name
            gains[key] = max(gains.get(key, 0), amount)
    return gains


def _credit(
    released: dict[tuple[CountedBy, str], int], gains: Mapping[tuple[CountedBy, str], int]
) -> None:
    for key, amount in gains.items():
        released[key] = released.get(key, 0) + amount


def _positive(amounts: Amounts) -> Amounts:
    return {name: amount for name, amount in amounts.items() if amount > 0}
