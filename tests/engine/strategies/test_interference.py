"""Antagonists in the whole daemon, on a machine whose kernel counts what the test says."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from koordlet_fakefs.bpf.run_queue import FakeRunQueue

from koordlet.cli.show.blame import lines
from koordlet.decision.record import Kind
from koordlet.decision.resource import Resource
from koordlet.engine.runs import NOTE_EVERY_S
from koordlet.kernel.cgroup.layout import detect
from koordlet.qos.interference.by_cpi import Known, Victim
from koordlet.qos.interference.cpi2 import Cpi, Window
from koordlet.qos.interference.windows import Who
from tests.daemon.world import NO_ALARMS, World

MakeWorld = Callable[..., World]
WEB, SORT, DB = (f"{digit * 8}-2222-3333-4444-555555555555" for digit in "123")
ACT = "[strategies.interference]\nact = true\n"
MS = 1_000_000


class Scene:
    """LS pods ``web`` and ``db`` and the BE pod ``sort``, which uses a core; windows each second,
    since waiting is always worth a look."""

    def __init__(self, make_world: MakeWorld, body: str = "") -> None:
        self.world = make_world(NO_ALARMS + body)
        self.queue = FakeRunQueue()
        host = self.world.host
        host.make_run_queue = lambda: self.queue
        pods = {
            uid: host.make_pod("cgroupfs", tier, uid, [uid[0] * 64])
            for uid, tier in ((WEB, "burstable"), (SORT, "besteffort"), (DB, "burstable"))
        }
        self.cgroups = {uid: pod.containers[0] for uid, pod in pods.items()}
        root = detect(host).reference_root
        self.inodes = {uid: host.inode(f"{root}/{cgroup}") for uid, cgroup in self.cgroups.items()}
        host.spawn(self.cgroups[WEB], demand_cores=0.2, threads=1)
        host.spawn(self.cgroups[SORT], demand_cores=1.0, threads=1)
        self.world.start()
        self.seconds(30)

    def seconds(self, count: int, **waits_ms: int) -> None:
        """Each with such waits of ``web``."""
        uids = {"sort": SORT, "db": DB}
        for _ in range(count):
            self.queue.waits_for_others_ns += 60 * MS
            for name, ms in waits_ms.items():
                self.queue.wait(self.inodes[WEB], self.inodes[uids[name]], ms * MS)
            self.world.run(1)

    def quota(self, uid: str) -> object:
        return self.world.value(self.cgroups[uid], Resource.CPU_QUOTA_US)

    def noted(self) -> list[str]:
        """Pods that were reported, by what the decision log has."""
        self.world.parts.decisions.flush()
        found = []
        for event in self.world.parts.events.recent():
            record = event.decision
            if record is not None and record.kind is Kind.NOTE and record.owner == "interference":
                assert record.why.rule.startswith(f"interference.cpu.{WEB}.")
                found.append(record.why.rule.rpartition(".")[2])
        return found


def test_a_best_effort_culprit_is_held_back_and_released(make_world: MakeWorld) -> None:
    scene = Scene(make_world, ACT)
    scene.seconds(6, sort=300)
    assert scene.quota(SORT) == pytest.approx(50_000, rel=0.02)
    assert scene.quota(WEB) == -1
    scene.seconds(6, sort=300)
    assert scene.quota(SORT) == pytest.approx(25_000, rel=0.02)
    scene.seconds(50)
    assert scene.quota(SORT) == -1
    assert scene.noted()[0] == SORT


def test_a_latency_sensitive_culprit_is_reported_alone(make_world: MakeWorld) -> None:
    scene = Scene(make_world, ACT)
    scene.seconds(12, db=300)
    assert scene.noted() == [DB]
    assert scene.quota(DB) == -1


def test_blame_marks_who_is_an_antagonist_now(make_world: MakeWorld) -> None:
    scene = Scene(make_world)
    scene.seconds(6, sort=300, db=20)
    view = scene.world.views.blame(WEB, 30.0)()
    (culprits,) = (s.culprits for s in view.victims[0].stalls if s.resource == "cpu")
    assert {each.id: each.antagonist for each in culprits} == {SORT: True, DB: False}
    assert any(f"{SORT} (antagonist)" in line for line in lines(view, WEB))
    scene.seconds(12)
    view = scene.world.views.blame(WEB, 30.0)()
    assert not any("(antagonist)" in line for line in lines(view, WEB))


def test_blame_marks_who_slows_others_down(make_world: MakeWorld) -> None:
    """By cycles for each instruction: among the victims that wait, and where nobody else does."""
    scene = Scene(make_world)
    scene.seconds(6, db=1)
    runs = scene.world.engine.runs["interference"]
    suspect = Who("pod", SORT), 0.8
    cpi = Cpi(mean=1.2, variance=0.01, windows=20, bad=(True, True, True))
    window = Window(2.5, {suspect[0]: 1.0})
    known = {
        each[0]: Victim(Who("pod", each), 1.0, 0.0, cpi, (window,), suspect) for each in (WEB, DB)
    }
    gone = {"9": Victim(Who("pod", "gone"), 1.0, 0.0, cpi, (window,), suspect)}
    runs.memory = msgspec.structs.replace(runs.memory, cpi=Known(1.0, known | gone))
    view = scene.world.views.blame("", 30.0)()
    assert {each.id for each in view.victims} == {WEB, DB}
    for victim in view.victims:
        (by,) = victim.slowed_by
        assert (by.kind, by.id, by.qos) == ("pod", SORT, "BE")
        assert (by.correlation, by.cpi, by.normal) == (0.8, 2.5, 1.2)
        assert by.limit == pytest.approx(cpi.limit)
    rows = [line.split() for line in lines(view, "") if " caches " in line]
    assert [row[2:] for row in rows] == [["caches", "-", "-", SORT, "(antagonist)"]] * 2
    (of_db,) = scene.world.views.blame(DB, 30.0)().victims
    shown = list(lines(scene.world.views.blame(DB, 30.0)(), DB))
    assert of_db.id == DB
    assert " ".join(shown[-1].split()) == (f"{SORT} (antagonist) BE 0.80 2.50 1.20 {cpi.limit:.2f}")
    runs.memory = msgspec.structs.replace(runs.memory, cpi=Known(1.0))
    assert all(not each.slowed_by for each in scene.world.views.blame("", 30.0)().victims)


def test_a_second_antagonist_within_half_a_minute_is_recorded(make_world: MakeWorld) -> None:
    scene = Scene(make_world)
    scene.seconds(6, db=300)
    scene.seconds(6)
    scene.seconds(6, sort=300)
    assert scene.noted() == [DB, SORT]
    assert scene.quota(SORT) == -1


def test_each_episode_of_one_antagonist_is_recorded(make_world: MakeWorld) -> None:
    scene = Scene(make_world)
    for count in range(1, 4):
        scene.seconds(6, db=300)
        assert scene.noted() == [DB] * count
        scene.seconds(6)


def test_what_is_remembered_of_rules_is_bounded(make_world: MakeWorld) -> None:
    scene = Scene(make_world)
    scene.seconds(6, db=300)
    runs = scene.world.engine.runs["interference"]
    assert len(runs.recorded_s) == 1
    scene.seconds(int(NOTE_EVERY_S))
    scene.seconds(6, sort=300)
    assert list(runs.recorded_s) == [f"interference.cpu.{WEB}.{SORT}"]
