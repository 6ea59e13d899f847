"""CPU burst: work that is throttled while the machine has CPU to spare gets more
(docs/reference/qos.md 3).

Two mechanisms. The kernel's burst budget lets a cgroup save up quota that it did not use. A quota
that still throttles is raised by what was missing, while the shared CPUs are not busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.family import Family, Kind, Labels
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.part import Switch
from koordlet.decision.plan import Decision, Gauge, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import ALARMS, Pod, Snapshot, WakeKind
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol.slo import CPUBurstStrategy
from koordlet.qos.cpu_burst.group import (
    NOT_FOR,
    BurstLimits,
    Group,
    of_application,
    of_container,
    of_node,
    of_pod,
)
from koordlet.qos.cpu_burst.node import SharedPool, shared_pool
from koordlet.qos.cpu_burst.quota import NAME, RaisedQuota, find_base, told_us
from koordlet.qos.cpu_burst.step import Bucket, Result, step

_QUOTA, _BURST = Resource.CPU_QUOTA_US, Resource.CPU_BURST_US

# In the reference (docs/reference/metrics.md 7).
_SCALED = ("pod_namespace", "pod_name", "container_id", "container_name")
SCALED_CFS_BURST = Family(
    "container_scaled_cfs_burst_us",
    Kind.GAUGE,
    "Burst budget that a container has from CPU burst, us",
    _SCALED,
    node=True,
)
SCALED_CFS_QUOTA = Family(
    "container_scaled_cfs_quota_us",
    Kind.GAUGE,
    "Raised quota that a container has from CPU burst, us",
    _SCALED,
    node=True,
)

_DEFAULT_THRESHOLD_PERCENT = 50


class BurstState(msgspec.Struct, frozen=True):
    """``held``: by cgroup, those with a raised quota. ``buckets``: by cgroup."""

    started: bool = False
    held: dict[str, RaisedQuota] = {}
    buckets: dict[str, Bucket] = {}


def decide(snapshot: Snapshot, memory: BurstState, _: Options = DEFAULTS) -> Decision:
    """The complete plan of bursts. It lists only what is raised, so that the actuator puts the rest
    back."""
    strategy = snapshot.slo.cpu_burst_strategy if snapshot.slo is not None else None
    if strategy is None or strategy.policy is None:
        return _keep(memory, "cpu-burst.no-slo", "no NodeSLO says whether pods may burst")
    if not snapshot.sources_synced:
        text = "not all pods are known yet"
        return _keep(memory, "cpu-burst.not-synced", text)
    lonely, pods = _members(snapshot, strategy)
    everyone = [*lonely, *(group for _, groups in pods for group in groups)]
    threshold = strategy.share_pool_threshold_percent
    if threshold is None:
        threshold = _DEFAULT_THRESHOLD_PERCENT
    pool = cache(partial(shared_pool, snapshot, threshold))
    results = [_step(snapshot, group, pool, memory) for group in lonely]
    for pod, groups in pods:
        found = [_step(snapshot, group, pool, memory) for group in groups]
        results += [*found, _of_pod(snapshot, pod, found, memory)]
    settings = tuple(setting for result in results for setting in result.settings)
    notes = [note for result in results for note in result.notes]
    capability = snapshot.node.capabilities.get(_BURST)
    if capability is not None and not capability.supported:
        if any(setting.resource is _BURST for setting in settings):
            notes.append(Why("cpu-burst.no-burst", f"no burst budgets: {capability.why}"))
        settings = tuple(setting for setting in settings if setting.resource is not _BURST)
    after = BurstState(
        started=True,
        held={r.cgroup: r.held for r in results if r.held is not None},
        buckets={r.cgroup: r.bucket for r in results if r.bucket is not None},
    )
    keep = tuple((r.cgroup, resource) for r in results if r.unread for resource in (_QUOTA, _BURST))
    labels = {group.cgroup: group.labels for group in everyone if group.labels}
    return Decision(Plan(NAME, settings, keep), after, tuple(notes), _gauges(settings, labels))


def _members(
    snapshot: Snapshot, strategy: CPUBurstStrategy
) -> tuple[list[Group], list[tuple[Pod, list[Group]]]]:
    """Applications, and the containers of each pod, that may burst."""
    node = of_node(strategy)
    apps = [
        of_application(app, node, snapshot.in_force)
        for app in snapshot.applications
        if app.present and app.cgroup and app.qos not in NOT_FOR and not node.is_off
    ]
    pods = []
    for pod in snapshot.pods:
        config = of_pod(pod, strategy, node)
        if config is not None and not config.is_off:
            pods.append((pod, list(_containers(snapshot, pod, config))))
    return apps, pods


def _containers(snapshot: Snapshot, pod: Pod, config: BurstLimits) -> Iterator[Group]:
    """Without those that have no quota, most of a node: nothing of them is worked out."""
    for container in pod.containers:
        if container.is_sandbox is not True:
            quota_us = snapshot.in_force.value(container.cgroup, _QUOTA)
            if not isinstance(quota_us, int) or quota_us > 0:
                yield of_container(pod, container, config, snapshot.in_force)


def _step(
    snapshot: Snapshot, group: Group, pool: Callable[[], SharedPool], memory: BurstState
) -> Result:
    held = memory.held.get(group.cgroup)
    base = find_base(snapshot.in_force, group.cgroup, group.told_us, held, first=not memory.started)
    if base is None:
        unread = snapshot.in_force.value(group.cgroup, _QUOTA) is None
        return Result(group.cgroup, held=held if unread else None, unread=unread)
    return step(snapshot, group, base, pool, held, memory.buckets.get(group.cgroup))


def _of_pod(snapshot: Snapshot, pod: Pod, parts: list[Result], memory: BurstState) -> Result:
    """The pod's values: its quota grows by as much as those of its containers."""
    held = memory.held.get(pod.cgroup)
    if held is None and not any(part.unread or part.base_us for part in parts):
        return Result(pod.cgroup)  # none of its containers has a quota
    base = find_base(snapshot.in_force, pod.cgroup, None, held, first=not memory.started)
    if base is None:
        unread = snapshot.in_force.value(pod.cgroup, _QUOTA) is None
        return Result(pod.cgroup, held=held if unread else None, unread=unread)
    if any(part.unread for part in parts):
        return Result(pod.cgroup, held=held, unread=True)
    settings = []
    raised_us = sum(part.target_us - part.base_us for part in parts)
    if raised_us > 0:
        target_us = max(base.base_us + raised_us, *(part.target_us for part in parts))
        text = f"{pod.title}: the quotas of its containers exceed their limits by {raised_us} us"
        facts = (Input("quota without bursts", base.base_us, "us"),)
        why = Why("cpu-burst.pod-quota", text, facts)
        settings.append(Setting(pod.cgroup, _QUOTA, target_us, why, raises=base.base_us))
        held = RaisedQuota(
            base.base_us, None, base.without_us, (base.current_us, target_us), snapshot.now
        )
    else:
        held = None
    # A smaller limit is in the pod's spec before kubelet writes it, which a budget would prevent.
    told = told_us(snapshot.in_force, pod.cgroup, {}, pod.resources.limit_cpu_milli)
    quota_us = base.base_us if told is None else min(base.base_us, told)
    burst_us = min(sum(part.burst_us for part in parts), quota_us)
    if burst_us > 0:
        text = f"{pod.title}: the sum of its containers' budgets, at most its quota"
        facts = (Input("quota without bursts", base.base_us, "us"),)
        why = Why("cpu-burst.pod-burst", text, facts)
        settings.append(Setting(pod.cgroup, _BURST, burst_us, why))
    return Result(pod.cgroup, held=held, settings=tuple(settings))


