"""What the demo measures, as data: the table, the report and ``-o json`` all come from these."""

from __future__ import annotations

import msgspec

from koordlet.decision.why import Why
from koordlet.protocol.intervals import Verdict


class ArmSpec(msgspec.Struct, frozen=True):
    """``idle``, ``quota`` and ``cpus``: what the demo itself sets on BE, so that what the daemon
    does can be taken apart: ``cpu.idle``, a CPU quota and a CPU list, as parts of the machine."""

    name: str
    title: str
    best_effort: bool
    managed: bool
    idle: bool = False
    quota: float | None = None
    cpus: float | None = None


ARMS: dict[str, ArmSpec] = {
    arm.name: arm
    for arm in (
        ArmSpec("alone", "LS alone", best_effort=False, managed=False),
        ArmSpec("unmanaged", "LS + BE, unmanaged", best_effort=True, managed=False),
        ArmSpec("managed", "LS + BE, koordlet", best_effort=True, managed=True),
        ArmSpec("daemon-only", "LS, koordlet, no BE", best_effort=False, managed=True),
        ArmSpec("idle-only", "BE at cpu.idle", best_effort=True, managed=False, idle=True),
        ArmSpec(
            "idle+quota",
            "BE at cpu.idle and quota",
            best_effort=True,
            managed=False,
            idle=True,
            quota=0.6,
        ),
        ArmSpec(
            "idle+cpuset",
            "BE at cpu.idle on half the CPUs",
            best_effort=True,
            managed=False,
            idle=True,
            cpus=0.5,
        ),
    )
}


USUAL = ("alone", "unmanaged", "managed")
"""The arms of the demonstration; the others take it apart."""


class Sample(msgspec.Struct, frozen=True):
    """CPU used by each class since the previous sample, in cores; ``t`` in s of the arm's slices,
    one after the other."""

    t: float
    ls: float
    be: float
    node: float


class Moment(msgspec.Struct, frozen=True):
    """One decision of the daemon, or an alarm that asked for one (``resource`` is then empty).

    ``t`` in s of the arm's slices, one after the other: negative before the first of them.
    """

    t: float
    owner: str
    cgroup: str
    resource: str
    previous: str
    wanted: str
    result: str
    why: Why


class Request(msgspec.Struct, frozen=True, array_like=True):
    """``t`` intended send time (s of the slice, or of the arm's slices one after the other),
    ``latency_ms`` counted from there."""

    t: float
    latency_ms: float


class Behind(msgspec.Struct, frozen=True):
    """Milliseconds that the service's tasks waited, by who ran meanwhile: other tasks of the
    service, best-effort work, everybody else."""

    own_ms: float
    be_ms: float
    others_ms: float

    def since(self, before: Behind) -> Behind:
        return Behind(
            self.own_ms - before.own_ms,
            self.be_ms - before.be_ms,
            self.others_ms - before.others_ms,
        )


class Waits(msgspec.Struct, frozen=True):
    """Counters. ``waited_ms``: of the tasks that run now, by ``schedstat``. ``behind``: None where
    the kernel does not take our programs."""

    waited_ms: float
    behind: Behind | None = None

    def since(self, before: Waits) -> Waits:
        """A task that ended meanwhile took its waits along; there are never less than none."""
        behind = None
        if self.behind is not None and before.behind is not None:
            behind = self.behind.since(before.behind)
        return Waits(max(0.0, self.waited_ms - before.waited_ms), behind)


class Slice(msgspec.Struct, frozen=True):
    """One arm for some seconds, without the dropped beginning.

    ``number``: in the order in which they ran, from 0; a round has every arm once, with the same
    arrivals. CPU in cores, ``*_ratio`` 0 to 1. ``other_cores`` is the rest of the node,
    koordlet included. ``waits``: of the service's tasks meanwhile, None in a simulation.
    ``be_blocks`` (64 KiB hashed each) and ``be_moved_mib`` are None where no work was really done.
    """

    arm: str
    number: int
    seconds: float
    requests: tuple[Request, ...]
    timeline: tuple[Sample, ...]
    node_cores: float
    ls_cores: float
    client_cores: float
    be_cores: float
    other_cores: float
    ls_throttled_ratio: float
    be_throttled_ratio: float
    waits: Waits | None
    be_blocks: int | None
    be_moved_mib: int | None


class ArmResult(msgspec.Struct, frozen=True):
    """All slices of one arm together, one after the other. CPU in cores averaged over them;
    ``*_ratio`` are 0 to 1. ``waited_ms_per_s`` and the parts of it, behind whom: of all tasks of
    the service, None where it is not known.

    ``be_share_of_left_ratio`` is BE's CPU / (capacity - LS - its client), None without BE.
    """

    arm: str
    seconds: float
    requests: int
    p50_ms: float
    p99_ms: float
    p999_ms: float
    ls_throttled_ratio: float
    be_throttled_ratio: float
    node_utilisation_ratio: float
    ls_cores: float
    client_cores: float
    be_cores: float
    other_cores: float
    capacity_cores: float
    be_share_of_left_ratio: float | None
    waited_ms_per_s: float | None
    behind_own_ms_per_s: float | None
    behind_be_ms_per_s: float | None
    behind_others_ms_per_s: float | None
    be_blocks: int | None
    be_moved_mib: int | None
    slices: tuple[Slice, ...] = ()
    timeline: tuple[Sample, ...] = ()
    latencies: tuple[Request, ...] = ()
    moments: tuple[Moment, ...] = ()


class Settings(msgspec.Struct, frozen=True):
    """Settings of a run: ``slices`` of ``slice_s`` an arm, ordered by ``seed``. ``rounds``
    is the calibrated work of one request, equal in all arms (0 in a simulation); ``kernel`` is the
    release of the kernel it ran on."""

    slice_s: float
    slices: int
    seed: int
    arms: tuple[str, ...]
    rate_per_s: float
    service_ms: float
    rounds: int
    workers: int
    burners: int
    thrash_mib: int
    cpus: int
    simulated: bool
    kernel: str
    cgroup_layout: str


class DemoResult(msgspec.Struct, frozen=True):
    """One result an arm."""

    settings: Settings
    results: tuple[ArmResult, ...]


class Goal(msgspec.Struct, frozen=True):
    """One figure we promise, and what was reached. ``value`` None: its arms were not run; ``low``
    and ``high``, the 95 % interval, None where there are too few slices to tell.

    ``key`` and ``limit`` are for scripts, ``name`` and ``wanted`` for people.
    """

    key: str
    name: str
    wanted: str
    limit: float
    value: float | None
    low: float | None
    high: float | None
    verdict: Verdict | None
