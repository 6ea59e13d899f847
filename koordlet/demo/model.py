"""What the demo measures, as data: the table, the report and ``-o json`` all come from these."""

from __future__ import annotations

import msgspec

from koordlet.decision.why import Why


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
    """CPU used by each class since the previous sample, in cores; ``t`` in s from arm start."""

    t: float
    ls: float
    be: float
    node: float


class Moment(msgspec.Struct, frozen=True):
    """One decision of the daemon, or an alarm that asked for one (``resource`` is then empty).

    ``t`` in s from arm start: negative in the warm-up, past the end what was put back.
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
    """``t`` intended send time (s from arm start), ``latency_ms`` counted from there."""

    t: float
    latency_ms: float


class ArmResult(msgspec.Struct, frozen=True):
    """One arm, once. CPU in cores averaged over the arm; ``*_ratio`` are 0 to 1.

    ``be_share_of_left_ratio`` is BE's CPU / (capacity - LS - its client), None without BE.
    ``other_cores`` is the rest of the node, koordlet included. ``be_blocks`` (64 KiB hashed each)
    and ``be_moved_mib`` are None where no work was really done.
    """

    arm: str
    repeat: int
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
    be_blocks: int | None
    be_moved_mib: int | None
    timeline: tuple[Sample, ...] = ()
    latencies: tuple[Request, ...] = ()
    moments: tuple[Moment, ...] = ()


class Settings(msgspec.Struct, frozen=True):
    """What was run. ``rounds`` is the calibrated work of one request, equal in all arms (0 in a
    simulation); ``kernel`` is the release of the kernel it ran on."""

    seconds: float
    repeat: int
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
    settings: Settings
    results: tuple[ArmResult, ...]


class Goal(msgspec.Struct, frozen=True):
    """One figure we promise, and what was reached. ``reached`` None: its arms were not run.

    ``key`` and ``limit`` are for scripts, ``name`` and ``wanted`` for people.
    """

    key: str
    name: str
    wanted: str
    limit: float
    value: float | None
    reached: bool | None
