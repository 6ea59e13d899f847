"""What was asked over the hook API, counted."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.strategy import Stage


class StageCalls(msgspec.Struct):
    """Calls of one stage. ``changed``: their response differs from the request."""

    stage: Stage
    calls: int = 0
    changed: int = 0
    failed: int = 0
    seconds_total: float = 0.0
    seconds_max: float = 0.0


class HookServerStatus(msgspec.Struct, frozen=True):
    """``lost``: mounts and devices that hooks wanted and this API cannot carry. ``refused``:
    connections turned away, by reason."""

    stages: tuple[StageCalls, ...]
    lost: Mapping[str, int]
    refused: Mapping[str, int]
