"""Carrying evictions out, on the fake kernel: asked first, stopped with grace, killed last."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from koordlet_fakefs import FakeHost

from koordlet.actuator.evict import executor as evict
from koordlet.actuator.evict.api import NO_CLUSTER, EvictionApi
from koordlet.actuator.evict.executor import Evictor, EvictOutcome, EvictResult
from koordlet.actuator.evict.journal import Begun
from koordlet.actuator.evict.ways import Progress, Terminate
from koordlet.actuator.restore import Status, restore
from koordlet.decision.plan import Eviction, Victim, VictimKind
from koordlet.decision.snapshot import Application, Pod, Snapshot, Wake
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.proc import kill
from koordlet.protocol.qos import KubeQoS, QoSClass
from tests.qos.build import Kernel, Metrics, bare, node

LAYOUTS = ("v1", "hybrid", "v2")
POD = "kubepods/besteffort/poda"
GRACE_S = 2.0
JOB = Victim(VictimKind.APPLICATION, "job")


@dataclass
class Asked:
    """A way that a test answers for."""

    name: str = "runtime"
    answer: str = ""
    progress: list[Progress] = field(default_factory=list)

    def begin(self, begun: Begun) -> Progress | str:
        if self.answer:
            return self.answer
        self.progress.append(Progress(final=True))
        return self.progress[-1]


class World:
    def __init__(self, directory: Path, layout: str, *ways: object) -> None:
        self.host = FakeHost(layout)
        self.cgroups = Cgroups(self.host, detect(self.host))
        self.directory = directory
        self.heard: list[EvictOutcome] = []
        for cgroup in (f"{POD}/c1", f"{POD}/c2", "job/worker", "shop"):
            self.host.make_cgroup(cgroup)
        self.ls = self.host.spawn("shop")
        self.members = [self.host.spawn(f"{POD}/c{n}") for n in (1, 1, 2)]
        self.job = [self.host.spawn("job"), self.host.spawn("job/worker")]
        self.pods = (Pod("a", POD, KubeQoS.BEST_EFFORT, name="a", namespace="ns"),)
        self.apps = (
            Application("job", "job", QoSClass.BE),
            Application("shop", "shop", QoSClass.LS),
        )
        self.node = node(4)
        self.objection: str | None = ""
        self.ways = ways or (Terminate(self.host, self.cgroups),)
        self.restart()

    def restart(self) -> None:
        self.evictor = Evictor(
            self.host,
            self.cgroups,
            (EvictionApi(), *self.ways),
            path=str(self.directory / "evictions"),
            boot_id="boot",
            heard=self.heard.append,
            objection=lambda begun: self.objection,
        )

    def snapshot(self) -> Snapshot:
        return Snapshot(
            self.host.monotonic(), self.host.time(), Wake(), self.node, self.pods, self.apps,
            None, Metrics(), Kernel(),
        )  # fmt: skip

    def take(self, name: str = "a", *, observing: bool = False, grace_s: float = GRACE_S) -> None:
        kind = VictimKind.POD if name == "a" else VictimKind.APPLICATION
        eviction = Eviction(
            Victim(kind, name), "BEMemoryEvict", Why("memory-evict.x", "too much"), (), grace_s
        )
        self.evictor.take("memory-evict", (eviction,), self.snapshot(), observing=observing)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.host.advance(0.05)
            self.evictor.step()

    @property
    def results(self) -> list[EvictResult]:
        return [outcome.result for outcome in self.heard]

    def alive(self) -> list[bool]:
        return [process.alive for process in self.members]


@pytest.fixture(params=LAYOUTS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    return World(tmp_path, request.param)


def test_terminated_with_grace_when_nobody_manages_it(world: World) -> None:
    world.take()
    assert world.results == [EvictResult.BEGUN]
    assert world.alive() == [False] * 3
    world.run(0.1)
    assert world.results == [EvictResult.BEGUN, EvictResult.EVICTED]
    assert world.heard[1].text == f"Kubernetes eviction API: {NO_CLUSTER}; SIGTERM"
    assert not world.evictor.busy
    assert world.ls.alive and all(process.alive for process in world.job)


def test_killed_after_the_grace(world: World) -> None:
    world.host.deaf |= {world.members[0].pid, world.members[2].pid}
    world.take()
    world.run(GRACE_S - 0.1)
    assert world.alive() == [True, False, True]
    world.run(0.2)  # nobody else would kill: there is no margin
    assert world.alive() == [False] * 3
    how = "SIGKILL, frozen" if world.cgroups.layout.kind == "v1" else "cgroup.kill"
    assert how in world.heard[-1].text
    assert world.heard[-1].result is EvictResult.EVICTED
    assert world.heard[-1].took_s >= GRACE_S
    assert world.ls.alive


def test_v1_freezes_while_it_kills(tmp_path: Path) -> None:
    world = World(tmp_path, "v1")
    world.host.deaf |= {process.pid for process in world.members}
    world.take(grace_s=0.0)
    world.run(1)
    assert world.alive() == [False] * 3
    states = [data for path, data in world.host.written if path.endswith(f"{POD}/freezer.state")]
    assert states[:2] == [b"FROZEN", b"THAWED"] and states[-1] == b"THAWED"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_who_is_asked_has_its_time(tmp_path: Path, layout: str) -> None:
    runtime = Asked()
    world = World(tmp_path, layout, runtime)
    world.take()
    world.run(1)
    assert world.alive() == [True] * 3 and world.results == [EvictResult.BEGUN]
    runtime.progress[0].done = True
    world.run(0.1)
    # Kubelet may have started it again: what runs now is not killed.
    assert world.results == [EvictResult.BEGUN, EvictResult.EVICTED]
    assert world.alive() == [True] * 3


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_next_way_is_tried_and_the_last_is_to_kill(tmp_path: Path, layout: str) -> None:
    absent, broken = Asked("absent", "no socket of one"), Asked("broken")
    world = World(tmp_path, layout, absent, broken)
    world.take()
    broken.progress[0].done, broken.progress[0].error = True, "connection refused"
    world.run(0.2)
    assert world.alive() == [False] * 3
    assert world.results[-1] is EvictResult.EVICTED
    said = world.heard[-1].text
    assert "absent: no socket of one; broken failed: connection refused; " in said


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_that_hangs_is_killed_after_the_grace(tmp_path: Path, layout: str) -> None:
    world = World(tmp_path, layout, Asked())
    world.take()
    world.run(GRACE_S + evict.MARGIN_S - 0.1)
    assert world.alive() == [True] * 3
    world.run(0.3)
    assert world.alive() == [False] * 3


def test_nobody_is_begun_twice(world: World) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.take()
    assert world.results == [EvictResult.BEGUN]
    assert list(world.evictor.terminating()) == [Victim(VictimKind.POD, "a")]


def test_observe_mode_tells_and_stops_nothing(world: World) -> None:
    for _ in range(5):
        world.take(observing=True)
        world.run(1)
    assert world.results == [EvictResult.WOULD_EVICT]
    assert world.alive() == [True] * 3 and not world.evictor.busy
    assert not os.path.exists(world.directory / "evictions")
    world.run(evict.TELL_S)
    world.take(observing=True)
    assert len(world.heard) == 2


def test_after_a_crash_it_goes_on(world: World) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.run(1)
    world.restart()
    assert not world.evictor.busy
    world.evictor.resume()
    (found,) = world.evictor.terminating().items()
    assert found[0] == Victim(VictimKind.POD, "a") and found[1].owner == "memory-evict"
    assert found[1].since == pytest.approx(world.host.monotonic() - 1, abs=0.01)
    world.take()
    assert len(world.evictor.terminating()) == 1
    world.run(GRACE_S + evict.MARGIN_S + 0.3)
    assert world.alive() == [False] * 3
    world.restart()
    world.evictor.resume()
    assert not world.evictor.busy


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("later_s", [0.5, GRACE_S + 0.02])
def test_it_is_given_up_as_soon_as_it_may_not_be(
    world: World, restarted: bool, later_s: float
) -> None:
    """In its grace, and when it is about to be killed."""
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.run(later_s - 0.05)
    world.objection = "evict is never"
    if restarted:
        world.restart()
        world.evictor.resume()
    alive = world.alive()
    world.run(20)
    assert world.alive() == alive
    assert world.results == [EvictResult.BEGUN, EvictResult.FAILED]
    assert "given up: evict is never" in world.heard[-1].text
    world.restart()
    world.evictor.resume()
    assert not world.evictor.busy


def test_after_a_restart_it_waits_until_it_is_known_to_be_right(world: World) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.restart()
    world.objection = None
    world.evictor.resume()
    world.run(GRACE_S + 5)
    assert world.alive() == [True] * 3 and len(world.evictor.terminating()) == 1
    world.objection = ""
    world.run(0.1)
    world.objection = None  # it was known once: a source that is away for a moment holds up nobody
    world.run(GRACE_S + 1)
    assert world.alive() == [False] * 3


def test_after_a_restart_it_does_not_wait_for_ever(world: World) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.restart()
    world.objection = None
    world.evictor.resume()
    world.run(GRACE_S + evict.MARGIN_S + evict.KILL_S + 1)
    assert not world.evictor.busy and all(world.alive())
    assert "could not find out in time" in world.heard[-1].text


@pytest.mark.parametrize("hours", [-5, 5])
def test_a_clock_that_jumps_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, hours: float
) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.run(1)
    right = world.host.time
    monkeypatch.setattr(world.host, "time", lambda: right() + 3600 * hours)
    world.restart()
    world.evictor.resume()
    (found,) = world.evictor.terminating().values()
    assert found.since == pytest.approx(world.host.monotonic() - 1, abs=0.01)
    world.run(GRACE_S + 1)
    assert world.alive() == [False] * 3
    assert 0 < world.heard[-1].took_s < 5


def test_after_a_long_time_it_is_left_to_a_new_decision(world: World) -> None:
    """Whoever has begun is gone since an hour; what was the matter then may be over."""
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.host.advance(GRACE_S + evict.MARGIN_S + evict.KILL_S - 1)
    world.restart()
    world.evictor.resume()
    assert world.evictor.terminating()
    world.restart()
    world.host.advance(2)
    world.evictor.resume()
    assert not world.evictor.terminating()
    world.run(10)
    assert all(world.alive())


def test_what_has_ended_is_known_after_a_restart(world: World) -> None:
    world.take()
    world.run(0.5)
    world.take("job")
    world.run(0.5)
    known = world.evictor.ended()
    assert [each.owner for each in known] == ["memory-evict"] * 2
    assert world.host.monotonic() - known[0].since == pytest.approx(1.0, abs=0.02)
    world.restart()
    assert world.evictor.ended() == ()
    world.evictor.resume()
    assert world.evictor.ended() == known
    world.host.advance(evict.ENDED_S + 1)
    assert world.evictor.ended() == known[1:]  # a cool-down may be longer


def test_a_cgroup_made_anew_is_not_the_victim(world: World) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.host.remove_cgroup(POD)
    world.host.make_cgroup(f"{POD}/c1")
    again = world.host.spawn(f"{POD}/c1")
    world.restart()
    world.evictor.resume()
    world.run(10)
    assert again.alive


@pytest.mark.parametrize("text", ["", "{", '{"boot_id": 3}', "[]"])
def test_a_journal_that_cannot_be_read_is_told(world: World, text: str) -> None:
    (world.directory / "evictions").write_text(text)
    world.restart()
    world.evictor.resume()
    assert "evictions" in world.evictor.problem and not world.evictor.busy
    world.take()
    assert world.evictor.problem == ""


def test_of_another_boot_nothing_is_left(world: World) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    file = world.directory / "evictions"
    file.write_bytes(file.read_bytes().replace(b'"boot"', b'"last"'))
    world.restart()
    world.evictor.resume()
    assert not world.evictor.busy


@pytest.mark.parametrize(
    ("cgroup", "why"),
    [("kubepods", "kubelet"), ("kubepods/besteffort", "kubelet"), ("", None), ("job", None)],
)
def test_what_holds_others_is_refused(world: World, cgroup: str, why: str | None) -> None:
    inner = Application("inner", "job/worker", QoSClass.LS)
    world.apps = (Application("job", cgroup, QoSClass.BE), inner)
    world.take("job")
    if not cgroup:
        assert world.heard == []  # the root is nobody's cgroup
        return
    assert world.results == [EvictResult.FAILED]
    assert (why or "application inner is in it") in world.heard[0].text
    assert all(process.alive for process in (*world.job, *world.members))
    assert JOB in world.evictor.failed()
    world.run(evict.RETRY_S + 1)
    assert not world.evictor.failed()


def test_koordlets_own_cgroup_is_refused(world: World) -> None:
    name = world.node = bare(4)
    assert name is world.node
    world.job.append(world.host.spawn("job"))
    own = world.job[-1]
    world.host.machine.processes[os.getpid()] = own
    real = world.host.read

    def read(path: str) -> bytes:
        data = real(path)
        return data + f"{os.getpid()}\n".encode() if path.endswith("/job/cgroup.procs") else data

    world.host.read = read
    world.take("job")
    world.run(1)
    assert world.results[-1] is EvictResult.FAILED
    assert "koordlet itself" in world.heard[-1].text
    assert all(process.alive for process in world.job)


def test_nobody_is_asked_to_stop_what_is_guarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd would stop the unit of a kubelet as any other."""
    asked = Asked()
    world = World(tmp_path, "v2", asked)
    monkeypatch.setattr(kill, "guarded", lambda *_: "process 9 is kubelet")
    world.take("job")
    world.run(1)
    assert not asked.progress and world.results == [EvictResult.FAILED]
    assert "refused: process 9 is kubelet" in world.heard[-1].text


