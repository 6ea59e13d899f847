"""What every invariant says when it does not hold."""

from __future__ import annotations


class BrokenError(AssertionError):
    """An invariant does not hold."""


def check(condition: object, text: str) -> None:
    if not condition:
        raise BrokenError(text)
