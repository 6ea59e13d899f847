"""CPU suppress: best-effort work gets what latency-sensitive work leaves
(docs/reference/qos.md 2)."""

from __future__ import annotations

import msgspec

from koordlet.decision import slo_keys
from koordlet.decision.family import Family, Kind
from koordlet.decision.names import shown
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.plan import Decision, Gauge, Plan
from koordlet.decision.resource import CFS_PERIOD_US, Resource
from koordlet.decision.snapshot import Snapshot, WakeKind
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.qos.cpu_suppress import cpuset as cpu_cpuset
from koordlet.qos.cpu_suppress import quota as cpu_quota
from koordlet.qos.cpu_suppress.allowance import Allowance, allowance, inputs, sentence
from koordlet.qos.cpu_suppress.below import Below
from koordlet.qos.cpu_suppress.cpuset import minimum_cpus
from koordlet.qos.cpu_suppress.limit import Limit, Rise
from koordlet.qos.cpu_suppress.pressure import Pressure, advance
from koordlet.qos.cpu_suppress.quota import Inner
from koordlet.qos.cpu_suppress.split import QuotaShare
from koordlet.qos.cpu_suppress.targets import BestEffortGroup, read_cpus, targets

NAME = "cpu-suppress"
QUOTA_POLICY = "cfsQuota"
CPUSET_POLICY = "cpuset"
_NOT_ASKED = {
    CPUSET_POLICY: "not set: CPU list, because it delays LS less than a quota here",
    QUOTA_POLICY: "not set: quota, because a BE cgroup has no CPU list",
}

# In the reference (docs/reference/metrics.md 7).
BE_CPU_CORES = Family(
    "be_suppress_cpu_cores",
    Kind.GAUGE,
    "CPU left to best-effort by suppression, cores, by mechanism (cpuset, cfsQuota)",
    ("type",),
    node=True,
)
LS_USED_CPU_CORES = Family(
    "be_suppress_ls_used_cpu_cores",
    Kind.GAUGE,
    "CPU used by what is not best-effort, as suppression saw it, cores",
    node=True,
)


class SuppressState(msgspec.Struct, frozen=True):
    """``at`` is the ``now`` of the last decision; ``level`` the limit then, in CPUs (cpuset) or
    us per 100 ms (cfsQuota), None when nothing was limited under ``policy``. ``cores``: what that
    came to. ``shares``, ``rise`` and ``inner`` belong to cfsQuota."""

    policy: str = ""
    at: float | None = None
    level: float | None = None
    cores: float | None = None
    pressure: Pressure = Pressure()
    shares: dict[str, QuotaShare] = {}
    rise: Rise | None = None
    below: Below = Below()
    inner: Inner | None = None


def decide(snapshot: Snapshot, memory: SuppressState, _: Options = DEFAULTS) -> Decision:
    """The complete plan of suppression.

    If an input is missing, everything stays as it is. If it is switched off, everything goes back
    to what was found first.
    """
    slo = snapshot.slo.resource_used_threshold_with_be if snapshot.slo is not None else None
    if slo is None or slo.enable is None:
        text = "no NodeSLO says whether BE is suppressed; BE limits stay as they are"
        return _keep(snapshot, memory, Why("cpu-suppress.no-slo", text))
    if not slo.enable:
        return Decision(Plan(NAME), SuppressState(at=snapshot.now))
    found, refused = targets(snapshot)
    notes = [Why("cpu-suppress.refused", text) for text in refused]
    policy: str = slo.cpu_suppress_policy or ""
    reason = policy
    if not policy:
        without_list = next((each for each in found if _has_quota_alone(snapshot, each)), None)
        policy = CPUSET_POLICY if without_list is None else QUOTA_POLICY
        reason = _NOT_ASKED[policy]
        if snapshot.means.quota:
            policy = QUOTA_POLICY
            reason = "not set: quota in long periods (cpu-means), which delays LS less here"
        if without_list is not None:
            notes.append(_by_quota(without_list))
    if policy == CPUSET_POLICY and not snapshot.sources_synced:
        text = "not all pods are known yet, so those with CPUs of their own may be missing"
        return _keep(snapshot, memory, Why("cpu-suppress.not-synced", text))
    terms = allowance(snapshot, slo)
    if isinstance(terms, Why):
        return _keep(snapshot, memory, terms)
    asked = Input("cpuSuppressPolicy", reason)
    period_us = cpu_quota.LONG_PERIOD_US if not slo.cpu_suppress_policy else None
    return _suppress(snapshot, memory, policy, terms, found, notes, asked, period_us)


def _has_quota_alone(snapshot: Snapshot, target: BestEffortGroup) -> bool:
    """No CPU list can be read, though a quota can: a unit of systemd without ``AllowedCPUs=``."""
    if read_cpus(snapshot.in_force, target.cgroup):
        return False
    return snapshot.in_force.value(target.cgroup, Resource.CPU_QUOTA_US) is not None


