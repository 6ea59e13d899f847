"""When a latency-sensitive group suffers: the pure part of the alarms."""

from __future__ import annotations

import msgspec

from koordlet.decision.snapshot import WakeKind


class AlarmOptions(msgspec.Struct, frozen=True):
    """What counts as an alarm and what looking for it may cost. ``psi``, ``throttled``,
    ``memory`` and ``usage`` switch the kinds on.

    ``stall_ratio``: share of time in which some task of the group waited for a CPU (the
    ``some`` line of cpu.pressure). ``window_s`` is the span the sampler judges, and
    ``psi_window_s`` that of a kernel trigger, which the kernel wants between 0.5 and 10 s.
    """

    psi: bool = True
    throttled: bool = True
    memory: bool = True
    usage: bool = True
    stall_ratio: float = 0.15
    window_s: float = 0.1
    sample_interval_s: float = 0.05
    psi_window_s: float = 0.5
    throttled_periods: int = 1
    min_gap_s: float = 0.5
    """At most one alarm of a kind and a source in this time."""
    max_reads: int = 24
    """Files one sampling turn reads; with more groups each is looked at less often."""
    max_cores: float = 0.005


class Sample(msgspec.Struct, frozen=True):
    """One look at a group. Counters as the kernel keeps them; None: not read."""

    at_s: float
    stall_us: int | None = None
    nr_throttled: int | None = None


class Finding(msgspec.Struct, frozen=True):
    """``share``: stalled share of the time for PSI, throttled periods for THROTTLED."""

    kind: WakeKind
    share: float


def detect(previous: Sample, current: Sample, options: AlarmOptions) -> tuple[Finding, ...]:
    """What happened between two looks that is worth an alarm.

    A counter that runs backwards belongs to a new cgroup of the same name: no finding.
    """
    elapsed_s = current.at_s - previous.at_s
    if elapsed_s <= 0:
        return ()
    found: list[Finding] = []
    if previous.stall_us is not None and current.stall_us is not None:
        share = (current.stall_us - previous.stall_us) / 1e6 / elapsed_s
        if share >= options.stall_ratio:
            found.append(Finding(WakeKind.PSI, share))
    if previous.nr_throttled is not None and current.nr_throttled is not None:
        periods = current.nr_throttled - previous.nr_throttled
        if periods >= options.throttled_periods:
            found.append(Finding(WakeKind.THROTTLED, periods))
    return tuple(found)


def fit_reads(reads: int, used_cores: float, options: AlarmOptions) -> int:
    """Files the next turns may read, so that the sampler stays under ``max_cores``."""
    if used_cores > options.max_cores:
        return max(reads // 2, 2)
    if used_cores < options.max_cores / 2:
        reads += max(reads // 4, 1)
    # A new configuration may allow fewer than were in use.
    return min(reads, options.max_reads)
