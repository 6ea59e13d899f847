"""What a frame of the log says of one minute.

A file begins with a whole frame: its first turn tells everything. All further turns tell what has
changed since the one before. Metrics are not here: the store answers again, as of the turn's time.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Application, Capability, Evicting, Means, Node, Pod, Wake
from koordlet.protocol.slo import NodeSLOSpec

Answer = int | bool | str | tuple[str, ...] | None
"""What a question to ``InForce`` was answered."""


class Answers(msgspec.Struct, frozen=True, array_like=True):
    """Answers of one turn that differ from what was told last.

    ``names``: cgroups, resources and owners, each with the next number. ``questions``: new ones,
    flat (see ``answers``), each with the next number. ``ids``: numbers of the questions, each less
    the one before. ``found``: the answers to these.
    """

    names: tuple[str, ...] = ()
    questions: tuple[int, ...] = ()
    ids: tuple[int, ...] = ()
    found: tuple[Answer, ...] = ()


class Configured(msgspec.Struct, frozen=True):
    """A strategy or hook that was switched on. ``is_new``: it began with its first memory here.
    ``origin``: the distribution and version that it came with; empty for ours."""

    name: str
    options: dict[str, Any] = {}
    is_new: bool = False
    origin: str = ""


class Owned(msgspec.Struct, frozen=True, array_like=True):
    """A file that koordlet has changed. ``ours``: what it wrote last, None before the first."""

    cgroup: str
    resource: Resource
    original: Value
    ours: Value | None


class StoreShape(msgspec.Struct, frozen=True):
    """How much of the samples the daemon had in memory: it says which of them a question sees after
    the clock was set back."""

    hot_window_s: float
    step_s: float
    coarse_step_s: int


class Begin(msgspec.Struct, frozen=True):
    """Of a whole frame. ``version``: the koordlet that decided. ``is_start``: it had just begun to
    run. ``owned``: files of ours, also those that no decision asks about."""

    version: str
    store: StoreShape
    is_start: bool = False
    owned: tuple[Owned, ...] = ()


class Changes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is no longer as it was at the turn before; None and UNSET: it is the same object.

    ``node`` is without its capabilities, which have a field of their own. ``pods``: those that are
    new or changed, ``gone``: uids. ``shown``: strategies whose evictions are not carried out;
    ``paused``: those of them that are paused as a whole.
    """

    node: Node | None = None
    capabilities: dict[str, Capability] | None = None
    slo: NodeSLOSpec | UnsetType | None = UNSET
    pods: tuple[Pod, ...] | None = None
    gone: tuple[str, ...] = ()
    applications: tuple[Application, ...] | None = None
    evicting: Evicting | None = None
    means: Means | None = None
    collect_interval_s: float | None = None
    sources_synced: bool | None = None
    strategies: tuple[Configured, ...] | None = None
    hooks: tuple[Configured, ...] | None = None
    shown: tuple[str, ...] | None = None
    paused: tuple[str, ...] | None = None
    answers: Answers | None = None


class Digests(msgspec.Struct, frozen=True, array_like=True):
    """Of the decisions of one strategy or hook. ``turns``: one byte a turn, 1 where it decided.
    ``values``: the digests of these, uint32 little-endian."""

    turns: bytes
    values: bytes


class Minute(msgspec.Struct, frozen=True, array_like=True):
    """One frame. ``now`` and ``time``: those of the snapshots, float64 little-endian, one a turn.

    ``rounds``: rounds that the store took since the turn before; ``lags_ms``: time of the turn less
    that of the newest round (whole milliseconds); ``partial``: turns after which that round got
    more samples, of the same millisecond. By number of the turn: ``wakes`` of those that are no
    plain tick, ``changes``. ``memories``: of the strategies before the first turn, msgpack each,
    in some frames.
    """

    now: bytes
    time: bytes
    rounds: tuple[int, ...]
    lags_ms: tuple[int, ...]
    wakes: dict[int, Wake]
    changes: dict[int, Changes]
    digests: dict[str, Digests]
    memories: dict[str, bytes] | None = None
    begin: Begin | None = None
    partial: tuple[int, ...] = ()
