"""Thousands of cgroups that somebody makes: what they cost koordlet, in CPU time of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.daemon.world import NO_ALARMS, World, suppress

MakeWorld = Callable[..., World]
CROWD = 1000
SHOP = """
[[applications]]
name = "shop"
systemd_unit = "shop.service"
qos = "LS"
"""


def cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_a_user_who_makes_slices_starts_no_search(make_world: MakeWorld, layout: str) -> None:
    """1,000 of them below user@ took 55 s of CPU."""
    world = make_world(SHOP + suppress("cfsQuota") + NO_ALARMS, layout)
    manager = "user.slice/user-1000.slice/user@1000.service"
    world.application("system.slice/shop.service", 1.0)
    world.host.make_cgroup(f"{manager}/app.slice")
    world.start()
    world.run(2)
    spent_s = 0.0
    for n in range(CROWD):
        for place in (f"{manager}/n{n}.slice", f"{manager}/app.slice/app-n{n}.slice"):
            world.host.make_cgroup(place)
        spent_s += cpu_s(world.host.deliver) + cpu_s(world.answer)
    spent_s += cpu_s(world.engine.rescan) + cpu_s(world.engine.tick)
    print(f"{layout}: {2 * CROWD} slices of a user: {1000 * spent_s:.0f} ms of CPU")
    assert spent_s < 2.0
    assert world.pod("shop").present


BATCH = """
[[applications]]
name = "batch"
cgroup = "batch"
qos = "BE"
"""


class Calls:
    """How often the host is asked, by name of the call."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("open", "read", "subdirs", "subdir_inodes", "inode", "exists"):
            monkeypatch.setattr(world.host, name, self._counting(getattr(world.host, name)))

    def _counting(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(*args: object, **more: object) -> object:
            self.count += 1
            return real(*args, **more)

        return call

    def of(self, work: Callable[[], object]) -> int:
        before = self.count
        work()
        return self.count - before


def make_crowd(world: World, top: str, count: int, lists: int, start: int = 0) -> None:
    """Only where they matter: it is a fake machine."""
    for hierarchy in ("cpu", "cpuset"):
        for n in range(start, start + count):
            world.host.mkdir(f"/sys/fs/cgroup/{hierarchy}/{top}/n{n:05d}")
    for n in range(start, start + lists):
        for file in ("cpuset.cpus", "cpuset.mems"):
            value = world.host.read(f"/sys/fs/cgroup/cpuset/{top}/{file}")
            world.host.write(f"/sys/fs/cgroup/cpuset/{top}/n{n:05d}/{file}", value)


def test_a_crowd_below_best_effort_costs_a_bounded_number_of_calls(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is confined in the end, and all goes back."""
    world = make_world(BATCH + suppress("cpuset") + NO_ALARMS, "v1")
    world.application("batch", 4.0)
    make_crowd(world, "batch", 3000, 0)
    make_crowd(world, "batch", 20, 20, start=3000)
    world.start()
    calls = Calls(world, monkeypatch)
    most = 0
    for _ in range(60):
        world.host.machine.now_ns += 1_000_000_000
        most = max(most, calls.of(world.engine.tick))
        world.answer()
    print(f"at most {most} calls in a tick")
    assert most < 2500
    assert world.host.read("/sys/fs/cgroup/cpuset/batch/cpuset.cpus") == b"0-2\n"
    for n in range(3000, 3020):
        assert world.host.read(f"/sys/fs/cgroup/cpuset/batch/n{n:05d}/cpuset.cpus") == b"0-2\n"
    report = world.engine.restore(dry_run=False)
    assert report.ok, report
    for name in ("batch", "batch/n03000", "batch/n03019"):
        assert world.host.read(f"/sys/fs/cgroup/cpuset/{name}/cpuset.cpus") == b"0-3\n"


def test_a_crowd_that_is_too_large_gets_a_quota_and_is_told(make_world: MakeWorld) -> None:
    world = make_world(BATCH + suppress("cpuset") + NO_ALARMS, "v1")
    world.application("batch", 4.0)
    make_crowd(world, "batch", 600, 600)
    world.start()
    for _ in range(20):
        world.host.machine.now_ns += 1_000_000_000
        world.engine.tick()
        world.answer()
    assert world.host.read("/sys/fs/cgroup/cpuset/batch/cpuset.cpus") == b"0-3\n"
    assert world.host.read("/sys/fs/cgroup/cpu/batch/cpu.cfs_quota_us") == b"300000\n"
    assert any(
        "are not managed, so lists above them cannot shrink" in text for text in world.texts()
    )
    explained = world.views.explain("cpu-suppress.crowd", 5)().decisions
    assert any("such as batch/n00128, are not managed" in each.why.text for each in explained)
    for n in range(600):
        for hierarchy in ("cpu", "cpuset"):
            world.host.rmdir(f"/sys/fs/cgroup/{hierarchy}/batch/n{n:05d}")
    for _ in range(20):
        world.host.machine.now_ns += 1_000_000_000
        world.engine.tick()
        world.answer()
    assert world.host.read("/sys/fs/cgroup/cpu/batch/cpu.cfs_quota_us") == b"-1\n"
    assert world.host.read("/sys/fs/cgroup/cpuset/batch/cpuset.cpus") == b"0-2\n"
