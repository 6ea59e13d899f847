"""Text for a terminal with styles that have names; the terminal chooses the colours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Span(NamedTuple):
    """``style``: LS, BE, system, head, dim, warn, bad, or nothing."""

    text: str
    style: str = ""


Line = tuple[Span, ...]


def plain(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def joined(spans: Iterable[Span]) -> Line:
    """Neighbours of one style as one span."""
    found: list[Span] = []
    for span in spans:
        if found and found[-1].style == span.style:
            found[-1] = Span(found[-1].text + span.text, span.style)
        else:
            found.append(span)
    return tuple(found)
