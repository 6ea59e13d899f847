"""Latency-sensitive work takes more CPU than the last plan left for it.

Pressure rises when a group waits. With kubelet's weights (2 shares for best-effort) a group that
needs more CPU gets it at once and hardly waits, and on a full node there are hundreds of groups to
look at. So this alarm looks at what all latency-sensitive work *uses*: the CPU counter of the
kubepods tree less that of its best-effort directory, and those of applications. That is two files
on most nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from koordlet.decision.cgroups import inside
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.parse import cpu_usage_ns
from koordlet.protocol.qos import QoSClass

MARGIN = 0.05
"""Share of the node's CPUs by which use must exceed what was allowed for."""
LEAST_MARGIN_CORES = 0.2
"""10 ms in a look of 50 ms: work that comes in short bursts uses that much for one look, not for
two in a row."""
LEAST_LOOK_S = 0.03
"""A rate over a shorter time is noise."""
LEAST_BASE_S = 0.25
"""What was used before is measured over at least this time."""
MOST_GROUPS = 16
"""Cgroups outside the tree that are looked at. What the others use is not noticed here; it is part
of what the next tick measures."""

_LATENCY_SENSITIVE = frozenset({QoSClass.LSE, QoSClass.LSR, QoSClass.LS})


class Expected(msgspec.Struct, frozen=True):
    """What the last plan rests on. ``ls_cores``: use of latency-sensitive work that it allowed
    for; ``cpus``: of the node; the cgroups are empty where there is no kubepods tree."""

    ls_cores: float
    cpus: int
    kubepods: str = ""
    besteffort: str = ""


class Signed(msgspec.Struct, frozen=True):
    """A CPU counter that is added to the use of latency-sensitive work (``ls`` 1), taken off it
    (-1, it is in one that is added) or neither, and the same for best-effort."""

    path: str
    ls: int
    be: int


class _Look(msgspec.Struct, frozen=True):
    """Counters at one instant; ``found``: which files could be read."""

    at_s: float
    ls_ns: int
    be_ns: int
    found: tuple[bool, ...]

    def since(self, before: _Look) -> tuple[float, float]:
        """Cores that LS and BE used from ``before`` to here."""
        elapsed_ns = (self.at_s - before.at_s) * 1e9
        return (self.ls_ns - before.ls_ns) / elapsed_ns, (self.be_ns - before.be_ns) / elapsed_ns


