"""PodDisruptionBudgets: which of several pods could not go without exceeding one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from koord_scheduler.model.cluster.pods import Claim
from koordlet.protocol.selector import LabelSelector, matches


class Budget(NamedTuple):
    """``selector`` None selects nothing, an empty one everything in the namespace. ``allowed``:
    ``status.disruptionsAllowed``. ``disrupted``: names in ``status.disruptedPods``, which count
    already."""

    namespace: str
    name: str
    selector: LabelSelector | None
    allowed: int
    disrupted: frozenset[str] = frozenset()


def split(claims: Iterable[Claim], budgets: Sequence[Budget]) -> tuple[list[Claim], list[Claim]]:
    """(those that would exceed a budget, the others), each in the order given, if they all went in
    this order."""
    violating: list[Claim] = []
    others: list[Claim] = []
    left = [budget.allowed for budget in budgets]
    for claim in claims:
        exceeded = False
        namespace, _, name = claim.pod.key.partition("/")
        for i, budget in enumerate(budgets):
            if budget.namespace != namespace or budget.selector is None:
                continue
            if name in budget.disrupted or not matches(budget.selector, claim.pod.labels):
                continue
            left[i] -= 1
            exceeded = exceeded or left[i] < 0
        (violating if exceeded else others).append(claim)
    return violating, others
