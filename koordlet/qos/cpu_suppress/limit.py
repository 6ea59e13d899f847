"""What both policies of CPU suppress share: the limit's ramp and the shape of their result."""

from __future__ import annotations

import msgspec

from koordlet.decision.plan import Setting
from koordlet.decision.resource import Resource
from koordlet.decision.why import Input, Why

GROWTH_PER_S = 0.1
"""Share of the node's processors by which the limit may grow in one second.

The reference grants this step once per iteration, so its interval flag changes the ramp; here it
belongs to elapsed time, which is the same thing at its default interval of 1 s.
"""
SMALL_RISE = 0.03
"""A rise by less than this share of the node may be noise: usage is sampled in ticks of 10 ms."""
RISE_WAIT_S = 5.0
"""A small rise must persist this long."""


class Rise(msgspec.Struct, frozen=True):
    """A rise wanted since ``since``, and the least that was wanted meanwhile."""

    since: float
    least: float


class Limit(msgspec.Struct, frozen=True):
    """How much BE may have, and since when.

    ``milli``: the allowance with the pressure term; policies apply their own minimum.
    ``promised_milli``: the configured minimum, for which no rise waits and no write is spared.
    ``level``: the limit last decided, in the unit of the policy; None when there was none.
    ``growth_s``: seconds of growth granted (0 while an alarm holds it), ``elapsed_s``: real ones.
    ``text`` and ``inputs`` tell where ``milli`` comes from.
    """

    milli: int
    level: float | None
    growth_s: float
    elapsed_s: float
    text: str
    inputs: tuple[Input, ...] = ()
    promised_milli: int = 0
    now: float = 0.0
    rise: Rise | None = None


class Applied(msgspec.Struct, frozen=True):
    """What a policy makes of a limit. ``level`` None: no decision is possible, keep everything."""

    level: float | None
    cores: float = 0.0
    settings: tuple[Setting, ...] = ()
    keep: tuple[tuple[str, Resource], ...] = ()
    notes: tuple[Why, ...] = ()
    rise: Rise | None = None


def ramp(level: float | None, target: float, step_per_s: float, growth_s: float) -> float:
    """Grows slowly, falls at once. ``level`` None: nothing was limited yet."""
    if level is None or target <= level:
        return target
    return min(target, level + step_per_s * growth_s)


def settle(
    level: float | None, wanted: float, small: float, now: float, rise: Rise | None
) -> tuple[float, Rise | None]:
    """The level to set now, and the pending rise. A fall, or a rise of ``small`` or more, takes
    effect at once.

    A smaller rise waits for ``RISE_WAIT_S`` and then goes to the least that was wanted in that
    time, so a limit under noise stays at the noise's lower edge instead of following it.
    """
    if level is None or wanted <= level:
        return wanted, None
    if wanted >= level + small:
        return wanted, Rise(now - RISE_WAIT_S, wanted)
    if rise is None or rise.least <= level:
        rise = Rise(now, wanted)
    else:
        rise = Rise(rise.since, min(rise.least, wanted))
    return (level if now - rise.since < RISE_WAIT_S else rise.least), rise
