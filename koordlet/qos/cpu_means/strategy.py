"""Strategy ``cpu-means``: what holding best effort back does to latency-sensitive work is measured
on the node itself, and the means that costs it least is kept (``docs/concepts/cpu-means.md``).

It sets nothing itself: CPU QoS, CPU spread and CPU suppress obey ``Snapshot.means`` where the
settings leave them a choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.options import Options, about
from koordlet.decision.plan import Decision, Plan
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Means, Snapshot, default_means
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.qos.cpu_means.look import Look, look
from koordlet.qos.cpu_means.trial import Kept, Trial, begin, choose, step

NAME = "cpu-means"
MATRIX = "bpf-run-queue"
"""The capability that waits are measured, and behind whom."""
LEAST_BE_SHARE, LEAST_LS_SHARE = 0.2, 0.03
"""Parts of the node's CPUs that best-effort and latency-sensitive work must use for a trial to say
anything."""
STEADY_S = 30.0
"""Seconds for which both must have."""
AGAIN_S = 600.0
"""A trial that was given up is not begun anew sooner, nor one after another load."""
OTHER_LOAD = 2.0
"""Latency-sensitive work that uses so many times more, or less, is another load."""
_USUAL_WAITS_S = 12.0


class CpuMeansOptions(Options, frozen=True):
    """The switch of trials; without them the default counts."""

    enable: Annotated[bool, about("Off: nothing is tried, and the default means are used.")] = True


class MeansState(msgspec.Struct, frozen=True):
    """``busy_since``: from when on both kinds of work were busy; ``not_before``: no trial sooner
    (both as ``Snapshot.now``). ``count``: trials so far."""

    trial: Trial | None = None
    kept: Kept | None = None
    busy_since: float | None = None
    not_before: float = 0.0
    count: int = 0

    @property
    def means(self) -> Means | None:
        """Return those in force now; None: the default."""
        if self.trial is not None:
            return self.trial.means
        return self.kept.means if self.kept is not None else None


def decide(snapshot: Snapshot, memory: MeansState, _: Options) -> Decision:
    """An empty plan; the means in force are in the memory."""
    candidates = possible(snapshot)
    if memory.trial is not None:
        return _go_on(snapshot, memory, memory.trial, candidates)
    seen = look(snapshot, _USUAL_WAITS_S)
    after = _with_busy(snapshot, memory, seen)
    if len(candidates) < 2:
        text = "the settings leave no choice of means"
        without = msgspec.structs.replace(after, kept=None)
        return _rest(without, Why("cpu-means.no-choice", text))
    if seen is None and after.kept is None:
        text = (
            f"{title(candidates[0], candidates)}, the default: no waits of latency-sensitive work "
            "were measured, so nothing is tried (`koordlet doctor` says what the kernel lacks)"
        )
        return _rest(after, Why("cpu-means.not-measured", text))
    if seen is None or not _is_due(snapshot, after, seen, candidates):
        if after.kept is not None:
            return _rest(after, _why(after.kept))
        return _waiting(snapshot, after, candidates, seen)
    trial = begin(candidates, snapshot.now, after.count + 1)
    begun = msgspec.structs.replace(after, trial=trial, count=after.count + 1)
    return _trying(begun, trial)


def possible(snapshot: Snapshot) -> tuple[Means, ...]:
    """The means among which there is a choice, the default first."""
    slo = snapshot.slo
    strategy = slo.resource_qos_strategy if slo is not None else None
    be = strategy.be_class.cpu_qos if strategy is not None and strategy.be_class else None
    policy = strategy.policies.cpu_policy if strategy is not None and strategy.policies else None
    yields = be is not None and bool(be.enable)
    weighs = (
        yields
        and policy in (None, "groupIdentity")
        and not snapshot.node.has(Resource.CPU_BVT_WARP_NS)
        and snapshot.node.has(Resource.CPU_IDLE)
        and any(app.is_best_effort and app.present for app in snapshot.applications)
    )
    suppress = slo.resource_used_threshold_with_be if slo is not None else None
    limits = suppress is not None and bool(suppress.enable) and not suppress.cpu_suppress_policy
    default = default_means(snapshot.node)
    found = [
        Means(weight=weight, spread=spread, quota=quota)
        for quota in ((default.quota, not default.quota) if limits else (False,))
        for spread in ((default.spread, not default.spread) if yields else (False,))
        for weight in ((False, True) if weighs else (False,))
    ]
    return tuple(found)


def title(means: Means, candidates: Sequence[Means]) -> str:
    """Return the parts of ``means`` in which the candidates differ, as people read them."""
    parts = (
        ("weight", "smallest weight" if means.weight else "cpu.idle"),
        ("spread", "threads kept on CPUs" if means.spread else "threads free"),
        ("quota", "quota" if means.quota else "CPU list"),
    )
    return ", ".join(
        text for name, text in parts if len({getattr(each, name) for each in candidates}) > 1
    )


def _with_busy(snapshot: Snapshot, memory: MeansState, seen: Look | None) -> MeansState:
    if seen is None:
        return memory
    least_be, least_ls = _least(snapshot)
    busy = seen.be_cores >= least_be and seen.ls_cores >= least_ls
    since = memory.busy_since if memory.busy_since is not None else snapshot.now
    return msgspec.structs.replace(memory, busy_since=since if busy else None)


def _least(snapshot: Snapshot) -> tuple[float, float]:
    """Cores that best-effort and latency-sensitive work must use."""
    cpus = len(snapshot.node.topology.cpus)
    return LEAST_BE_SHARE * cpus, LEAST_LS_SHARE * cpus


def _is_due(
    snapshot: Snapshot, memory: MeansState, seen: Look, candidates: Sequence[Means]
) -> bool:
    if memory.busy_since is None or snapshot.now - memory.busy_since < STEADY_S:
        return False
    if snapshot.now < memory.not_before:
        return False
    kept = memory.kept
    if kept is None or kept.candidates != tuple(candidates):
        return True
    times = max(seen.ls_cores, 0.01) / max(kept.ls_cores, 0.01)
    return not 1 / OTHER_LOAD <= times <= OTHER_LOAD


def _go_on(
    snapshot: Snapshot, memory: MeansState, trial: Trial, candidates: tuple[Means, ...]
) -> Decision:
    next_ = step(trial, look(snapshot), snapshot.now)
    obstacle = ""
    if snapshot.means != trial.means:
        obstacle = "cpu-means is paused, or only observes"
    elif candidates != trial.candidates:
        obstacle = "the settings have changed"
    elif next_ is None:
        obstacle = "no waits were measured any more"
    if obstacle or next_ is None:
        given_up = msgspec.structs.replace(
            memory, trial=None, busy_since=None, not_before=snapshot.now + AGAIN_S
        )
        return _rest(given_up, Why("cpu-means.given-up", f"the trial was given up: {obstacle}"))
    if not next_.is_over:
        return _trying(msgspec.structs.replace(memory, trial=next_), next_)
    kept = choose(next_, snapshot.now)
    after = msgspec.structs.replace(
        memory, trial=None, kept=kept, not_before=snapshot.now + AGAIN_S
    )
    return _rest(after, _why(kept))


def _trying(memory: MeansState, trial: Trial) -> Decision:
    text = (
        f"{len(trial.candidates)} means are tried in turn, {trial.most_left_s:.0f} s left at most; "
        f"now: {title(trial.means, trial.candidates)}"
    )
    return Decision(Plan(NAME), memory, summary=text)


def _rest(memory: MeansState, why: Why) -> Decision:
    return Decision(Plan(NAME), memory, (why,), summary=why.text)


def _waiting(
    snapshot: Snapshot, memory: MeansState, candidates: Sequence[Means], seen: Look | None
) -> Decision:
    least_be, least_ls = _least(snapshot)
    text = (
        f"not measured yet: {title(candidates[0], candidates)}, the default; a trial begins when "
        f"best effort uses {least_be:.2f} cores and latency-sensitive work {least_ls:.2f} for "
        f"{STEADY_S:.0f} s"
    )
    now = f" (now {seen.be_cores:.2f} and {seen.ls_cores:.2f})" if seen is not None else ""
    return Decision(Plan(NAME), memory, (Why("cpu-means.default", text),), summary=text + now)


def _why(kept: Kept) -> Why:
    name = title(kept.means, kept.candidates)
    rows = tuple(
        Input(title(means, kept.candidates), _figures(each))
        for means, each in zip(kept.candidates, kept.figures, strict=True)
    )
    if kept.ratio is None:
        text = f"{name}: no other means is surely better for latency-sensitive work"
        return Why("cpu-means.default-kept", text, rows)
    low, high = kept.ratio.low or 0.0, kept.ratio.high or 0.0
    text = (
        f"{name}: latency-sensitive work waits {kept.ratio.value:.2f} times as long "
        f"[{low:.2f}, {high:.2f}] for what best effort gets as with "
        f"{title(kept.candidates[0], kept.candidates)}: "
        f"{_figures(kept.figures[kept.candidates.index(kept.means)])}"
    )
    return Why("cpu-means.measured", text, rows)


def _figures(each: Look) -> str:
    return (
        f"waits {each.waited_ms:.0f} ms/s (own {each.own_ms:.0f}, BE {each.be_ms:.0f}, others "
        f"{each.others_ms:.0f}), BE {each.be_cores:.2f} cores"
    )


STRATEGY = Strategy(
    name=NAME,
    help="Measure what holding best effort back does to services; keep what harms least.",
    function=decide,
    initial=MeansState(),
    options=CpuMeansOptions(),
    uses=(MATRIX,),
    switches=(slo_keys.of_classes("cpuQOS", "beClass"), slo_keys.BEST_EFFORT_LIMITED),
)