@pytest.mark.parametrize("hidden", ["*/cgroup.procs", "/sys/fs/cgroup/*"])
def test_one_that_is_out_of_sight_has_not_ended(world: World, hidden: str) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.run(0.2)
    world.host.faults.hide(hidden)
    world.run(0.2)
    assert world.results == [EvictResult.BEGUN, EvictResult.FAILED]
    assert "No such file" in world.heard[-1].text and not world.evictor.ended()
    assert world.alive() == [True] * 3


class CrashError(BaseException):
    """Nothing in the daemon may survive it."""


def freezer(world: World, cgroup: str = POD) -> str:
    return world.host.look(f"/sys/fs/cgroup/freezer/{cgroup}/freezer.state").strip()


def crash_while_frozen(world: World) -> None:
    """As kill -9 between the freezer and the signals: nobody lets it go on the way out."""

    def crash() -> None:
        raise CrashError

    path = f"/sys/fs/cgroup/freezer/{POD}/freezer.state"
    world.host.faults.before("kill(9)", crash, op="signal")
    world.host.faults.before(path, crash, op="write", after=1)
    with pytest.raises(CrashError):
        world.run(GRACE_S + 1)
    assert freezer(world) == "FROZEN"
    world.host.faults.clear()
    world.restart()


@pytest.mark.parametrize("how", ["goes on", "given up", "too late", "offline"])
def test_one_that_was_frozen_to_be_killed_is_let_go_after_a_crash(tmp_path: Path, how: str) -> None:
    world = World(tmp_path, "v1")
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    crash_while_frozen(world)
    if how == "offline":
        knobs = Knobs(world.host, world.cgroups)
        at = {"boot_id": "boot", "now": 0.0, "time": 0.0}
        dry = restore(knobs, str(tmp_path / "journal"), **at, dry_run=True)
        assert [item.status for item in dry.items] == [Status.WOULD_RESTORE]
        assert freezer(world) == "FROZEN"
        report = restore(knobs, str(tmp_path / "journal"), **at)
        assert [item.status for item in report.items] == [Status.RESTORED] and report.ok
        assert restore(knobs, str(tmp_path / "journal"), **at).items == ()
    else:
        world.objection = "evict is never" if how == "given up" else ""
        world.host.advance(1000.0 if how == "too late" else 0.1)
        world.evictor.resume()
        world.run(3)
        assert world.alive() == [how != "goes on"] * 3
    assert freezer(world) == "THAWED"


