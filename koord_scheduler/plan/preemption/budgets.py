"""PodDisruptionBudgets: which of several pods could not go without exceeding one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koord_scheduler.model.cluster.pods import Claim
from koordlet.protocol.selector import LabelSelector, Matcher


class Budget(NamedTuple):
    """``selector`` None selects nothing, an empty one everything in the namespace. ``allowed``:
    ``status.disruptionsAllowed``. ``disrupted``: names in ``status.disruptedPods``, which count
    already."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int
    disrupted: frozenset[str] = frozenset()


Ready = Mapping[str, Sequence[tuple[Budget, Matcher]]]
"""Budgets by namespace, their selectors ready to be asked."""


def ready(budgets: Iterable[Budget]) -> Ready:
    found: dict[str, list[tuple[Budget, Matcher]]] = {}
    for each in budgets:
        if each.selector is not None:
            found.setdefault(each.namespace, []).append((each, Matcher(each.selector)))
    return found


def split(claims: Iterable[Claim], budgets: Ready) -> tuple[list[Claim], list[Claim]]:
    """(those that would exceed a budget, the others), each in the order given, if they all went in
    this order."""
    violating: list[Claim] = []
    others: list[Claim] = []
    left: dict[tuple[str, str], int] = {}
    for claim in claims:
        exceeded = False
        namespace, _, name = claim.pod.key.partition("/")
        for budget, selector in budgets.get(namespace, ()):
            if name in budget.disrupted or not selector.matches(claim.pod.labels):
                continue
            of = (namespace, budget.name)
            left[of] = left.get(of, budget.allowed) - 1
            exceeded = exceeded or left[of] < 0
        (violating if exceeded else others).append(claim)
    return violating, others