class UsageAlarm:
    """Compares each look with the one before, and the rate with that of the time before the last
    plan, by the same files: what is counted differently in plans cancels out.

    ``error``: why nothing can be looked at, else empty.
    """

    def __init__(self, files: Descriptors, cgroups: Cgroups, gap_s: float) -> None:
        self._files = files
        self._cgroups = cgroups
        self._gap_s = gap_s
        self._pods: tuple[Pod, ...] = ()
        self._applications: tuple[Application, ...] = ()
        self._expected: Expected | None = None
        self._groups: tuple[Signed, ...] = ()
        self._base: tuple[float, float] | None = None
        """Cores of LS and BE that ``Expected.ls_cores`` stands for; None: not measured yet."""
        self._base_look: _Look | None = None
        self._last: _Look | None = None
        self._was_over = False
        self._raised_s = float("-inf")
        self.error = ""

    @property
    def active(self) -> bool:
        return self._expected is not None

    @property
    def reason(self) -> str:
        expected = self._expected
        if expected is None:
            return ""
        margin = margin_cores(expected.cpus)
        return (
            f"use of latency-sensitive work, from {len(self._groups)} counters, above the "
            f"{expected.ls_cores:.2f} cores of the last plan by {margin:.2f} or more"
        )

    def follow(self, pods: Iterable[Pod], applications: Iterable[Application]) -> None:
        """The groups that are there now."""
        self._pods, self._applications = tuple(pods), tuple(applications)
        if self._expected is not None:
            self._choose(self._expected)

    def expect(self, expected: Expected | None, now_s: float) -> None:
        """A plan was made at ``now_s`` of the monotonic clock. None: nothing rests on what is
        used, and no file stays open."""
        before, self._expected = self._expected, expected
        if expected is None:
            self._restart(())
            return
        if before is None or (before.kubepods, before.besteffort) != (
            expected.kubepods,
            expected.besteffort,
        ):
            self._choose(expected)
        look = self._look(now_s)
        mark = self._base_look
        if look is None or mark is None or look.found != mark.found:
            self._base, self._base_look, self._last = None, look, look
        elif now_s - mark.at_s >= LEAST_BASE_S:
            self._base, self._base_look = look.since(mark), look

    def sounds(self, now_s: float) -> float | None:
        """One look: the cores that latency-sensitive work uses now, in the terms of
        ``Expected.ls_cores``, where that is an alarm."""
        expected, last = self._expected, self._last
        if expected is None or (last is not None and now_s - last.at_s < LEAST_LOOK_S):
            return None
        self._last = look = self._look(now_s)
        was_over, self._was_over = self._was_over, False
        if look is None or last is None or self._base is None or look.found != last.found:
            return None
        ls_cores, _ = look.since(last)
        base_ls, base_be = self._base
        margin = margin_cores(expected.cpus)
        if ls_cores - base_ls < margin or base_be < margin:
            return None  # as was allowed for, or best-effort has nothing to lose
        self._was_over = True
        if not was_over or now_s - self._raised_s < self._gap_s:
            return None
        self._raised_s = now_s
        self._base = ls_cores, base_be
        # The time up to here is accounted for: the next plan measures from here on.
        self._base_look = look
        return min(expected.ls_cores + ls_cores - base_ls, float(expected.cpus))

    def _choose(self, expected: Expected) -> None:
        groups = tuple(
            Signed(path, ls, be)
            for cgroup, ls, be in signs(expected, self._pods, self._applications)
            if (path := self._path(cgroup))
        )
        if groups != self._groups:
            self._restart(groups)

    def _restart(self, groups: tuple[Signed, ...]) -> None:
        kept = {group.path for group in groups}
        for group in self._groups:
            if group.path not in kept:
                self._files.forget(group.path)
        self._groups = groups
        self._base = self._base_look = self._last = None
        self._was_over = False
        self.error = ""

    def _path(self, cgroup: str) -> str:
        try:
            return self._cgroups.path(cgroup, Resource.CPUACCT_USAGE)
        except Unsupported:
            return ""

    def _look(self, now_s: float) -> _Look | None:
        """None where nothing can be read. A group that is gone, such as a tier that has no pods
        yet, counts as nothing."""
        ls_ns = be_ns = 0
        found = []
        for group in self._groups:
            try:
                usage_ns = cpu_usage_ns(self._files.read(group.path), group.path)
            except FileNotFoundError:
                found.append(False)
                continue
            except (OSError, ValueError) as error:
                self.error = str(error)
                return None
            found.append(True)
            ls_ns += group.ls * usage_ns
            be_ns += group.be * usage_ns
        if not any(found):
            self.error = "no CPU counter of latency-sensitive work can be read"
            return None
        self.error = ""
        return _Look(now_s, ls_ns, be_ns, tuple(found))


def margin_cores(cpus: int) -> float:
    return max(MARGIN * cpus, LEAST_MARGIN_CORES)


def signs(
    expected: Expected, pods: Iterable[Pod], applications: Iterable[Application]
) -> list[tuple[str, int, int]]:
    """Cgroup, sign for latency-sensitive work, sign for best-effort; each piece of work counts
    once. A group that holds what is counted already, or is inside what is of its own kind, is left
    out."""
    found: list[tuple[str, int, int]] = []
    if expected.kubepods:
        found += [(expected.kubepods, 1, 0), (expected.besteffort, -1, 1)]
    others = [
        (pod.cgroup, True)
        for pod in pods
        if pod.is_best_effort and not inside(pod.cgroup, expected.besteffort)
    ]
    others += [
        (app.cgroup, app.is_best_effort)
        for app in applications
        if app.present and app.cgroup and (app.is_best_effort or app.qos in _LATENCY_SENSITIVE)
    ]
    counted: list[tuple[str, bool]] = [(cgroup, ls < 0) for cgroup, ls, _ in found]
    for cgroup, best_effort in sorted(others, key=lambda other: (len(other[0]), other[0])):
        if len(counted) >= MOST_GROUPS or any(inside(each, cgroup) for each, _ in counted):
            continue
        around = [(len(each), kind) for each, kind in counted if inside(cgroup, each)]
        kind_around = max(around)[1] if around else None
        if kind_around == best_effort:
            continue
        if best_effort:
            found.append((cgroup, 0 if kind_around is None else -1, 1))
        else:
            found.append((cgroup, 1, 0 if kind_around is None else -1))
        counted.append((cgroup, best_effort))
    return found
