"""The cgroups of the demo on fake kernels of every layout."""

from __future__ import annotations

import errno
import signal

import pytest
from koordlet_fakefs import FakeHost

from koordlet.decision.resource import Resource
from koordlet.demo import stage
from koordlet.demo.stage import BE, GROUPS, LS, PARENT, Stage
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, detect

LAYOUTS = ("v1", "comount", "hybrid", "v2")
_ROOT = "/sys/fs/cgroup"
_CONTROL = f"{_ROOT}/cgroup.subtree_control"


class World:
    """A fake host and a stage on it; ``remembered`` is what a killed run would leave on disk."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = FakeHost(kind)  # type: ignore[arg-type]
        self.remembered: list[tuple[str, str]] = []
        # Pids are those of the fake kernel: nothing here may reach the real kill(2).
        monkeypatch.setattr(stage.os, "kill", self._kill)

    @property
    def layout(self) -> Layout:
        return detect(self.host)

    def stage(self) -> Stage:
        return Stage(self.host, self.layout, self._remember)

    def groups(self) -> list[str]:
        return [root for root in self.layout.roots if self.host.exists(f"{root}/{PARENT}")]

    def _remember(self, undo: list[tuple[str, str]]) -> None:
        self.remembered = list(undo)

    def _kill(self, pid: int, number: int) -> None:
        assert number == signal.SIGKILL
        if pid not in self.host.machine.processes:
            raise ProcessLookupError
        self.host.exit(self.host.machine.processes[pid])


@pytest.fixture(params=LAYOUTS)
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(request.param, monkeypatch)


@pytest.fixture
def unified(monkeypatch: pytest.MonkeyPatch) -> World:
    """A v2 machine whose root hands on some controllers, but not cpuset."""
    world = World("v2", monkeypatch)
    world.host.write(_CONTROL, b"-cpuset")
    return world


def test_processes_can_enter_every_group(world: World) -> None:
    built = world.stage()
    built.create()
    for group in (LS, BE):
        pid = world.host.spawn("").pid
        for path in built.enter(group):
            world.host.write(path, str(pid).encode())
        for root in world.layout.roots:
            path = f"{root}/{group}/cgroup.procs"
            if world.host.exists(path):
                assert str(pid).encode() in world.host.read(path).split()
    assert built.sweep() == 2
    assert world.groups() == []


def test_all_groups_together_weigh_what_pods_do(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.os, "sched_getaffinity", lambda pid: range(4))
    world.stage().create()
    shares = Cgroups(world.host, world.layout).read(PARENT, Resource.CPU_SHARES)
    assert int(shares) == pytest.approx(4 * 1024, rel=0.05)


def test_every_controller_of_the_daemon_works_there(world: World) -> None:
    world.stage().create()
    layout = world.layout
    cpu = layout.v1.get("cpu", layout.v2)
    cpuset = layout.v1.get("cpuset", layout.v2)
    quota = "cpu.cfs_quota_us" if "cpu" in layout.v1 else "cpu.max"
    for group in GROUPS:
        assert world.host.exists(f"{cpu}/{group}/{quota}")
        assert world.host.exists(f"{cpuset}/{group}/cpuset.cpus")


def test_sweep_of_nothing(world: World) -> None:
    assert world.stage().sweep() == 0


def test_a_later_run_sweeps_what_a_killed_one_left(world: World) -> None:
    world.stage().create()
    world.host.spawn(LS)
    world.host.spawn(BE, threads=4)
    assert world.stage().sweep(world.remembered) == 2
    assert world.groups() == []


def test_controllers_are_switched_on_and_off_again(unified: World) -> None:
    before = unified.host.read(_CONTROL)
    built = unified.stage()
    built.create()
    assert b"cpuset" in unified.host.read(_CONTROL)
    assert unified.remembered == [(_CONTROL, "cpuset")]
    built.sweep()
    assert unified.host.read(_CONTROL) == before
    assert unified.remembered == []


def test_a_killed_run_has_remembered_what_it_switched_on(unified: World) -> None:
    before = unified.host.read(_CONTROL)
    unified.stage().create()
    unified.stage().sweep(unified.remembered)
    assert unified.host.read(_CONTROL) == before


def test_remembered_before_it_is_done(unified: World) -> None:
    """Killed between the two: the undo of what was never done must not fail."""
    unified.host.faults.add(_CONTROL, op="write", errno=errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        unified.stage().create()
    assert unified.remembered == [(_CONTROL, "cpuset")]
    unified.host.faults.clear()
    unified.stage().sweep(unified.remembered)
    assert unified.groups() == []


def test_a_controller_that_somebody_else_uses_now_stays(unified: World) -> None:
    built = unified.stage()
    built.create()
    unified.host.make_cgroup("other")
    unified.host.write(f"{_ROOT}/other/cgroup.subtree_control", b"+cpuset")
    built.sweep()
    assert b"cpuset" in unified.host.read(_CONTROL)
    assert unified.groups() == []
