"""How busy the shared CPUs are
(docs/reference/qos.md 3.3): a raised quota must not take them from others."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from koordlet.decision.metrics import NODE_CPU_USAGE, Aggregate
from koordlet.decision.snapshot import Application, Pod, Snapshot
from koordlet.decision.why import Input
from koordlet.protocol.qos import QoSClass
from koordlet.qos.cpu_usage import read_usage, total, usage_by_subject

COOLING_RATIO = 0.9
"""Share of the threshold from which on nothing is raised any more."""
_LONGEST_WINDOW_S = 10.0
_WINDOW_INTERVALS = 5
_OWN_CPUS = frozenset({QoSClass.LSE, QoSClass.LSR})


class NodeState(StrEnum):
    IDLE = "idle"
    COOLING = "cooling"
    OVERLOAD = "overload"
    UNKNOWN = "unknown"  # no sample of the node


class SharedPool(msgspec.Struct, frozen=True):
    """``total``, ``used``, and ``spare``, what may be used besides before the pool is busy: in
    cores, all 0 while the state is unknown."""

    state: NodeState = NodeState.UNKNOWN
    total: float = 0.0
    used: float = 0.0
    spare: float = 0.0
    inputs: tuple[Input, ...] = ()


def shared_pool(snapshot: Snapshot, threshold_percent: int) -> SharedPool:
    """CPUs without those of LSE and LSR work, and what runs there besides best effort.

    A pod without a label counts by what it is for the kernel: best effort when it asks for
    nothing. Best effort gives way by itself, so it does not make the pool busy.
    """
    window_s = min(_WINDOW_INTERVALS * snapshot.collect_interval_s, _LONGEST_WINDOW_S)
    node = read_usage(snapshot, NODE_CPU_USAGE, (), window_s, Aggregate.AVG)
    cpus = len(snapshot.node.topology.cpus)
    if node is None or cpus == 0:
        return SharedPool()
    work: list[Pod | Application] = [*snapshot.pods]
    work += [app for app in snapshot.applications if app.present]
    own = [each for each in work if _has_own_cpus(each)]
    outside = {each.cgroup for each in work if _has_own_cpus(each) or each.is_best_effort}
    subjects = usage_by_subject(snapshot, window_s, Aggregate.AVG)
    other = total(subject for subject in subjects if subject.cgroup in outside)
    reserved_milli = sum(_reserved_milli(each) for each in own)
    size, used = cpus - reserved_milli / 1000, max(node.value - other.cores, 0.0)
    threshold = threshold_percent / 100
    ratio = used / size if size > 0 else 1.0
    if ratio >= threshold:
        state = NodeState.OVERLOAD
    else:
        state = NodeState.COOLING if ratio >= COOLING_RATIO * threshold else NodeState.IDLE
    inputs = (
        Input("CPU used by the node", node.value, "cores", window_s, node.age_s),
        Input("of it by LSE, LSR and best effort", other.cores, "cores", window_s, other.age_s),
        Input("CPUs without those of LSE and LSR", size, "cores"),
        Input("sharePoolThresholdPercent", threshold_percent, "%"),
    )
    return SharedPool(state, size, used, max(threshold * size - used, 0.0), inputs)


def _has_own_cpus(work: Pod | Application) -> bool:
    if isinstance(work, Pod):
        return work.raw_qos in _OWN_CPUS or bool(work.own_cpus)
    return work.qos in _OWN_CPUS


def _reserved_milli(work: Pod | Application) -> int:
    """What it requests; the CPUs it was given if no source reports the request."""
    if not isinstance(work, Pod):
        return work.resources.request_cpu_milli or 0
    if not work.is_active:
        return 0
    asked_milli = work.resources.request_cpu_milli
    return 1000 * len(work.pinned_cpus or ()) if asked_milli is None else asked_milli
