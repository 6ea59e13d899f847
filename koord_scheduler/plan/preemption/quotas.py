"""Room for a pod that a gate refuses, by evictions on as many nodes as it takes
(docs/reference/central.md 4.8): what a quota lacks is not on one node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.preemption.budgets import Budget, ready, split
from koord_scheduler.plan.preemption.victims import importance

MOST_VICTIMS = 256
"""Evictions for one pod; the sums of a quota are made anew after each."""


def who_may_go(engine: Engine, pod: Pod, classes: Iterable[int]) -> list[Claim]:
    """Pods of these classes that gates let go for the pod, the most important first."""
    cluster = engine.cluster
    allowed = set()
    rows: set[int] = set()
    for number in classes:
        example = Pod(key="", uid="", cls=cluster.class_of[number])
        if all(gate.may_preempt(pod, example) for gate in engine.gates):
            allowed.add(number)
            rows.update(cluster.classes.get(number, ()))
    found = [
        claim
        for row in rows
        for claim in cluster.claims_on(row).values()
        if claim.pod.cls.number in allowed and not claim.pod.holds
    ]
    found.sort(key=importance)
    return found


def evict_until_admitted(
    engine: Engine, pod: Pod, claims: Sequence[Claim], budgets: Sequence[Budget]
) -> tuple[list[Claim], int] | None:
    """In a trial, which keeps what goes: who that is, the least important first, and how many of
    them exceed a budget. None where the pod is refused still. ``claims``: the most important
    first."""
    violating, others = split(claims, ready(budgets)) if budgets else ([], list(claims))
    gone: list[Claim] = []
    for claim in (*reversed(others), *reversed(violating)):
        if engine.refused(pod) is None or len(gone) == MOST_VICTIMS:
            break
        engine.cluster.remove(claim.pod.key)
        gone.append(claim)
    if engine.refused(pod) is not None:
        return None
    for claim in gone[::-1]:  # one of another resource may have gone in vain
        engine.cluster.add(claim)
        if engine.refused(pod) is None:
            gone.remove(claim)
        else:
            engine.cluster.remove(claim.pod.key)
    against = {claim.pod.key for claim in violating}
    return gone, sum(claim.pod.key in against for claim in gone)
