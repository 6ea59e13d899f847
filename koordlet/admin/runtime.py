"""Views of the hooks (see ``model``)."""

from __future__ import annotations

import msgspec

from koordlet.decision.strategy import Action, HookRow
from koordlet.decision.why import Fault


class HooksView(msgspec.Struct, frozen=True, kw_only=True):
    """All hooks; with a ``target`` also what they would do to it, and what of its labels and
    annotations is refused. ``matched`` says what the target was taken for."""

    target: str = ""
    matched: str = ""
    hooks: tuple[HookRow, ...] = ()
    actions: tuple[Action, ...] = ()
    faults: tuple[Fault, ...] = ()
