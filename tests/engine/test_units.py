"""What systemd is told of kubelet's slices, and when it gets back what it knew."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar

import pytest
import structlog
from koordlet_fakefs import shape
from koordlet_fakefs.background import AtOnce

from koordlet.actuator.outcome import Outcome
from koordlet.actuator.restore import Status, restore
from koordlet.actuator.units import Told, path_beside
from koordlet.decision.plan import Result
from koordlet.decision.resource import MIN_SHARES, UNLIMITED, Resource
from koordlet.engine import units
from koordlet.engine.units import EVERY_S, PART
from koordlet.kernel.background import Pause
from tests.daemon.world import FEATURES, NO_ALARMS, World, suppress

T = TypeVar("T")
ROOT = "kubepods.slice"
UNIT = "kubepods-besteffort.slice"
BE = f"{ROOT}/{UNIT}"
QUOTA = Resource.CPU_QUOTA_US
PROPERTY = "CPUQuotaPerSecUSec"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, suppress() + NO_ALARMS, "v2")
    made.host.systemd.boot()
    for cgroup in (ROOT, BE, f"{ROOT}/kubepods-burstable.slice"):
        made.host.make_cgroup(cgroup)
    made.application(f"{BE}/kubepods-besteffort-pod1.slice/{'c' * 64}", 1.0, 1)
    made.application("service", 2.0, 2)
    yield made
    made.stop()


def started(world: World) -> World:
    world.start()
    world.run(2 * EVERY_S)
    return world


def told(world: World) -> int:
    return world.host.systemd.get(UNIT, (PROPERTY,))[PROPERTY]


def test_systemd_writes_our_limit_itself(world: World) -> None:
    started(world)
    limit = world.value(BE, QUOTA)
    assert told(world) == limit * 10 and {unit for unit, _ in world.host.systemd.calls} == {UNIT}
    for _ in range(60):
        world.host.systemd.realize(UNIT)  # kubelet sets the slice's weight
        assert world.value(BE, QUOTA) != UNLIMITED
        world.run(1)
    assert not world.parts.actuator.conflicts()
    assert any(each.feature == "systemd-units" and each.supported
               for each in world.views.status().capabilities)  # fmt: skip


def test_systemd_is_told_the_period_too(tmp_path: Path) -> None:
    """On two CPUs a quota that nobody has named has periods of a second."""
    body = "[slo.resourceUsedThresholdWithBE]\nenable = true\n" + NO_ALARMS
    world = World(tmp_path, body, "v2", topology=shape(cores_per_l3=2))
    world.host.systemd.boot()
    for cgroup in (ROOT, BE, f"{ROOT}/kubepods-burstable.slice"):
        world.host.make_cgroup(cgroup)
    world.application(f"{BE}/kubepods-besteffort-pod1.slice/{'c' * 64}", 1.0, 1)
    try:
        started(world)
        limit = world.value(BE, QUOTA)
        assert world.value(BE, Resource.CPU_PERIOD_US) == 1_000_000 and told(world) == limit
        for _ in range(20):
            world.host.systemd.realize(UNIT)
            assert world.value(BE, Resource.CPU_PERIOD_US) == 1_000_000
            world.run(1)
        assert not world.parts.actuator.conflicts()
        world.reload(NO_ALARMS)
        world.run(2 * EVERY_S)
        names = (PROPERTY, "CPUQuotaPeriodUSec")
        assert set(world.host.systemd.get(UNIT, names).values()) == {2**64 - 1}
        assert world.value(BE, Resource.CPU_PERIOD_US) == 100_000
    finally:
        world.stop()


def test_a_limit_that_moves_each_second_is_told_each_five(world: World) -> None:
    started(world)
    world.host.systemd.calls.clear()
    for demand in range(30):
        world.processes["service"].demand_cores = 1.0 + demand % 2
        world.run(1)
    assert 1 <= len(world.host.systemd.calls) <= 30 / EVERY_S + 1
    world.host.systemd.realize(UNIT)  # an older value of ours
    world.run(2)
    assert not world.parts.actuator.conflicts()


def test_it_goes_back_when_nobody_wants_it_any_more(world: World) -> None:
    started(world)
    world.reload(NO_ALARMS)
    world.run(2 * EVERY_S)
    assert told(world) == 2**64 - 1 and world.value(BE, QUOTA) == UNLIMITED
    assert not Told(path_beside(str(world.directory / "state/journal")), "").properties


@pytest.mark.parametrize("dry_run", [True, False])
def test_restore_without_a_daemon_gives_it_back(world: World, dry_run: bool) -> None:
    started(world)
    world.stop()
    report = restore(
        world.parts.knobs,
        str(world.directory / "state/journal"),
        boot_id=world.host.read("/proc/sys/kernel/random/boot_id").decode().strip(),
        now=world.host.monotonic(),
        time=world.host.time(),
        dry_run=dry_run,
    )
    items = [each for each in report.items if each.path == f"{PROPERTY} of systemd unit {UNIT}"]
    wanted = Status.WOULD_RESTORE if dry_run else Status.RESTORED
    assert [each.status for each in items] == [wanted]
    assert (told(world) == 2**64 - 1) is not dry_run
    world.start()


def test_a_systemd_that_refuses_is_named_and_files_are_written_all_the_same(world: World) -> None:
    world.host.systemd.fails[UNIT] = OSError(errno.ETIMEDOUT, "no answer within 2 s", UNIT)
    world.start()
    heard: list[Outcome] = []
    world.engine.heard = heard.append  # type: ignore[method-assign]
    world.run(2 * EVERY_S)
    assert world.value(BE, QUOTA) != UNLIMITED
    (refused,) = [each for each in heard if each.owner == "systemd"]
    assert refused.result is Result.REFUSED and "ETIMEDOUT" in refused.text


def test_without_a_bus_that_is_a_capability_that_is_missing(tmp_path: Path) -> None:
    world = World(tmp_path, suppress() + NO_ALARMS, "v2")
    for cgroup in (ROOT, BE):
        world.host.make_cgroup(cgroup)
    world.application(f"{BE}/kubepods-besteffort-pod1.slice/{'c' * 64}", 1.0, 1)
    started(world)
    (found,) = [c for c in world.views.status().capabilities if c.feature == "systemd-units"]
    assert not found.supported and "systemd does not run here" in found.why
    assert not world.host.systemd.calls
    world.stop()


SERVICE = "batch.service"
BATCH = f"system.slice/{SERVICE}"
APPLICATION = f"""
[[applications]]
name = "batch"
systemd_unit = "{SERVICE}"
qos = "BE"
"""
THROUGH = f"{APPLICATION}through_systemd = true\n"


def with_service(directory: Path, body: str) -> World:
    world = World(directory, suppress() + NO_ALARMS + body, "v2")
    world.host.systemd.boot()
    world.application(BATCH, 1.0, 1)
    world.application("service", 2.0, 2)
    return started(world)


def known(world: World) -> int:
    return world.host.systemd.get(SERVICE, (PROPERTY,))[PROPERTY]


def test_a_unit_of_an_application_is_left_to_its_file_unless_asked(tmp_path: Path) -> None:
    world = with_service(tmp_path, APPLICATION)
    limit = world.value(BATCH, QUOTA)
    assert limit != UNLIMITED and not world.host.systemd.calls
    world.host.systemd.reload()  # systemd 262
    world.run(12)
    assert world.value(BATCH, QUOTA) != UNLIMITED
    (conflict,) = world.views.status().conflicts
    assert conflict.cgroup == BATCH
    assert conflict.likely.startswith("systemd (daemon-reload, 262 and later)")
    world.stop()


FLOOR = """
[[applications]]
name = "shop"
systemd_unit = "shop.service"
qos = "LS"
memory_request = "64Mi"
through_systemd = true
[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
minLimitPercent = 50
"""


def test_the_slice_above_a_unit_keeps_its_floor_too(tmp_path: Path) -> None:
    """systemd 257 writes the files of system.slice with those of any unit in it."""
    world = World(tmp_path, NO_ALARMS + FLOOR, "v2")
    world.host.systemd.boot()
    world.application("system.slice/shop.service", 1.0, 1)
    floor = Resource.MEMORY_MIN
    world.start((*FEATURES, floor))
    world.run(2 * EVERY_S)
    assert world.value("system.slice", floor) == 32 << 20
    for _ in range(20):
        world.host.systemd.realize("shop.service")
        assert world.value("system.slice", floor) == 32 << 20
        world.run(1)
    assert not world.parts.actuator.conflicts()
    world.reload(NO_ALARMS)
    world.run(2 * EVERY_S)
    assert world.host.systemd.get("system.slice", ("MemoryMin",)) == {"MemoryMin": 0}
    world.stop()


def test_by_choice_systemd_writes_the_limits_of_a_unit_itself(tmp_path: Path) -> None:
    world = with_service(tmp_path, THROUGH)
    assert known(world) == world.value(BATCH, QUOTA) * 10
    for _ in range(20):
        world.host.systemd.reload()
        assert world.value(BATCH, QUOTA) != UNLIMITED
        world.run(1)
    assert not world.parts.actuator.conflicts()
    world.reload(suppress() + NO_ALARMS + APPLICATION)
    world.run(2 * EVERY_S)
    assert known(world) == 2**64 - 1 and world.value(BATCH, QUOTA) != UNLIMITED
    world.reload(suppress() + NO_ALARMS + THROUGH)
    world.run(2 * EVERY_S)
    world.views.restore(dry_run=False)
    world.run(2 * EVERY_S)
    assert known(world) == 2**64 - 1 and world.value(BATCH, QUOTA) == UNLIMITED
    world.stop()


def test_by_choice_systemd_writes_the_weight_of_a_unit_itself(tmp_path: Path) -> None:
    qos = "[slo.resourceQOSStrategy.beClass.cpuQOS]\nenable = true\ngroupIdentity = -1\n"
    world = with_service(tmp_path, qos + THROUGH)

    def weight() -> int:
        return world.host.systemd.get(SERVICE, ("CPUWeight",))["CPUWeight"]

    assert weight() == 1 and world.value(BATCH, Resource.CPU_SHARES) == MIN_SHARES
    for _ in range(20):
        world.host.systemd.reload()
        assert world.value(BATCH, Resource.CPU_SHARES) == MIN_SHARES
        world.run(1)
    assert not world.parts.actuator.conflicts()
    world.views.restore(dry_run=False)
    world.run(2 * EVERY_S)
    assert weight() == 2**64 - 1
    world.stop()


def test_an_older_value_of_a_unit_that_systemd_was_told_is_no_conflict(tmp_path: Path) -> None:
    world = with_service(tmp_path, THROUGH)
    for step in range(40):
        world.processes["service"].demand_cores = 0.5 + step % 7 * 0.2
        world.run(1)
        world.host.systemd.realize(SERVICE)
        assert world.value(BATCH, QUOTA) != UNLIMITED
    assert not world.parts.actuator.conflicts()
    world.stop()


class Slow(AtOnce):
    """The work is done at once, and known to be done when it is asked for the fourth time."""

    def submit(self, work: Callable[[Pause], T], delay_s: float = 0.0) -> Future[T]:
        future, asked = super().submit(work, delay_s), iter(range(10**6))
        future.done = lambda: next(asked) >= 3  # type: ignore[method-assign]
        return future


@pytest.mark.parametrize("pauses_at", [None, 20, 21, 22, 23, 24])
def test_what_systemd_is_being_told_is_no_conflict_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pauses_at: int | None
) -> None:
    """Also while another value of the unit goes back."""
    qos = "[slo.resourceQOSStrategy.beClass.cpuQOS]\nenable = true\ngroupIdentity = -1\n"
    world = World(tmp_path, suppress() + NO_ALARMS + qos + THROUGH, "v2")
    at_once = world.host.background
    monkeypatch.setattr(
        world.host, "background", lambda name: Slow() if name == PART else at_once(name)
    )
    world.host.systemd.boot()
    world.application(BATCH, 1.0, 1)
    world.application("service", 2.0, 2)
    started(world)
    for step in range(40):
        world.processes["service"].demand_cores = 0.5 + step % 7 * 0.2
        world.run(1)
        if step == pauses_at:
            world.views.pause(("cpu-qos",), (), for_s=None, reason="", by="test")
        world.host.systemd.realize(SERVICE)
    assert not world.parts.actuator.conflicts()
    world.stop()


def test_who_takes_the_limit_from_systemd_too_is_told_again_at_once(world: World) -> None:
    started(world)
    world.host.systemd.set(UNIT, {PROPERTY: 2**64 - 1})
    world.run(EVERY_S + 2)
    assert told(world) == world.value(BE, QUOTA) * 10
    assert not world.parts.actuator.conflicts()


def test_systemd_that_was_busy_is_told_soon(world: World) -> None:
    world.host.systemd.fails[UNIT] = OSError(errno.ETIMEDOUT, "no answer within 2 s", UNIT)
    started(world)
    del world.host.systemd.fails[UNIT]
    world.run(EVERY_S + 2)
    assert told(world) == world.value(BE, QUOTA) * 10


def recorded(world: World) -> bool:
    boot = world.host.read("/proc/sys/kernel/random/boot_id").decode().strip()
    return bool(Told(path_beside(str(world.directory / "state/journal")), boot).properties)


@pytest.mark.parametrize("observing", [False, True])
def test_restore_gives_it_back_before_it_answers(world: World, observing: bool) -> None:
    started(world)
    if observing:
        world.reload(suppress() + NO_ALARMS + '[daemon]\nmode = "observe"\n')
        world.run(1)
    report = world.views.restore(dry_run=False)
    assert report.complete
    assert f"{PROPERTY} of systemd unit {UNIT}" in [each.path for each in report.values]
    assert told(world) == 2**64 - 1 and not recorded(world)
    world.host.systemd.realize(UNIT)
    assert world.value(BE, QUOTA) == UNLIMITED
    if not observing:
        world.views.resume((), (), by="test")
        world.run(EVERY_S + 2)
        assert told(world) == world.value(BE, QUOTA) * 10 and recorded(world)


class Stuck(AtOnce):
    """The work waits for ever."""

    def submit(self, work: Callable[[Pause], T], delay_s: float = 0.0) -> Future[T]:
        return Future()


def test_a_systemd_that_does_not_answer_leaves_a_restore_incomplete(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world)
    monkeypatch.setattr(world.parts.units, "_thread", Stuck())
    monkeypatch.setattr(units, "RESTORE_S", 0.0)
    report = world.views.restore(dry_run=False)
    (failed,) = [each for each in report.values if each.result == "failed"]
    assert failed.path == f"{PROPERTY} of systemd unit {UNIT}" and "within 0 s" in failed.why
    assert not report.complete and recorded(world) and world.value(BE, QUOTA) == UNLIMITED


def test_a_defect_of_ours_is_logged_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(unit: str, names: object) -> None:
        raise ModuleNotFoundError("No module named 'jeepney'")

    monkeypatch.setattr(world.host.systemd, "get", missing)
    with structlog.testing.capture_logs() as logs:
        started(world)
        world.run(4 * EVERY_S)
    assert [each["event"] for each in logs].count("systemd was not told") == 1
    assert "jeepney" in world.parts.problems[PART] and world.value(BE, QUOTA) != UNLIMITED


def test_a_defect_of_ours_leaves_a_restore_incomplete_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(world)

    def missing(unit: str, values: object) -> None:
        raise ModuleNotFoundError("No module named 'jeepney'")

    monkeypatch.setattr(world.host.systemd, "set", missing)
    report = world.views.restore(dry_run=False)
    (failed,) = [each for each in report.values if each.result == "failed"]
    assert "jeepney" in failed.why and recorded(world)


def test_a_pause_of_one_gives_back_its_own_alone(tmp_path: Path) -> None:
    qos = "[slo.resourceQOSStrategy.beClass.cpuQOS]\nenable = true\ngroupIdentity = -1\n"
    world = with_service(tmp_path, qos + THROUGH)
    world.views.pause(("cpu-suppress",), (), for_s=None, reason="", by="test")
    assert known(world) == 2**64 - 1
    assert world.host.systemd.get(SERVICE, ("CPUWeight",)) == {"CPUWeight": 1}
    world.stop()


def test_what_somebody_told_systemd_since_is_what_goes_back(world: World) -> None:
    started(world)
    world.host.systemd.set(UNIT, {PROPERTY: 7_000_000})
    world.run(EVERY_S + 2)
    assert told(world) == world.value(BE, QUOTA) * 10
    world.reload(NO_ALARMS)
    world.run(2 * EVERY_S)
    assert told(world) == 7_000_000


def test_with_a_damaged_record_our_own_value_is_no_original(world: World) -> None:
    started(world)
    world.stop()
    Path(path_beside(str(world.directory / "state/journal"))).write_bytes(b"{")
    started(world)
    assert told(world) == world.value(BE, QUOTA) * 10
    world.views.restore(dry_run=False)
    assert told(world) == 2**64 - 1


def test_a_record_that_cannot_be_read_stops_nothing_else(world: World) -> None:
    record = Path(path_beside(str(world.directory / "state/journal")))
    record.parent.mkdir(exist_ok=True)
    record.mkdir()
    started(world)
    assert world.value(BE, QUOTA) != UNLIMITED
    assert "units" in world.parts.problems[PART]
    record.rmdir()
    world.run(2 * EVERY_S)
    assert PART not in world.parts.problems and told(world) == world.value(BE, QUOTA) * 10
