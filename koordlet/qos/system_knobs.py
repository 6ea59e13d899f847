"""Knobs of the whole machine that the NodeSLO may set (docs/reference/qos.md 7.2).

What it does not name stays, or goes back to, as it was found.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.part import Switch
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol.slo import SystemStrategy

NAME = "system-knobs"
_FACTOR_OF_ONE = 10_000
"""``minFreeKbytesFactor`` is in 1/10000 of memory."""


class _Knob(msgspec.Struct, frozen=True):
    """``field`` of SystemStrategy, ``name`` on the wire. ``low``, ``high``: what is set; None:
    whatever the kernel takes."""

    field: str
    name: str
    resource: Resource
    low: int | None = None
    high: int | None = None


_MIN_FREE = _Knob(
    "min_free_kbytes_factor", "minFreeKbytesFactor", Resource.SYSCTL_MIN_FREE_KBYTES,
    10 * 1024, 10 * 1024 * 1024,
)  # fmt: skip
_NUMBERS = (
    _MIN_FREE,
    _Knob(
        "watermark_scale_factor", "watermarkScaleFactor", Resource.SYSCTL_WATERMARK_SCALE_FACTOR,
        10, 400,
    ),
    _Knob("memcg_reap_back_ground", "memcgReapBackGround", Resource.MEMCG_REAP_BACKGROUND),
    _Knob(
        "sched_group_identity_enabled", "schedGroupIdentityEnabled",
        Resource.SYSCTL_GROUP_IDENTITY,
    ),
    _Knob(
        "sched_idle_saver_wmark", "schedIdleSaverWmark", Resource.SYSCTL_SCHED_IDLE_SAVER_WMARK
    ),
    _Knob("page_cache_limit_enabled", "pageCacheLimitEnabled", Resource.PAGECACHE_LIMIT_ENABLED),
)  # fmt: skip
_FEATURES = _Knob("sched_features", "schedFeatures", Resource.SCHED_FEATURES)


def min_free_kbytes(memory_bytes: int, factor: int) -> int:
    return memory_bytes // 1024 * factor // _FACTOR_OF_ONE


def decide(snapshot: Snapshot, memory: None, _: Options = DEFAULTS) -> Decision:
    """The complete plan. Without a NodeSLO everything stays."""
    strategy = snapshot.slo.system_strategy if snapshot.slo is not None else None
    if strategy is None:
        text = "no NodeSLO sets system knobs; they stay as they are"
        return Decision(Plan(NAME, keep_all=True), None, (Why("system-knobs.no-slo", text),))
    settings: list[Setting] = []
    notes: list[Why] = []
    for knob, value, text in _wanted(snapshot, strategy):
        facts = (Input("memory of the node", snapshot.node.memory_bytes, "bytes"),)
        if isinstance(value, int) and _is_outside(knob, value):
            bounds = f"{knob.low}..{knob.high}"
            text = f"{text}: outside {bounds}, so {knob.resource} stays as it was"
            notes.append(Why("system-knobs.range", text, facts))
        else:
            why = Why("system-knobs.set", text, facts)
            settings.append(Setting("", knob.resource, value, why))
    return Decision(Plan(NAME, tuple(settings)), None, tuple(notes))


def _wanted(snapshot: Snapshot, strategy: SystemStrategy) -> Iterator[tuple[_Knob, Value, str]]:
    """Each knob that is named, with its value and the reason's text."""
    for knob in _NUMBERS:
        asked: int | None = getattr(strategy, knob.field)
        if asked is None:
            continue
        text = f"systemStrategy.{knob.name} is {asked}"
        if knob is _MIN_FREE:
            asked = min_free_kbytes(snapshot.node.memory_bytes, asked)
            text = f"{text}, in 1/{_FACTOR_OF_ONE} of memory: {asked} KiB"
        yield knob, asked, text
    features = strategy.sched_features
    if features:
        words = sorted(name if on else f"NO_{name}" for name, on in features.items())
        text = f"systemStrategy.{_FEATURES.name}: {', '.join(words)}"
        yield _FEATURES, " ".join(words), text


def _is_outside(knob: _Knob, value: int) -> bool:
    return knob.low is not None and knob.high is not None and not knob.low <= value <= knob.high


STRATEGY = Strategy(
    name=NAME,
    help="Memory watermarks and switches of the whole machine.",
    function=decide,
    initial=None,
    options=DEFAULTS,
    writes=tuple(knob.resource for knob in (*_NUMBERS, _FEATURES)),
    switches=(
        tuple(
            Switch(f"{slo_keys.SYSTEM}.{name}", example="")
            for name in (
                "minFreeKbytesFactor",
                "watermarkScaleFactor",
                "memcgReapBackGround",
                "schedGroupIdentityEnabled",
                "schedIdleSaverWmark",
                "schedFeatures",
                "pageCacheLimitEnabled",
            )
        ),
    ),
    arguments=slo_keys.below(slo_keys.SYSTEM, "*"),
)