def _by_quota(target: BestEffortGroup) -> Why:
    text = (
        f"{target.name}: cgroup {shown(target.cgroup)} has no CPU list, so best-effort work gets a "
        "quota (on v2 AllowedCPUs= of a unit in the same slice, or cpuset in the parent's "
        "cgroup.subtree_control, gives it a list)"
    )
    return Why("cpu-suppress.by-quota", text)


def _suppress(
    snapshot: Snapshot,
    memory: SuppressState,
    policy: str,
    terms: Allowance,
    found: tuple[BestEffortGroup, ...],
    notes: list[Why],
    asked: Input,
    period_us: int | None,
) -> Decision:
    if memory.policy != policy:
        memory = SuppressState(policy, memory.at, pressure=memory.pressure)
    elapsed_s = _elapsed_s(snapshot, memory)
    pressure, alarm = advance(
        memory.pressure, snapshot, terms, found, _minimum_milli(snapshot, policy, terms), elapsed_s
    )
    if alarm is not None:
        notes.append(alarm)
    pressure_milli = pressure.milli(terms)
    limit = Limit(
        milli=terms.less(pressure_milli),
        level=memory.level,
        growth_s=0.0 if pressure.holds(snapshot.now) else elapsed_s,
        elapsed_s=elapsed_s,
        text=sentence(terms, pressure_milli),
        inputs=(*inputs(terms, pressure_milli), asked),
        promised_milli=terms.floor_milli or 0,
        now=snapshot.now,
        rise=memory.rise,
    )
    shares, below, inner = memory.shares, memory.below, memory.inner
    if policy == QUOTA_POLICY:
        applied, shares, inner = cpu_quota.apply(snapshot, found, limit, shares, inner, period_us)
    else:
        applied, below = cpu_cpuset.apply(snapshot, found, limit, below)
    if not found:
        text = "no best-effort cgroup on this node: nothing to suppress"
        notes.append(Why("cpu-suppress.no-target", text))
    unjudged = bool(found) and applied.level is None
    limited = applied.cores if applied.settings else None
    plan = Plan(
        NAME,
        settings=applied.settings,
        keep=applied.keep,
        keep_all=unjudged,
    )
    cores = memory.cores if unjudged else limited
    after = SuppressState(
        policy, snapshot.now, applied.level, cores, pressure, shares, applied.rise, below, inner
    )
    allowed_for = terms.ls_cores if applied.settings else None
    used = Gauge(LS_USED_CPU_CORES, terms.pods_ls.cores)
    return Decision(
        plan,
        after,
        (*notes, *applied.notes),
        (used, *_limit_gauge(after)),
        ls_cores=allowed_for,
    )


def _elapsed_s(snapshot: Snapshot, memory: SuppressState) -> float:
    """Time since the last decision. The first one counts as one interval."""
    if memory.at is None:
        return snapshot.collect_interval_s
    return max(snapshot.now - memory.at, 0.0)


def _minimum_milli(snapshot: Snapshot, policy: str, terms: Allowance) -> int:
    """The policy's own minimum."""
    quota_milli = cpu_quota.LEAST_US * 1000 // CFS_PERIOD_US
    least = quota_milli if policy == QUOTA_POLICY else minimum_cpus(snapshot.node) * 1000
    return max(least, terms.floor_milli or 0)


def _keep(snapshot: Snapshot, memory: SuppressState, why: Why) -> Decision:
    """Keep everything: no decision is possible. Such time earns no growth."""
    after = msgspec.structs.replace(memory, at=snapshot.now)
    return Decision(Plan(NAME, keep_all=True), after, (why,), _limit_gauge(after))


def _limit_gauge(memory: SuppressState) -> tuple[Gauge, ...]:
    """Exists as long as the limit, also while no decision is possible."""
    if memory.cores is None:
        return ()
    return (Gauge(BE_CPU_CORES, memory.cores, (memory.policy,)),)


def _lasting(memory: SuppressState) -> SuppressState:
    return msgspec.structs.replace(memory, inner=None)


STRATEGY = Strategy(
    name=NAME,
    help="Limit best-effort CPU to what latency-sensitive work leaves.",
    function=decide,
    initial=SuppressState(),
    lasting=_lasting,
    options=DEFAULTS,
    families=(BE_CPU_CORES, LS_USED_CPU_CORES),
    writes=(Resource.CPU_QUOTA_US, Resource.CPU_PERIOD_US, Resource.CPUSET_CPUS),
    needs=(Resource.CPU_QUOTA_US, Resource.CPUSET_CPUS),
    switches=(slo_keys.BEST_EFFORT_LIMITED,),
    arguments=slo_keys.below(slo_keys.THRESHOLDS, "enable", "cpuSuppress*"),
    wakes_on=frozenset({WakeKind.PSI, WakeKind.THROTTLED, WakeKind.USAGE, WakeKind.CHANGE}),
)
