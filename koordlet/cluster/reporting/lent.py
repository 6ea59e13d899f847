"""What the daemon lends to those who report, beside ``Around``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from koordlet.cluster.around import Around
from koordlet.decision.devices import Inventory
from koordlet.prediction.reclaimable import Reclaimable


@dataclass(frozen=True)
class Lent:
    """Everything is asked on the event loop.

    ``predicted``: None while nothing can be predicted. ``inventory``: None until all collectors of
    devices have looked. ``step_percent``: by so much of the node usage moves until it is reported
    at once. ``huge_pages``: they are reported apart from memory.
    """

    around: Around
    predicted: Callable[[], Reclaimable | None]
    inventory: Callable[[], Inventory | None]
    sys_root: str = "/sys"
    proc_root: str = "/proc"
    step_percent: float = 5.0
    huge_pages: bool = False
    strain: Callable[[], frozenset[str]] = frozenset
    """Kinds of strain (`reporting/strain.py`) that are seen now."""


class Report(NamedTuple):
    """For people. ``text``: what was reported last. ``age_s``: since then; None: not yet."""

    kind: str
    text: str
    age_s: float | None = None
    error: str = ""
