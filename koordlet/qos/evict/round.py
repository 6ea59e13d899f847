"""What CPU evict and memory evict share: when a round may run, and its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Annotated

import msgspec
from msgspec import Meta

from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Eviction, Plan, Victim, VictimKind
from koordlet.decision.snapshot import EvictPolicy, Snapshot
from koordlet.decision.why import Input, Why
from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.evict.account import Amounts, Choice, Chosen, CountedBy, Task, choose
from koordlet.qos.evict.config import Feature, Watermark, asked_for
from koordlet.qos.evict.release import Release, last_s
from koordlet.qos.evict.victims import Candidate, candidate, candidates, eligible, may_evict

MINUTE_S = 60.0


CoolDown = Annotated[
    Annotated[float, Meta(ge=0, le=3600)],
    about("Time between an eviction and the next round."),
]
MaxGrace = Annotated[
    Annotated[float, Meta(ge=0, le=3600)],
    about("Longest grace period; after it, or after its own if shorter, a victim is killed."),
]


class EvictOptions(Options, frozen=True):
    enable: Annotated[bool, about("Off: it does not run, and nobody is evicted.")] = True
    cool_down_seconds: CoolDown = 20.0
    max_per_minute: Annotated[
        Annotated[int, Meta(ge=1, le=1000)],
        about("Most evictions in any minute."),
    ] = 30
    max_grace_seconds: MaxGrace = 30.0


class EvictionState(msgspec.Struct, frozen=True):
    """When this strategy evicted whom in the last minute, or since the cool-down began; None: an
    earlier run did. ``observed``: perhaps only said whom it would evict."""

    evicted: tuple[tuple[float, Victim | None], ...] = ()
    observed: bool = False


Found = tuple[Feature, Task | Why | None]
"""One feature: what it has to release; why it is left out; None: nothing to do."""
Everybody = Callable[[], tuple[Candidate, ...]]
"""Called only if something must be released, which is rare."""
Build = Callable[[Snapshot, ResourceThresholdStrategy, Everybody], Iterable[Found]]


def decide(
    owner: str, options: EvictOptions, build: Build, snapshot: Snapshot, memory: EvictionState
) -> tuple[Decision, Chosen]:
    """One round. ``build`` gives the features in their fixed order.

    Nobody is chosen while pods or their labels may still be missing: one that forbids its
    eviction looks like any other until its annotations are known.
    """
    memory = _recent(owner, options, snapshot, memory)
    slo = snapshot.slo.resource_used_threshold_with_be if snapshot.slo is not None else None
    if slo is None or not slo.enable:
        return _nothing(owner, memory)
    if not snapshot.sources_synced:
        text = "not all pods and their labels are known yet"
        return _nothing(owner, memory, Why(f"{owner}.not-synced", text))
    tasks, notes = [], []
    for _, each in build(snapshot, slo, cache(partial(candidates, snapshot))):
        if isinstance(each, Task):
            tasks.append(each)
        elif each is not None:
            notes.append(each)
    if not tasks:
        return _nothing(owner, memory, *notes)
    evicting = snapshot.evicting
    if evicting.is_starting:
        text = "more must be evicted, but koordlet has just started (evictions.start_grace_seconds)"
        return _nothing(owner, memory, *notes, Why(f"{owner}.just-started", text))
    done = (at for at, victim in memory.evicted if victim not in evicting.failed)
    last = max(done, default=-math.inf)
    if snapshot.now - last < options.cool_down_seconds:
        what = "observed eviction" if evicting.observing else "eviction"
        pause_s = options.cool_down_seconds
        text = f"more must be evicted, but the last {what} was less than {pause_s:g} s ago"
        return _nothing(owner, memory, *notes, Why(f"{owner}.cool-down", text))
    ended = max((each.ended for each in evicting.ended), default=-math.inf)
    if snapshot.now - ended < last_s(snapshot):
        # Rates and figures of pods still hold what it used; and it no longer counts as on its way.
        text = "more must be evicted, but what the last eviction freed has not been measured yet"
        return _nothing(owner, memory, *notes, Why(f"{owner}.settling", text))
    budget = options.max_per_minute - sum(snapshot.now - at < MINUTE_S for at, _ in memory.evicted)
    chosen = choose(
        tasks, terminating=evicting.terminating, failed=evicting.failed, budget=max(budget, 0)
    )
    notes += _left_over(owner, options, chosen)
    notes += (
        Why(f"{owner}.failed-before", f"{victim.kind} {victim.name} is left alone: {why}")
        for victim, why in evicting.failed.items()
    )
    evictions = tuple(_eviction(owner, options, choice) for choice in chosen.choices)
    begun = ((snapshot.now, each.victim) for each in evictions)
    after = EvictionState((*memory.evicted, *begun), memory.observed)
    return Decision(Plan(owner, evictions=evictions), after, tuple(notes)), chosen


def objection(snapshot: Snapshot, victim: Victim, feature: str) -> str | None:
    """Why an eviction that was begun for ``feature`` must not go on, by what is configured and what
    the victim says of itself now. Empty: it may; None: that cannot be told yet.

    Whether anything still has to be released does not count: once its processes were told to end,
    a half-stopped victim helps nobody.
    """
    slo = snapshot.slo.resource_used_threshold_with_be if snapshot.slo is not None else None
    if slo is None or not slo.enable:
        return "resourceUsedThresholdWithBE.enable is no longer true"
    try:
        name = Feature(feature)
    except ValueError:
        return f"this version has no feature {feature!r}"
    asked = asked_for(name, slo)
    if asked is None or isinstance(asked, str):
        return f"{feature} is switched off" if asked is None else f"{feature} does not act: {asked}"
    if victim.kind is VictimKind.APPLICATION:
        policy = snapshot.evicting.policies.get(victim.name, EvictPolicy.NEVER)
        if policy is not EvictPolicy.STOP:
            return f"application {victim.name} is configured with evict = {policy}"
    elif not is_known(snapshot, victim):
        return None
    found = candidate(snapshot, victim)
    highest = asked.priority if isinstance(asked, Watermark) else None
    if found is not None and not may_evict(name, highest, found):
        return f"{found.title} may no longer be evicted by {feature}"
    return ""


def is_known(snapshot: Snapshot, victim: Victim) -> bool:
    """Whether all that the pod says of itself has been told."""
    awaited = any(pod.awaits_labels for pod in snapshot.pods if pod.uid == victim.name)
    return snapshot.sources_synced and not awaited


def task(
    owner: str,
    feature: Feature,
    target: CountedBy,
    release: Release | str,
    rules: Watermark | None,
    everybody: Everybody,
    gain: Callable[[Candidate], Amounts],
) -> Found:
    if isinstance(release, str):
        return feature, Why(f"{owner}.missing-input", f"{feature}: {release}")
    if not release.amounts:
        return feature, None
    found = everybody()
    return feature, Task(
        feature,
        target,
        release.amounts,
        eligible(feature, rules, found),
        {each.victim: gain(each) for each in found},
        release.text,
        release.inputs,
    )


def refused(owner: str, feature: Feature, why: str) -> Found:
    return feature, Why(f"{owner}.bad-config", f"{feature} does not act: {why}")


def _recent(
    owner: str, options: EvictOptions, snapshot: Snapshot, memory: EvictionState
) -> EvictionState:
    """Also those that an earlier run of the daemon began, and none that was only observed once
    evictions are real. Unlike in the reference the start itself does not count as an eviction."""
    evicting = snapshot.evicting
    begun = [(each.owner, each.since) for each in evicting.terminating.values()]
    begun += [(each.owner, each.since) for each in evicting.ended]
    before = sorted((since, None) for who, since in begun if who == owner)
    own = () if memory.observed and not evicting.observing else memory.evicted
    oldest = snapshot.now - max(MINUTE_S, options.cool_down_seconds)
    known = tuple(each for each in own or before if each[0] > oldest)
    return EvictionState(known, evicting.observing)


def _eviction(owner: str, options: EvictOptions, choice: Choice) -> Eviction:
    candidate, why = choice.candidate, choice.task
    gains = tuple(choice.gains)
    said = ", ".join(f"{amount} {name}" for name, amount in gains)
    order = [
        Input("priority", candidate.priority),
        Input("eviction-priority", candidate.evict_priority),
        Input("sub-priority", candidate.sub_priority),
        Input("candidates", len(why.victims)),
    ]
    order += [Input(name, amount) for name, amount in gains]
    text = (
        f"trigger by koordlet feature {why.feature}: {why.text}; {candidate.title} releases {said}"
    )
    return Eviction(
        candidate.victim,
        why.feature,
        Why(f"{owner}.{why.feature}", text, (*why.inputs, *order)),
        gains,
        options.max_grace_seconds,
    )


def _left_over(owner: str, options: EvictOptions, chosen: Chosen) -> Iterator[Why]:
    if chosen.over_budget:
        text = (
            f"more must be evicted, but {options.max_per_minute} evictions a minute are the limit"
        )
        yield Why(f"{owner}.budget", text)
        return
    for each, left in chosen.lacking:
        said = ", ".join(f"{amount} of {name}" for name, amount in left.items())
        yield Why(
            f"{owner}.no-victim",
            f"{each.feature}: {each.text}; no candidate is left that would release {said}",
            each.inputs,
        )


def _nothing(owner: str, memory: EvictionState, *notes: Why) -> tuple[Decision, Chosen]:
    return Decision(Plan(owner), memory, notes), Chosen(())
