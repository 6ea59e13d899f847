"""When to shed optional collectors: pure arithmetic on what the daemon itself uses."""

from __future__ import annotations

import math

import msgspec


class BudgetOptions(msgspec.Struct, frozen=True):
    """``cores`` and ``memory_bytes``: what the whole daemon may use. One collector more is shed
    after ``rounds_over`` rounds in which either was exceeded, and comes back after
    ``rounds_under`` rounds with both below ``resume_ratio`` of it."""

    cores: float = 0.03
    memory_bytes: float = math.inf
    rounds_over: int = 5
    rounds_under: int = 60
    resume_ratio: float = 0.6


class BudgetState(msgspec.Struct, frozen=True):
    """``shed``: how many of the optional collectors are off now."""

    shed: int = 0
    over: int = 0
    under: int = 0


def weigh(
    state: BudgetState,
    used_cores: float,
    memory_bytes: float,
    optional_count: int,
    options: BudgetOptions,
) -> BudgetState:
    """The next state after a round in which the daemon used that much.

    Between the two thresholds both counts start again, so that use near the budget does not
    switch a collector off and on.
    """
    share = max(used_cores / options.cores, memory_bytes / options.memory_bytes)
    if share > 1:
        over = state.over + 1
        if over < options.rounds_over or state.shed >= optional_count:
            return BudgetState(state.shed, min(over, options.rounds_over), 0)
        return BudgetState(state.shed + 1)
    if share < options.resume_ratio:
        under = state.under + 1
        if under < options.rounds_under or state.shed == 0:
            return BudgetState(state.shed, 0, min(under, options.rounds_under))
        return BudgetState(state.shed - 1)
    return BudgetState(state.shed)
