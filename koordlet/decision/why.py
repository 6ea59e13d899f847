"""Reasons: why something was, or was not, done, what a kernel lacks, what an input has wrong."""

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


class Capability(msgspec.Struct, frozen=True):
    """Result of one probe. ``why`` says what was tried and what the kernel answered; ``cost``
    what does not work without it (empty when supported); ``remedy`` what this host wants done
    about it (empty when the answer does not tell). ``for_now``: another probe may find it."""

    feature: str
    supported: bool
    why: str
    cost: str = ""
    remedy: str = ""
    for_now: bool = False


class Fault(msgspec.Struct, frozen=True):
    """Bad input, refused: where it stood (key, JSON path) and what to do about it."""

    subject: str
    path: str
    message: str