def test_one_that_cannot_be_let_go_is_let_go_later(tmp_path: Path) -> None:
    world = World(tmp_path, "v1")
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    world.run(GRACE_S - 0.1)
    path = f"/sys/fs/cgroup/freezer/{POD}/freezer.state"
    world.host.faults.add(path, op="write", errno=errno.EIO, times=3, after=1)
    world.run(0.15)
    assert world.results[-1] is EvictResult.FAILED and freezer(world) == "FROZEN"
    world.restart()
    world.evictor.resume()
    world.run(1)
    assert freezer(world) == "THAWED"


def test_what_cannot_be_noted_is_killed_without_the_freezer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, "v1")
    world.host.deaf |= {process.pid for process in world.members}
    world.take()

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("koordlet.actuator.evict.journal.save", full)
    world.run(GRACE_S + 1)
    assert world.alive() == [False] * 3
    assert not [path for path, _ in world.host.written if path.endswith("freezer.state")]


def test_what_somebody_else_has_frozen_is_not_noted(tmp_path: Path) -> None:
    world = World(tmp_path, "v1")
    world.host.write(f"/sys/fs/cgroup/freezer/{POD}/freezer.state", b"FROZEN")
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    crash_while_frozen(world)
    world.objection = "evict is never"
    world.evictor.resume()
    world.run(1)
    assert freezer(world) == "FROZEN"


