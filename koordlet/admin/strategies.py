"""Views of strategies, whatever part of koordlet each acts through (see ``model``)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koordlet.decision.record import Record


class StrategyState(StrEnum):
    ACTIVE = "active"  # it has something in force, or somebody is on his way out
    IDLE = "idle"  # on, and nothing to do at present
    WAITING = "waiting"  # an input is missing
    OBSERVING = "observing"  # it would act, were it not for observe mode
    PAUSED = "paused"  # by `koordlet pause`; what it had set has gone back
    OFF = "off"  # by the configuration or the NodeSLO
    UNSUPPORTED = "unsupported"  # this kernel has nothing that it could act by
    FAILED = "failed"  # it raises; the others go on, and what it had set stays


class Lack(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel feature that it could use and that is not there."""

    feature: str
    why: str
    cost: str = ""
    remedy: str = ""


class StrategyArgument(msgspec.Struct, frozen=True, kw_only=True):
    """``value`` is TOML text, ``origin`` as in ConfigValueView."""

    key: str
    value: str
    origin: str
    meaning: str


class StrategyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy. ``kind``: ``strategy`` or ``hook``. ``why``: of the state; ``remedy``: what
    would make it act, empty where it does or nothing has to be changed. ``since``: of the state,
    in this run. ``settings``: how many it wants in force; ``changed``: files of which it holds the
    original. ``runs``, ``failures``: of this run. ``arguments``, ``notes``: only where one
    strategy was asked for.
    """

    name: str
    kind: str
    about: str
    state: StrategyState
    why: str
    remedy: str = ""
    since: float | None = None
    settings: int = 0
    changed: int = 0
    runs: int = 0
    failures: int = 0
    last_run: float | None = None
    last_decision: Record | None = None
    lacks: tuple[Lack, ...] = ()
    arguments: tuple[StrategyArgument, ...] = ()
    notes: tuple[str, ...] = ()


class StrategiesView(msgspec.Struct, frozen=True, kw_only=True):
    strategies: tuple[StrategyRow, ...] = ()
