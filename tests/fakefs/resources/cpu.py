"""The cpu controller: weight, idle, bandwidth (kernel/sched/core.c, sched-bwc.rst)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlet_fakefs.cgroup import Cgroup, Controller, Spec
from koordlet_fakefs.parse import S64_MAX, U64_MAX, number_in, refuse, s64, u64
from koordlet_fakefs.resources.account import usage_lines

DEFAULT_SHARES = 1024
IDLE_SHARES = 3
MIN_SHARES, MAX_SHARES = 2, 1 << 18
DEFAULT_PERIOD_US = 100_000
MIN_QUOTA_US = MIN_PERIOD_US = 1_000
MAX_PERIOD_US = 1_000_000
MAX_RUNTIME_US = (1 << 44) - 1
_NS_PER_US = 1_000


class CpuState:
    """Configuration and bandwidth state of one task group. ``quota_us`` None is no limit."""

    def __init__(self) -> None:
        self.shares = DEFAULT_SHARES
        self.idle = 0
        self.bvt_warp_ns = 0
        self.quota_us: int | None = None
        self.period_us = DEFAULT_PERIOD_US
        self.burst_us = 0
        self.tokens_ns = 0.0
        self.used_ns = 0.0
        self.pending_periods = 0
        self.wanted = False
        self.throttled = False
        self.nr_periods = 0
        self.nr_throttled = 0
        self.throttled_ns = 0.0
        self.nr_bursts = 0
        self.burst_time_ns = 0.0

    def refill(self, periods: int) -> None:
        """``periods`` period boundaries pass: count what was, hand out new quota.

        What is left over carries on up to the burst, as __refill_cfs_bandwidth_runtime has it.
        """
        if self.quota_us is None:
            return
        quota_ns = self.quota_us * _NS_PER_US
        if self.wanted:
            self.nr_periods += self.pending_periods
            if self.throttled:
                self.nr_throttled += self.pending_periods
            over = self.used_ns - quota_ns * self.pending_periods
            if self.burst_us and self.pending_periods and over > 0:
                self.nr_bursts += 1
                self.burst_time_ns += over
        self.tokens_ns = min(self.tokens_ns, self.burst_us * _NS_PER_US) + quota_ns * periods
        self.pending_periods = periods
        self.used_ns = 0.0
        self.wanted = self.throttled = False


def _attach(group: Cgroup) -> None:
    group.cpu = CpuState()


def _detach(group: Cgroup) -> None:
    group.cpu = None
    group.machine.generation += 1


def _cpu(group: Cgroup) -> CpuState:
    assert group.cpu is not None
    return group.cpu


def _reader(name: str) -> Callable[[Cgroup], str]:
    return lambda group: f"{getattr(_cpu(group), name)}\n"


def _not_root(group: Cgroup) -> None:
    if group.parent is None:
        raise refuse(errno.EINVAL)


def _set_shares(group: Cgroup, shares: int) -> None:
    _not_root(group)
    if _cpu(group).idle:
        raise refuse(errno.EINVAL)
    _cpu(group).shares = min(max(shares, MIN_SHARES), MAX_SHARES)
    group.machine.generation += 1


def _write_shares(group: Cgroup, text: str) -> None:
    _set_shares(group, u64(text))


def _read_weight(group: Cgroup) -> str:
    # Clamped since 6.12; before, an idle group showed 0.
    return f"{max(1, (_cpu(group).shares * 100 + 512) // 1024)}\n"


def _write_weight(group: Cgroup, text: str) -> None:
    weight = u64(text)
    if not 1 <= weight <= 10_000:
        raise refuse(errno.ERANGE)
    _set_shares(group, (weight * 1024 + 50) // 100)


def _write_idle(group: Cgroup, text: str) -> None:
    _not_root(group)
    idle = number_in(text, 0, 1, errno.EINVAL)
    cpu = _cpu(group)
    if idle != cpu.idle:
        cpu.idle = idle
        cpu.shares = IDLE_SHARES if idle else DEFAULT_SHARES
        group.machine.generation += 1


def _write_bvt(group: Cgroup, text: str) -> None:
    _not_root(group)
    _cpu(group).bvt_warp_ns = number_in(text, -1, 2, errno.EINVAL)
    group.machine.generation += 1


def _ratio(quota_us: int, period_us: int) -> int:
    return (quota_us << 20) // period_us


def _check_tree(group: Cgroup, changed: Cgroup, ratio: int | None, limit: int | None) -> None:
    """v1: no group may get more of its period than the nearest limit above it."""
    cpu = _cpu(group)
    own = None if cpu.quota_us is None else _ratio(cpu.quota_us, cpu.period_us)
    if group is changed:
        own = ratio
    if own is None:
        own = limit
    elif limit is not None and own > limit:
        raise refuse(errno.EINVAL)
    for child in group.children.values():
        _check_tree(child, changed, ratio, own)


def _set_bandwidth(group: Cgroup, quota_us: int | None, period_us: int, burst_us: int) -> None:
    _not_root(group)
    if not MIN_PERIOD_US <= period_us <= MAX_PERIOD_US:
        raise refuse(errno.EINVAL)
    if quota_us is not None and (
        not MIN_QUOTA_US <= quota_us <= MAX_RUNTIME_US
        or burst_us > quota_us
        or burst_us + quota_us > MAX_RUNTIME_US
    ):
        raise refuse(errno.EINVAL)
    if group.hierarchy.version == 1:
        ratio = None if quota_us is None else _ratio(quota_us, period_us)
        _check_tree(group.hierarchy.root, group, ratio, None)
    cpu = _cpu(group)
    cpu.quota_us, cpu.period_us, cpu.burst_us = quota_us, period_us, burst_us
    cpu.tokens_ns = 0.0
    cpu.pending_periods = 0
    cpu.refill(1)
    group.machine.generation += 1


def _read_quota(group: Cgroup) -> str:
    quota = _cpu(group).quota_us
    return f"{-1 if quota is None else quota}\n"


def _in_ns(value_us: int) -> int:
    """EINVAL for microseconds that overflow as nanoseconds."""
    if value_us > U64_MAX // _NS_PER_US:
        raise refuse(errno.EINVAL)
    return value_us


def _write_quota(group: Cgroup, text: str) -> None:
    quota = s64(text)
    cpu = _cpu(group)
    _set_bandwidth(group, None if quota < 0 else _in_ns(quota), cpu.period_us, cpu.burst_us)


def _write_period(group: Cgroup, text: str) -> None:
    cpu = _cpu(group)
    _set_bandwidth(group, cpu.quota_us, _in_ns(u64(text)), cpu.burst_us)


def _write_burst(group: Cgroup, text: str) -> None:
    cpu = _cpu(group)
    _set_bandwidth(group, cpu.quota_us, cpu.period_us, _in_ns(u64(text)))


def _read_max(group: Cgroup) -> str:
    cpu = _cpu(group)
    return f"{'max' if cpu.quota_us is None else cpu.quota_us} {cpu.period_us}\n"


def _write_max(group: Cgroup, text: str) -> None:
    """``QUOTA|max [PERIOD]``; without a period the present one stays."""
    words = text.split()
    cpu = _cpu(group)
    if not words or not (words[0] == "max" or words[0].isdecimal()):
        raise refuse(errno.EINVAL)
    quota = None if words[0] == "max" else min(int(words[0]), S64_MAX)
    period = cpu.period_us
    if len(words) > 1 and words[1].isdecimal():
        period = int(words[1])
    _set_bandwidth(group, quota, period, cpu.burst_us)


def _stat_v1(group: Cgroup) -> str:
    cpu = _cpu(group)
    return (
        f"nr_periods {cpu.nr_periods}\nnr_throttled {cpu.nr_throttled}\n"
        f"throttled_time {int(cpu.throttled_ns)}\n"
        f"nr_bursts {cpu.nr_bursts}\nburst_time {int(cpu.burst_time_ns)}\n"
    )


def stat_v2(group: Cgroup) -> str:
    """cpu.stat is there without the controller too, then with usage alone."""
    cpu = group.cpu
    if cpu is None or group.parent is None:
        return usage_lines(group)
    return usage_lines(group) + (
        f"nr_periods {cpu.nr_periods}\nnr_throttled {cpu.nr_throttled}\n"
        f"throttled_usec {int(cpu.throttled_ns) // _NS_PER_US}\n"
        f"nr_bursts {cpu.nr_bursts}\nburst_usec {int(cpu.burst_time_ns) // _NS_PER_US}\n"
    )


_BVT = Spec(
    "cpu.bvt_warp_ns", _reader("bvt_warp_ns"), _write_bvt, when=lambda options: options.anolis
)

CPU = Controller(
    name="cpu",
    attach=_attach,
    detach=_detach,
    threaded=True,
    v1=(
        Spec("cpu.shares", _reader("shares"), _write_shares),
        Spec("cpu.idle", _reader("idle"), _write_idle),
        Spec("cpu.cfs_quota_us", _read_quota, _write_quota),
        Spec("cpu.cfs_period_us", _reader("period_us"), _write_period),
        Spec("cpu.cfs_burst_us", _reader("burst_us"), _write_burst),
        Spec("cpu.stat", _stat_v1),
        _BVT,
    ),
    v2=(
        Spec("cpu.weight", _read_weight, _write_weight, on_root=False),
        Spec("cpu.idle", _reader("idle"), _write_idle, on_root=False),
        Spec("cpu.max", _read_max, _write_max, on_root=False),
        Spec("cpu.max.burst", _reader("burst_us"), _write_burst, on_root=False),
        _BVT._replace(on_root=False),
    ),
)
