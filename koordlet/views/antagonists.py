"""``koordlet blame`` with those marked that the strategy ``interference`` reports now."""

from __future__ import annotations

from collections.abc import Container

import msgspec

from koordlet.admin import blame as b
from koordlet.admin.daemon import Lookup
from koordlet.engine.engine import Engine
from koordlet.kernel.background import Pause, no_pause
from koordlet.qos.interference.strategy import NAME, InterferenceState
from koordlet.qos.interference.windows import OTHERS
from koordlet.views import blame as matrix

Key = tuple[str, str, str, str]
"""Resource, id of the victim, kind and id of the culprit."""


def blame(engine: Engine, target: str, window_s: float) -> Lookup[b.BlameView]:
    """Raises as ``views.blame``."""
    look_up = matrix.blame(engine, target, window_s)
    found = _antagonists(engine)

    def marked(pause: Pause = no_pause) -> b.BlameView:
        view = look_up(pause)
        victims = tuple(_victim(victim, found) for victim in view.victims)
        return msgspec.structs.replace(view, victims=victims)

    return marked if found else look_up


def _antagonists(engine: Engine) -> frozenset[Key]:
    """Others than the victim itself."""
    runs = engine.runs.get(NAME)
    if runs is None or not isinstance(runs.memory, InterferenceState):
        return frozenset()
    return frozenset(
        (resource, victim.name, *culprit)
        for (resource, victim, culprit), pair in runs.memory.waits.pairs.items()
        if pair.since is not None and culprit.kind in OTHERS
    )


def _victim(victim: b.VictimView, found: Container[Key]) -> b.VictimView:
    stalls = []
    for stall in victim.stalls:
        culprits = tuple(
            msgspec.structs.replace(
                each, antagonist=(stall.resource, victim.id, each.kind, each.id) in found
            )
            for each in stall.culprits
        )
        stalls.append(msgspec.structs.replace(stall, culprits=culprits))
    return msgspec.structs.replace(victim, stalls=tuple(stalls))
