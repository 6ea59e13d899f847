"""Why something was, or was not, done: the part of a decision that people read."""

from __future__ import annotations

import msgspec


class Input(msgspec.Struct, frozen=True):
    """One fact a decision looked at.

    ``window_s`` is the length of the aggregated window (0 = a single value), ``age_s`` how old
    the newest sample was when the decision was taken.
    """

    name: str
    value: int | float | str | bool | None
    unit: str = ""
    window_s: float = 0.0
    age_s: float = 0.0


class Why(msgspec.Struct, frozen=True):
    """``rule`` is a stable dotted id (``cpu-suppress.allowance``), ``text`` one plain sentence."""

    rule: str
    text: str
    inputs: tuple[Input, ...] = ()