def test_what_is_made_in_its_place_is_not_killed(world: World) -> None:
    """As systemd does it that starts a unit again."""
    world.host.deaf |= {process.pid for process in world.job}
    world.take("job")
    world.run(0.5)
    world.host.remove_cgroup("job")
    world.host.make_cgroup("job")
    again = world.host.spawn("job")
    world.run(GRACE_S + 5)
    assert again.alive and world.results == [EvictResult.BEGUN, EvictResult.EVICTED]


def test_one_of_whom_nothing_runs_is_no_eviction(world: World) -> None:
    for process in world.members:
        world.host.exit(process)
    world.take()
    assert world.results == [EvictResult.FAILED] and not world.evictor.ended()
    assert world.evictor.failed() == {Victim(VictimKind.POD, "a"): "nothing runs in its cgroup"}


def test_one_whose_cgroup_is_gone_is_passed_over_for_a_while(world: World) -> None:
    world.host.remove_cgroup(POD)
    world.take()
    assert world.evictor.failed() == {Victim(VictimKind.POD, "a"): "its cgroup does not exist"}
    assert not world.evictor.busy and not world.heard
    world.host.advance(evict.RETRY_S + 1)
    assert not world.evictor.failed()


def test_a_kernel_that_refuses_is_told(world: World) -> None:
    world.host.faults.add("*", op="signal", errno=errno.EPERM)
    world.take()
    assert world.results == [EvictResult.FAILED]
    assert "Operation not permitted" in world.heard[-1].text
    assert not world.evictor.busy and world.alive() == [True] * 3


def test_the_outcome_survives_the_journal(world: World) -> None:
    world.host.deaf |= {process.pid for process in world.members}
    world.take()
    stored = msgspec.json.decode((world.directory / "evictions").read_bytes())
    assert stored["evictions"][0]["title"] == "pod ns/a"


def test_a_way_may_forbid_all_others(world: World) -> None:
    asked, other = Asked("api"), Asked("other")
    world.ways = (asked, other)
    world.restart()
    world.take()
    asked.progress[0].error, asked.progress[0].forbids = "a budget does not allow it", True
    asked.progress[0].done = True
    world.run(0.1)
    assert world.results == [EvictResult.BEGUN, EvictResult.FAILED]
    assert world.heard[-1].text.endswith(
        "api failed: a budget does not allow it; not ended in another way"
    )
    assert other.progress == [] and all(world.alive())
    assert not world.evictor.busy
