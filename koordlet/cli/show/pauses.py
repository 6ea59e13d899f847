"""Pauses as rows of a table, for `pause`, `resume` and `status`."""

from __future__ import annotations

from collections.abc import Iterable

from koordlet.admin.undo import PauseView
from koordlet.admin.verdict import pause_by, pause_title
from koordlet.cli import output

HEADER = ("WHAT", "LEFT", "PAUSED")


def table(pauses: Iterable[PauseView]) -> list[str]:
    found = list(rows(pauses))
    return output.columns(HEADER, found, output.terminal_width()) if found else []


def rows(pauses: Iterable[PauseView]) -> Iterable[tuple[str, ...]]:
    """Return the row as ``HEADER`` has it."""
    for each in pauses:
        yield pause_title(each), output.span(each.left_s), pause_by(each)
