"""Values that kubelet and systemd write over are back before the next tick."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.engine import rewritten
from tests.daemon.world import NO_ALARMS, SAMPLE_S, World, suppress

ROOT = "kubepods.slice"
BE = f"{ROOT}/kubepods-besteffort.slice"
QUOTA = Resource.CPU_QUOTA_US


def busy(directory: Path, pods: int = 1, layout: str = "v2") -> World:
    """Best-effort pods beside a service that leaves them little."""
    world = World(directory, suppress() + NO_ALARMS, layout)
    for cgroup in (ROOT, BE, f"{ROOT}/kubepods-burstable.slice"):
        world.host.make_cgroup(cgroup)
    for number in range(pods):
        world.application(f"{BE}/kubepods-besteffort-pod{number}.slice/{'c' * 64}", 1.0, 1)
    world.application("service", 2.0, 2)
    world.start()
    world.run(3)
    return world


@pytest.mark.parametrize("layout", ["v2", "hybrid"])
def test_a_reset_is_undone_between_two_ticks(tmp_path: Path, layout: str) -> None:
    world = busy(tmp_path, layout=layout)
    limit = world.value(BE, QUOTA)
    assert limit != UNLIMITED
    for _ in range(20):
        world.host.advance(SAMPLE_S)  # and no tick
        world.parts.cgroups.write(BE, QUOTA, UNLIMITED)
        world.host.deliver()
        world.answer()
        assert world.value(BE, QUOTA) == limit
    assert not world.parts.actuator.conflicts()


@pytest.mark.parametrize("release", ["6.18.0-fake", "7.2.0-fake"])
@pytest.mark.parametrize("policy", ["cfsQuota", "cpuset"])
def test_a_daemon_reload_of_systemd_262_is_undone_at_once(
    tmp_path: Path, policy: str, release: str
) -> None:
    """Of every unit, also where it takes CPU lists away (Linux 7.2)."""
    world = World(tmp_path, suppress(policy) + NO_ALARMS, "v2", kernel_release=release)
    for cgroup in (ROOT, BE):
        world.host.make_cgroup(cgroup)
    world.application(f"{BE}/kubepods-besteffort-pod0.slice/{'c' * 64}", 1.0, 1)
    world.application("service", 2.0, 2)
    world.start()
    world.run(3)
    resource = QUOTA if policy == "cfsQuota" else Resource.CPUSET_CPUS
    ours = world.value(BE, resource)
    assert ours not in (UNLIMITED, "")
    for _ in range(5):
        world.run(20)
        ours = world.value(BE, resource)
        world.host.systemd.reload()
        world.host.deliver()
        world.answer()
        assert world.value(BE, resource) == ours
    assert not world.parts.actuator.conflicts()


def test_no_look_without_a_writer_and_one_for_our_own(tmp_path: Path) -> None:
    world = busy(tmp_path)
    looks = []
    look = world.engine.rewritten.look
    world.engine.rewritten.look = lambda: (looks.append(1), look())[1]  # type: ignore[method-assign]
    world.run(5)
    assert len(looks) <= 5 + 1


def test_a_cgroup_that_goes_is_watched_no_longer(tmp_path: Path) -> None:
    world = busy(tmp_path)
    watched = world.engine.rewritten._files
    assert [path.rpartition("/")[2] for path in watched] == ["kubepods-besteffort.slice"]
    world.reload("")
    world.run(2)
    assert not watched and world.value(BE, QUOTA) == UNLIMITED


def test_a_cgroup_that_is_made_anew_is_watched_again(tmp_path: Path) -> None:
    world = World(tmp_path, suppress() + NO_ALARMS, "v2")
    for cgroup in (ROOT, BE):
        world.host.make_cgroup(cgroup)
    world.application("service", 2.0, 2)
    world.start()
    world.run(3)
    assert world.value(BE, QUOTA) != UNLIMITED
    world.host.rmdir(f"/sys/fs/cgroup/{BE}")
    world.host.make_cgroup(BE)
    world.run(3)
    limit = world.value(BE, QUOTA)
    assert limit != UNLIMITED
    world.parts.cgroups.write(BE, QUOTA, UNLIMITED)
    world.host.deliver()
    world.answer()
    assert world.value(BE, QUOTA) == limit


def test_a_directory_that_cannot_be_watched_is_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path, suppress() + NO_ALARMS, "v2")
    for cgroup in (ROOT, BE):
        world.host.make_cgroup(cgroup)
    world.host.faults.add(f"/sys/fs/cgroup/{BE}", op="watch", errno=errno.ENOSPC, times=None)
    world.application("service", 2.0, 2)
    world.start()
    world.run(3)
    assert "cannot be watched" in world.engine.rewritten.faults()[0].message
    world.host.faults.active.clear()
    world.engine.rescan()
    assert not world.engine.rewritten.faults()
    world.parts.cgroups.write(BE, QUOTA, UNLIMITED)
    world.host.deliver()
    world.answer()
    assert world.value(BE, QUOTA) != UNLIMITED


def test_many_files_take_more_than_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rewritten, "MOST_AT_ONCE", 1)
    world = busy(tmp_path)
    limit = world.value(BE, QUOTA)
    world.parts.cgroups.write(BE, QUOTA, UNLIMITED)
    world.host.deliver()
    for _ in range(len(world.engine.rewritten._place_of) + 1):
        world.answer()
    assert world.value(BE, QUOTA) == limit and not world.written