def _gauges(settings: tuple[Setting, ...], labels: dict[str, Labels]) -> tuple[Gauge, ...]:
    families = {_BURST: SCALED_CFS_BURST, _QUOTA: SCALED_CFS_QUOTA}
    return tuple(
        Gauge(families[setting.resource], float(setting.value), labels[setting.cgroup])
        for setting in settings
        if setting.cgroup in labels
    )


def _keep(memory: BurstState, rule: str, text: str) -> Decision:
    """Keep everything: no decision is possible."""
    why = Why(rule, f"{text}; burst budgets and quotas stay as they are")
    return Decision(Plan(NAME, keep_all=True), memory, (why,))


STRATEGY = Strategy(
    name=NAME,
    help="Let throttled work have more than its CPU limit for a while.",
    function=decide,
    initial=BurstState(),
    options=DEFAULTS,
    families=(SCALED_CFS_BURST, SCALED_CFS_QUOTA),
    writes=(_BURST, _QUOTA),
    needs=(_BURST, _QUOTA),
    switches=((Switch(f"{slo_keys.CPU_BURST}.policy", example='"auto"'),),),
    arguments=slo_keys.below(slo_keys.CPU_BURST, "*"),
    # Each makes the actuator look at quotas: what somebody else has set there is the new base, and
    # must be known before it is written over.
    wakes_on=ALARMS | {WakeKind.CHANGE},
)
