"""Antagonists by the matrix of waits: who makes whom wait more than is normal between the two."""

from __future__ import annotations

import math
from collections.abc import Collection

import msgspec

from koordlet.decision.metrics import HOST_APPLICATION_PSI, POD_PSI, WAITS, WaitMetrics
from koordlet.decision.snapshot import Snapshot
from koordlet.qos.interference.pairs import (
    LEARN,
    Pair,
    Suffering,
    judge_pair,
    judge_victim,
)
from koordlet.qos.interference.windows import (
    OLDEST_S,
    OTHERS,
    Antagonist,
    Who,
    follows,
    hurries,
    sampled_at,
    span_of,
    victims,
    window,
)

MOST_PAIRS = 4000
LOOK_AGAIN_S = 10.0
"""For so long it is not asked again whether somebody measures a resource that nobody did."""
SUFFERS_FROM_PSI = 15.0
"""Pressure (cpu, some, avg10) in percent at which a victim suffers, whatever its waits are: as much
stall as raises an alarm by default."""

Cell = tuple[str, Who, Who]
"""Resource, victim, culprit."""
Subject = tuple[str, Who]
"""Resource, victim."""


class Known(msgspec.Struct, frozen=True):
    """``seen``: unix time of the newest window by resource. ``unmeasured``: when it was last found
    that nobody measures a resource, as ``Snapshot.now``. ``victims``: who was there at the newest
    window. ``learning``: windows of those that have not had ``LEARN`` yet. Pairs and victims at
    rest are not kept."""

    seen: dict[str, float] = {}
    unmeasured: dict[str, float] = {}
    victims: tuple[Who, ...] = ()
    learning: dict[Subject, int] = {}
    pairs: dict[Cell, Pair] = {}
    suffering: dict[Subject, Suffering] = {}


def look(snapshot: Snapshot, known: Known) -> tuple[Known, frozenset[str]]:
    """Takes the windows that are new; of which resources there were some."""
    fresh = set()
    for waits in WAITS:
        resource = waits.resource
        if snapshot.now - known.unmeasured.get(resource, -math.inf) < LOOK_AGAIN_S:
            continue
        time = sampled_at(snapshot, waits)
        if time is None:
            known = _unmeasured(known, snapshot, resource)
        elif time > known.seen.get(resource, -math.inf) + 0.001:
            known = _judged(known, snapshot, waits, time)
            fresh.add(resource)
    return known, frozenset(fresh)


def antagonists(snapshot: Snapshot, known: Known, fresh: Collection[str]) -> tuple[Antagonist, ...]:
    """``fresh``: resources of which a window came just now."""
    found = []
    for (resource, victim, culprit), pair in known.pairs.items():
        if pair.since is not None:
            is_bad = resource in fresh and pair.bad[0]
            harms = is_bad and _suffers(snapshot, known, resource, victim)
            found.append(Antagonist(resource, victim, culprit, pair.blame, harms))
    return tuple(found)


def _suffers(snapshot: Snapshot, known: Known, resource: str, victim: Who) -> bool:
    if known.suffering.get((resource, victim), Suffering()).suffers:
        return True
    metric = POD_PSI if victim.kind == "pod" else HOST_APPLICATION_PSI
    labels = (victim.name, "cpu", "10", "some")
    psi = snapshot.metrics.read(metric, labels, window_s=OLDEST_S) if resource == "cpu" else None
    return psi is not None and psi.value >= SUFFERS_FROM_PSI


def _unmeasured(known: Known, snapshot: Snapshot, resource: str) -> Known:
    """What is normal stays known. What was bad is evidence no more."""
    here = frozenset(victims(snapshot))
    pairs = dict(known.pairs)
    for cell in [cell for cell in pairs if cell[0] == resource]:
        pairs[cell] = Pair(pairs[cell].normal)
    suffering = dict(known.suffering)
    for subject in [subject for subject in suffering if subject[0] == resource]:
        suffering[subject] = Suffering(suffering[subject].normal)
    return msgspec.structs.replace(
        known,
        unmeasured=known.unmeasured | {resource: snapshot.now},
        victims=tuple(victim for victim in known.victims if victim in here),
        pairs=pairs,
        suffering=suffering,
    )


def _judged(known: Known, snapshot: Snapshot, waits: WaitMetrics, time: float) -> Known:
    """With the window at ``time``. A victim that is gone takes its pairs with it."""
    resource = waits.resource
    here = tuple(victims(snapshot))
    if here == known.victims:
        here = known.victims
    present = frozenset(here)
    learning = _learning(known, resource, here, present)
    pairs, suffering = dict(known.pairs), dict(known.suffering)
    cells = {cell for cell in pairs if cell[0] == resource}
    remembered = {cell[1] for cell in cells}
    remembered |= {who for of, who in (*suffering, *learning) if of == resource}
    span_s = span_of(snapshot, waits, time, known.seen.get(resource, time - 1))
    rows = {row.victim: row for row in window(snapshot, waits, time, span_s, remembered, present)}
    for victim in remembered - rows.keys():
        suffering.pop((resource, victim), None)
    for victim, row in rows.items():
        subject = resource, victim
        victim_now = judge_victim(
            suffering.get(subject, Suffering()),
            row.of_others,
            demand_ms_per_s=row.demand_ms_per_s,
            span_s=span_s,
            learnt=learning.get(subject, LEARN),
        )
        if victim_now.is_quiet:
            suffering.pop(subject, None)
        else:
            suffering[subject] = victim_now
    cells |= {(resource, victim, culprit) for victim, row in rows.items() for culprit in row.shares}
    disturbed = set()
    # Those that follow come last, when it is known whether another one is bad.
    for cell in sorted(cells, key=lambda cell: (follows(cell[2]), cell)):
        _, victim, culprit = cell
        if victim not in rows:
            del pairs[cell]
            continue
        if cell not in pairs and len(pairs) >= MOST_PAIRS:
            continue
        share = rows[victim].shares.get(culprit, 0.0)
        learnt = learning.get((resource, victim), LEARN)
        excused = victim in disturbed and follows(culprit)
        pair = judge_pair(
            pairs.get(cell, Pair()),
            share,
            snapshot.now,
            demand_ms_per_s=rows[victim].demand_ms_per_s,
            hurried=hurries(culprit),
            learnt=learnt,
            excused=excused,
        )
        if pair.bad[0] and culprit.kind in OTHERS:
            disturbed.add(victim)
        if pair.is_quiet:
            pairs.pop(cell, None)
        else:
            pairs[cell] = pair
    for victim in rows:
        count = learning.pop((resource, victim), LEARN) + 1
        if count < LEARN:
            learning[resource, victim] = count
    return Known(known.seen | {resource: time}, known.unmeasured, here, learning, pairs, suffering)


def _learning(
    known: Known, resource: str, here: tuple[Who, ...], present: frozenset[Who]
) -> dict[Subject, int]:
    """Whoever is new learns, and all do in the first window of a resource."""
    learning = {each: count for each, count in known.learning.items() if each[1] in present}
    if resource not in known.seen:
        learning |= {(resource, victim): 0 for victim in here}
    new = present.difference(known.victims) if here is not known.victims else ()
    for victim in sorted(new):
        learning |= {(each, victim): 0 for each in (*known.seen, resource)}
    return learning
