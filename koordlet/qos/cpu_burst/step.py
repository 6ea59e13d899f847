"""One decision about one cgroup: its burst budget, one step of its quota, and how long it may stay
above its limit (docs/reference/qos.md 3.5)."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from koordlet.decision.metrics import Aggregate, Metric, Reading
from koordlet.decision.plan import Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.why import Input, Why
from koordlet.qos.cpu_burst.group import Group
from koordlet.qos.cpu_burst.node import SharedPool
from koordlet.qos.cpu_burst.quota import (
    STEP_S,
    Base,
    Operation,
    RaisedQuota,
    ceiling_us,
    of_container,
    on_node,
    period_us,
    target_us,
)
from koordlet.qos.cpu_usage import read_usage, window_s

_STEPS = frozenset({Operation.UP, Operation.DOWN})
# A timer that comes a little early must not cost a step.
_STEP_GAP_S = 0.9 * STEP_S
# Resolution of the time of samples: the one that led to a step is older than the step by more.
_CLOCK_S = 0.001


class Result(msgspec.Struct, frozen=True):
    """What becomes of one cgroup. ``base_us``, ``target_us``: its quota without and with the
    burst. ``unread``: the kernel did not tell its quota, so everything stays."""

    cgroup: str
    base_us: int = 0
    target_us: int = 0
    burst_us: int = 0
    settings: tuple[Setting, ...] = ()
    held: RaisedQuota | None = None
    bucket: Bucket | None = None
    notes: tuple[Why, ...] = ()
    unread: bool = False


def step(
    snapshot: Snapshot,
    group: Group,
    base: Base,
    shared: Callable[[], SharedPool],
    held: RaisedQuota | None,
    bucket: Bucket | None,
) -> Result:
    """What ``group`` gets now. ``shared``: the shared CPUs, which are only looked at where it
    depends on them."""
    bucket = _account(snapshot, group, base, bucket)
    settings = []
    burst_us = min(wanted_burst_us(base.base_us, group.config.burst_percent), base.base_us)
    if burst_us > 0:
        settings.append(_burst(group, base, burst_us))
    if base.above:
        text = (
            f"{group.title}: another writer set a quota of {base.current_us} us, above its limit "
            f"of {base.base_us} us; it is not raised"
        )
        notes = (Why("cpu-burst.above", text),) if group.config.quota_percent is not None else ()
        same = base.base_us
        return Result(group.cgroup, same, same, burst_us, tuple(settings), None, bucket, notes)
    throttled = _reading(snapshot, group, group.series[0], held)
    if throttled is not None and throttled.value > 1:
        throttled = None
    asked = of_container(
        on=group.config.quota_percent is not None,
        allowed=bucket is None or allows(bucket),
        throttled_ratio=throttled.value if throttled is not None else None,
    )
    if asked is not Operation.UP and held is None and base.current_us <= base.base_us:
        base_us = base.base_us
        return Result(group.cgroup, base_us, base_us, burst_us, tuple(settings), None, bucket)
    pool = shared()
    operation = on_node(asked, pool.state)
    waits = held is not None and snapshot.now - held.stepped_at < _STEP_GAP_S
    if waits and operation in _STEPS:
        operation = Operation.REMAIN
    ceiling = ceiling_us(base.base_us, group.config.quota_percent)
    missing_us = _missing_us(snapshot, group, pool, held)
    target = target_us(operation, base.base_us, base.current_us, ceiling, missing_us)
    after = None
    if target > base.base_us:
        why = _why(group, base, target, ceiling, operation, pool, throttled, missing_us, bucket)
        settings.append(
            Setting(group.cgroup, Resource.CPU_QUOTA_US, target, why, raises=base.base_us)
        )
        stepped_at = snapshot.now if held is None or operation in _STEPS else held.stepped_at
        after = RaisedQuota(
            base.base_us,
            base.told_us,
            base.without_us,
            (base.current_us, target),
            stepped_at,
        )
    return Result(group.cgroup, base.base_us, target, burst_us, tuple(settings), after, bucket)


def wanted_burst_us(base_us: int, percent: int) -> int:
    """The budget that the configuration asks for (3.2). The kernel takes no more than the quota."""
    return base_us * percent // 100


def _burst(group: Group, base: Base, burst_us: int) -> Setting:
    config = group.config
    text = f"{group.title}: may save up {burst_us} us of quota for bursts"
    if burst_us < wanted_burst_us(base.base_us, config.burst_percent):
        text += f", its whole quota; the kernel does not accept {config.burst_percent} %"
    facts = (
        Input("cpuBurstPercent", config.burst_percent, "%"),
        Input("set by", config.origin),
        Input("quota without bursts", base.base_us, "us"),
    )
    why = Why("cpu-burst.burst", text, facts)
    return Setting(group.cgroup, Resource.CPU_BURST_US, burst_us, why)


def _account(snapshot: Snapshot, group: Group, base: Base, bucket: Bucket | None) -> Bucket | None:
    """None: no bucket, for ever is allowed. Without a sample the whole limit counts as used."""
    config = group.config
    if config.period_s < 0 or config.quota_percent is None:
        return None
    used = read_usage(snapshot, group.series[1], (group.name,))
    limit_cores = base.base_us / period_us(snapshot.in_force, group.cgroup)
    percent = 100 if used is None else int(used.value / limit_cores * 100)
    size = capacity(config.period_s, config.quota_percent)
    return account(bucket, size, percent, snapshot.now)


def _missing_us(
    snapshot: Snapshot, group: Group, pool: SharedPool, held: RaisedQuota | None
) -> int:
    """What a throttled period lacked at most, all that its CPUs stood still, as far as the shared
    CPUs have it to spare. 0: not known."""
    stood = _reading(snapshot, group, group.series[2], held)
    spare_us = pool.spare * period_us(snapshot.in_force, group.cgroup)
    return 0 if stood is None else int(min(stood.value, spare_us))


def _reading(
    snapshot: Snapshot, group: Group, metric: Metric, held: RaisedQuota | None
) -> Reading | None:
    """The last sample; after a step the worst one since then, because an alarm may have asked for
    one while the next step had to wait."""
    longest_s, aggregate = window_s(snapshot), Aggregate.LAST
    if held is not None:
        since_s = snapshot.now - held.stepped_at - _CLOCK_S
        longest_s, aggregate = min(longest_s, since_s), Aggregate.MAX
    if longest_s <= 0:
        return None
    reading = snapshot.metrics.read(metric, (group.name,), window_s=longest_s, aggregate=aggregate)
    return reading if reading is not None and reading.value >= 0 else None


def _why(
    group: Group,
    base: Base,
    target: int,
    ceiling: int,
    operation: Operation,
    pool: SharedPool,
    throttled: Reading | None,
    missing_us: int,
    bucket: Bucket | None,
) -> Why:
    if operation is Operation.UP:
        reason = "is throttled and the shared CPUs are idle, so its quota grows"
    elif operation is Operation.REMAIN:
        reason = "keeps its raised quota"
    elif bucket is not None and not allows(bucket):
        reason = "has used up its time above the limit, so its quota shrinks"
    else:
        reason = "must leave the shared CPUs to others, so its quota shrinks"
    text = f"{group.title} {reason}: {target} us, with a limit of {base.base_us} us"
    facts = [
        Input("quota without bursts", base.base_us, "us"),
        Input("quota before", base.current_us, "us"),
        Input("highest quota", ceiling, "us"),
        Input("set by", group.config.origin),
        Input("state of the shared CPUs", pool.state.value),
        *pool.inputs,
    ]
    if throttled is not None:
        facts.append(
            Input(
                group.series[0].kind, throttled.value, "ratio", throttled.window_s, throttled.age_s
            )
        )
    if missing_us > 0:
        facts.append(Input("missing in a throttled period, at most", missing_us, "us"))
    if bucket is not None:
        facts.append(Input("tokens", bucket.tokens, "percent x s"))
    return Why("cpu-burst.quota", text, tuple(facts))


FOR_EVER_S = -1
"""A period without end: there is no bucket."""
_FULL_PERCENT = 100
_REFILL_BELOW_PERCENT = 60


class Bucket(msgspec.Struct, frozen=True):
    """``tokens`` are between -``capacity`` and ``capacity``; ``at``: monotonic seconds of the last
    account."""

    tokens: float
    capacity: float
    at: float


def capacity(period_s: int, percent: int) -> float:
    """Tokens that ``percent`` of the limit takes in ``period_s``."""
    return float(period_s * max(percent - _FULL_PERCENT, 0))


def account(bucket: Bucket | None, size: float, usage_percent: int, now: float) -> Bucket:
    """The bucket after what was used since the last account. None, or one of another size, starts
    half full: neither a restart nor a new container earns or loses a burst."""
    if bucket is None or bucket.capacity != size:
        bucket = Bucket(size / 2, size, now)
    elapsed_s = max(now - bucket.at, 0.0)
    if usage_percent >= _FULL_PERCENT or usage_percent < _REFILL_BELOW_PERCENT:
        gained = (_FULL_PERCENT - usage_percent) * elapsed_s
    else:
        gained = 0.0
    return Bucket(min(max(bucket.tokens + gained, -size), size), size, now)


def allows(bucket: Bucket) -> bool:
    return bucket.tokens > 0
