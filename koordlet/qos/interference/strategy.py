"""Interference: says who disturbs latency-sensitive work, and may hold best-effort culprits back.

For each victim and each one that makes it wait, the share of the victim's demand that it waited for
that one is compared with what is normal between the two (``pairs``). An antagonist is told with its
figures; what to do about it depends on whose it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Annotated

import msgspec

from koordlet.decision.family import Family, Kind
from koordlet.decision.metrics import WAITS, WaitMetrics
from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Gauge, Plan
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import ALARMS, Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.qos.interference import by_cpi
from koordlet.qos.interference.hold import Antagonist, Held, cgroups_of, hold, settings
from koordlet.qos.interference.pairs import Pair, Suffering, judge_pair, judge_victim
from koordlet.qos.interference.windows import Who, sampled_at, window

NAME = "interference"
MOST_PAIRS = 4000
LOOK_AGAIN_S = 10.0
"""For so long it is not asked again whether somebody measures a resource that nobody did."""
TOLD = 8
"""Antagonists that one decision names."""

BLAME = Family(
    "interference_blame_ratio",
    Kind.GAUGE,
    "Share of its demand that a victim waits for an antagonist, while it is one",
    ("resource", "victim_kind", "victim", "culprit_kind", "culprit"),
)

Cell = tuple[str, Who, Who]
"""Resource, victim, culprit."""


class InterferenceOptions(Options, frozen=True):
    act: Annotated[
        bool,
        about("Give best-effort antagonists less CPU, each alone; without it they are only told."),
    ] = False


class InterferenceState(msgspec.Struct, frozen=True):
    """``seen``: unix time of the newest window by resource. ``unmeasured``: when it was last found
    that nobody measures a resource, as ``Snapshot.now``. ``suffering``: by resource and victim."""

    seen: dict[str, float] = {}
    unmeasured: dict[str, float] = {}
    pairs: dict[Cell, Pair] = {}
    suffering: dict[tuple[str, Who], Suffering] = {}
    held: dict[str, Held] = {}
    by_cpi: dict[str, by_cpi.Victim] = {}


def decide(snapshot: Snapshot, memory: InterferenceState, options: InterferenceOptions) -> Decision:
    """Tells antagonists; with ``act`` the plan holds the best-effort ones back."""
    seen, unmeasured = dict(memory.seen), dict(memory.unmeasured)
    pairs, suffering = dict(memory.pairs), dict(memory.suffering)
    for waits in WAITS:
        resource = waits.resource
        if snapshot.now - unmeasured.get(resource, -math.inf) < LOOK_AGAIN_S:
            continue
        time = sampled_at(snapshot, waits)
        if time is None:
            unmeasured[resource] = snapshot.now
            continue
        before = seen.get(resource, time)
        if resource in seen and time <= before + 0.001:
            continue
        seen[resource] = time
        _judge(pairs, suffering, snapshot, waits, time, time - before)
    found = {cell: pair for cell, pair in pairs.items() if pair.since is not None}
    worst = sorted(found, key=lambda cell: -found[cell].blame)
    counted = by_cpi.look(snapshot, memory.by_cpi)
    slowed = by_cpi.antagonists(counted)
    everybody = (*_antagonists(found, suffering), *_slowing(slowed))
    held = hold(snapshot, memory.held, everybody) if options.act else {}
    notes = (
        *(_note(snapshot, cell, found[cell], suffering, options) for cell in worst[:TOLD]),
        *(_note_of_cpi(snapshot, pair, slowed[pair], options) for pair in sorted(slowed)[:TOLD]),
    )
    gauges = tuple(Gauge(BLAME, found[cell].blame, (cell[0], *cell[1], *cell[2])) for cell in worst)
    after = InterferenceState(seen, unmeasured, pairs, suffering, held, counted)
    return Decision(Plan(NAME, tuple(settings(snapshot, held))), after, notes, gauges)


def _antagonists(
    found: Mapping[Cell, Pair], suffering: Mapping[tuple[str, Who], Suffering]
) -> tuple[Antagonist, ...]:
    """By culprit, whatever and whomever it disturbs."""
    of_culprit: dict[Who, Antagonist] = {}
    for (resource, victim, culprit), pair in sorted(found.items()):
        before = of_culprit.get(culprit, Antagonist(culprit))
        harms = suffering.get((resource, victim), Suffering()).suffers
        of_culprit[culprit] = Antagonist(
            culprit, before.harms or harms, before.goes_on or pair.bad[0]
        )
    return tuple(of_culprit.values())


def _slowing(slowed: Mapping[tuple[Who, Who], float]) -> tuple[Antagonist, ...]:
    """Of each victim the one whose use goes best with its cycles."""
    best: dict[Who, Who] = {}
    for (victim, culprit), value in slowed.items():
        if value > slowed.get((victim, best.get(victim, victim)), 0.0):
            best[victim] = culprit
    culprits = sorted(set(best.values()))
    return tuple(Antagonist(culprit, harms=True, goes_on=True) for culprit in culprits)


def _note_of_cpi(
    snapshot: Snapshot, pair: tuple[Who, Who], value: float, options: InterferenceOptions
) -> Why:
    victim, culprit = pair
    titles = _titles(snapshot, pair)
    return Why(
        f"interference.{by_cpi.RESOURCE}",
        f"{titles[victim]} needs more cycles for each instruction while {titles[culprit]} is busy; "
        + _what_is_done(options),
        (Input("correlation", round(value, 3)),),
    )


def _what_is_done(options: InterferenceOptions) -> str:
    return "it is held back" if options.act else "it would be held back with act = true"


def _judge(
    pairs: dict[Cell, Pair],
    suffering: dict[tuple[str, Who], Suffering],
    snapshot: Snapshot,
    waits: WaitMetrics,
    time: float,
    span_s: float,
) -> None:
    """Take the window at ``time`` into ``pairs`` and ``suffering``. A victim that is gone takes its
    pairs with it."""
    resource = waits.resource
    known = {cell for cell in pairs if cell[0] == resource}
    remembered = {cell[1] for cell in known} | {who for of, who in suffering if of == resource}
    rows = {row.victim: row for row in window(snapshot, waits, time, span_s, remembered)}
    for victim in remembered - rows.keys():
        suffering.pop((resource, victim), None)
    for victim, row in rows.items():
        key = resource, victim
        judged = judge_victim(suffering.get(key, Suffering()), row.of_others)
        if judged.is_quiet:
            suffering.pop(key, None)
        else:
            suffering[key] = judged
    new = {(resource, victim, culprit) for victim, row in rows.items() for culprit in row.shares}
    for cell in known | new:
        _, victim, culprit = cell
        if victim not in rows:
            del pairs[cell]
            continue
        if cell not in pairs and len(pairs) >= MOST_PAIRS:
            continue
        share = rows[victim].shares.get(culprit, 0.0)
        pair = judge_pair(pairs.get(cell, Pair()), share, snapshot.now)
        if pair.is_quiet:
            pairs.pop(cell, None)
        else:
            pairs[cell] = pair


_WAITS_FOR = {"cpu": "a CPU", "io": "a disk", "memory": "memory"}
_ADVICE = {
    "self": "its own tasks keep each other waiting: it needs more CPUs",
    "throttled": "its own CPU limit keeps it waiting: raise it, or let it burst",
    "system": "work outside pods and applications keeps it waiting",
}


def _note(
    snapshot: Snapshot,
    cell: Cell,
    pair: Pair,
    suffering: Mapping[tuple[str, Who], Suffering],
    options: InterferenceOptions,
) -> Why:
    """The text has no figures, so that it is told once for as long as it holds."""
    resource, victim, culprit = cell
    what = _WAITS_FOR.get(resource, resource)
    titles = _titles(snapshot, (victim, culprit))
    share = suffering.get((resource, victim), Suffering())
    if culprit.kind in _ADVICE:
        name = f" ({culprit.name})" if culprit.name else ""
        text = f"{titles[victim]} waits for {what}: {_ADVICE[culprit.kind]}{name}"
    else:
        text = f"{titles[victim]} waits for {what} because of {titles[culprit]}; "
        if not any(cgroups_of(snapshot, culprit)):
            text += "it is not best-effort, so only told"
        else:
            text += _what_is_done(options)
    return Why(
        f"interference.{resource}",
        text,
        (
            Input("blame", round(pair.blame, 4), "of its demand"),
            Input("normal", round(pair.normal.mean, 4), "of its demand"),
            Input("limit", round(pair.normal.limit, 4), "of its demand"),
            Input("waits for others", round(share.share, 4), "of its demand"),
            Input("bad windows", sum(pair.bad), f"of {len(pair.bad)}"),
        ),
    )


def _titles(snapshot: Snapshot, whom: Iterable[Who]) -> dict[Who, str]:
    found = {}
    for who in whom:
        if who.kind == "pod":
            titles = (pod.title for pod in snapshot.pods if pod.uid == who.name)
            found[who] = next(titles, f"pod {who.name}")
        elif who.kind == "rest":
            found[who] = "many pods together"
        else:
            found[who] = f"{who.kind} {who.name}".strip()
    return found


STRATEGY = Strategy(
    name=NAME,
    help="Say who disturbs latency-sensitive work; hold best-effort culprits back where allowed.",
    function=decide,
    initial=InterferenceState(),
    options=InterferenceOptions(),
    families=(BLAME,),
    writes=(Resource.CPU_QUOTA_US,),
    uses=("bpf-run-queue", "pmu", Resource.CPU_QUOTA_US),
    wakes_on=ALARMS,
)
