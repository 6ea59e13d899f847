"""Numbers in the unit of one file turned into the unit of another (docs/reference/qos.md 8.6)."""

from __future__ import annotations

import math
import os

from koordlet.decision.cpu_amounts import MAX_SHARES
from koordlet.decision.resource import MIN_SHARES

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
USER_HZ = os.sysconf("SC_CLK_TCK")
"""Ticks per second of the times in ``/proc`` and of ``cpuacct.stat``."""

MIN_WEIGHT = 1
MAX_WEIGHT = 10000


def shares_to_weight(shares: int) -> int:
    """2..262144 -> 1..10000, by the straight line that the reference and runc before 1.3 use.
    Raises ValueError out of range."""
    if not MIN_SHARES <= shares <= MAX_SHARES:
        raise ValueError(f"cpu.shares {shares} is outside {MIN_SHARES}..{MAX_SHARES}")
    return 1 + (shares - MIN_SHARES) * (MAX_WEIGHT - 1) // (MAX_SHARES - MIN_SHARES)


def shares_to_modern_weight(shares: int) -> int:
    """The same by the curve of runc 1.3 and of crun, which keeps the kernel's defaults (1024
    shares, weight 100) on each other; the line gives 39."""
    if shares in (MIN_SHARES, MAX_SHARES):  # the ends, free of rounding
        return MIN_WEIGHT if shares == MIN_SHARES else MAX_WEIGHT
    log = math.log2(shares)
    return math.ceil(10 ** ((log * log + 125 * log) / 612 - 7 / 34))


def is_modern(shares: int, weight: int) -> bool | None:
    """Return by which of the two rules ``weight`` was made of ``shares``; None where both give it,
    or neither."""
    if not MIN_SHARES <= shares <= MAX_SHARES:
        return None
    straight, modern = shares_to_weight(shares), shares_to_modern_weight(shares)
    if straight == modern or weight not in (straight, modern):
        return None
    return weight == modern


def weight_to_shares(weight: int) -> int:
    """1..10000 -> 2..262144, so that ``shares_to_weight`` gives the same weight again. Raises
    ValueError out of range.

    The reference rounds down here as it does there, which loses one: 39 -> 998 -> 38.
    """
    if not MIN_WEIGHT <= weight <= MAX_WEIGHT:
        raise ValueError(f"cpu.weight {weight} is outside {MIN_WEIGHT}..{MAX_WEIGHT}")
    above = (weight - MIN_WEIGHT) * (MAX_SHARES - MIN_SHARES)
    return MIN_SHARES - -above // (MAX_WEIGHT - MIN_WEIGHT)


def same_shares_on_v2(wanted: int, found: int) -> bool:
    """Whether ``found``, read from cpu.weight, is what either rule makes of ``wanted``: a weight
    that the runtime wrote for the same shares is not rewritten."""
    if wanted == found:
        return True
    if not (MIN_SHARES <= wanted <= MAX_SHARES and MIN_SHARES <= found <= MAX_SHARES):
        return False
    return shares_to_weight(found) in (shares_to_weight(wanted), shares_to_modern_weight(wanted))
