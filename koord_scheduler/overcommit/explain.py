"""Each term of the batch and mid formulas of a node, for people."""

from __future__ import annotations

from dataclasses import dataclass

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import Inputs
from koord_scheduler.overcommit.configuration import Configuration
from koord_scheduler.overcommit.noderesource import Plan


@dataclass(frozen=True)
class Term:
    """One line. ``counts`` says for which of cpu and memory the chosen policy uses it."""

    name: str
    amount: Amounts
    about: str
    counts: tuple[bool, bool] = (True, True)


@dataclass(frozen=True)
class Contribution:
    """What one pod, or one metric without its pod, puts into the sums. ``why`` says by which rule;
    amounts are 0 where it is passed over."""

    key: str
    requested: Amounts
    used: Amounts
    largest: Amounts
    why: str


@dataclass(frozen=True)
class Explanation:
    plan: Plan
    batch: tuple[Term, ...]
    mid: tuple[Term, ...]
    pods: tuple[Contribution, ...]
    """By what they use, the largest first."""


def explain(inputs: Inputs, configuration: Configuration, now_s: float) -> Explanation | None:
    """None while there is no configuration."""
    raise NotImplementedError
