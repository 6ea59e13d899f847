"""What a decision comes to, in four bytes."""

from __future__ import annotations

import zlib
from operator import attrgetter

from koordlet.decision.plan import Decision
from koordlet.inputs.packing import packed

_SETTING = attrgetter("cgroup", "resource", "value", "without", "raises")


def digest(decision: Decision) -> int:
    """CRC-32 of all that the decision does and says. Left out are the memory, which the next
    decisions show; gauges, which come from the same figures; and the reasons of settings, which
    would cost more than the rest together."""
    plan = decision.plan
    content = (
        tuple(map(_SETTING, plan.settings)),
        (plan.keep, plan.keep_all, plan.keep_below, plan.amends, plan.evictions),
        (decision.notes, decision.reclaims, decision.ls_cores),
    )
    return zlib.crc32(packed(content))


def failure(error: Exception) -> int:
    """Instead of a decision: what was raised, not its text, which may hold an address."""
    return zlib.crc32(type(error).__qualname__.encode(), 1)
