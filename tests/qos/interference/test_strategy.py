"""Who is reported and who is held back, on snapshots in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from koordlet.decision.metrics import (
    CONTAINER_CPU_USAGE,
    CPU_WAIT,
    HOST_APPLICATION_CPU_USAGE,
    IO_WAIT,
    MEMORY_WAIT,
    POD_CPU_USAGE,
    POD_PSI,
    WaitMetrics,
)
from koordlet.decision.plan import Decision
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.inputs.digest import digest
from koordlet.inputs.packing import packed, unpacked
from koordlet.qos.interference import notes
from koordlet.qos.interference.by_waits import LOOK_AGAIN_S, MOST_PAIRS
from koordlet.qos.interference.hold import LEAST_CORES
from koordlet.qos.interference.pairs import LEARN
from koordlet.qos.interference.strategy import (
    STRATEGY,
    InterferenceOptions,
    InterferenceState,
    decide,
)
from koordlet.qos.interference.windows import Who, hurries
from tests.qos.build import Kernel, Metrics, app, be_pod, node, pod, snapshot

WEB, SORT, DB = "web", "sort", "db"
HELD = "kubepods/besteffort/podsort/c"
WAITS = "pod default/web waits for a CPU"


class Scene:
    """Pod ``web`` (LS), pod ``sort`` (BE, one container), pod ``db`` (LS), each second a window.
    ``calm``: windows in which nobody waited come first."""

    def __init__(self, *, act: bool = False, calm: int = LEARN) -> None:
        self.metrics = Metrics(age_s=0.1)
        self.kernel = Kernel()
        self.kernel.add(HELD, quota=-1, period=100_000)
        self.kernel.add("batch.slice", quota=-1, period=100_000)
        self.options = InterferenceOptions(act=act)
        self.memory = InterferenceState()
        self.now = 1000.0
        self.used: float | None = 0.8
        self.pods = (
            pod(WEB, name=WEB, namespace="default"),
            be_pod(SORT, name=SORT, namespace="default", containers=("c",)),
            pod(DB, name=DB, namespace="default"),
        )
        self.applications = (app("shop", "LS", "shop.slice"), app("batch", "BE", "batch.slice"))
        self.decision = self.again()
        self.now += LOOK_AGAIN_S
        for _ in range(calm):
            self.window()

    def _snapshot(self) -> Snapshot:
        return snapshot(
            node(4),
            pods=self.pods,
            apps=self.applications,
            metrics_=self.metrics,
            in_force=self.kernel,
            now=self.now,
        )

    def window(self, of: WaitMetrics = CPU_WAIT, **waits_ms: float) -> Decision:
        """One second in which ``web`` ran 200 ms and waited for others (``sort=300``)."""
        self.now += 1
        samples = self.metrics.samples
        samples.clear()
        samples[POD_CPU_USAGE.kind, (WEB,)] = 0.2
        if self.used is not None:
            samples[CONTAINER_CPU_USAGE.kind, ("c",)] = self.used
        samples[of.pod_total.kind, (WEB,)] = sum(waits_ms.values())
        kinds = {"sort": "pod", "db": "pod", "batch": "application"}
        for name, ms in waits_ms.items():
            kind = "self" if name == "own" else kinds.get(name, name)
            labels = (WEB, name if name in kinds else "", kind)
            samples[of.pod.kind, labels] = ms
        samples[HOST_APPLICATION_CPU_USAGE.kind, ("batch",)] = 1.0
        return self.again()

    def again(self) -> Decision:
        """A turn without a new window."""
        self.decision = decide(self._snapshot(), self.memory, self.options)
        self.kernel.take(self.decision.plan)
        self.memory = self.decision.memory
        return self.decision

    def quota(self, cgroup: str = HELD) -> object:
        return self.kernel.value(cgroup, Resource.CPU_QUOTA_US)


def _texts(decision: Decision) -> list[str]:
    return [note.text for note in decision.notes]


def test_a_culprit_is_reported_in_the_second_window_where_it_is_clear() -> None:
    scene = Scene()
    assert scene.window(sort=30.0).notes == ()
    assert len(scene.window(sort=30.0).notes) == 1
    scene = Scene()
    for _ in range(2):
        assert scene.window(sort=20.0).notes == ()
    assert len(scene.window(sort=20.0).notes) == 1


def test_the_victim_itself_is_reported_in_the_third_window() -> None:
    scene = Scene()
    for _ in range(2):
        assert scene.window(own=300.0).notes == ()
    assert len(scene.window(own=300.0).notes) == 1
    scene = Scene()
    for _ in range(2):
        assert scene.window(throttled=300.0).notes == ()
    assert len(scene.window(throttled=300.0).notes) == 1


def test_who_only_follows_another_one_is_reported_in_the_third_window() -> None:
    assert not hurries(Who("self", ""))
    for kind in ("pod", "application", "system", "rest"):
        assert hurries(Who(kind, ""))


def test_a_culprit_is_reported_with_its_figures() -> None:
    scene = Scene(calm=0)
    for _ in range(20):
        assert scene.window(sort=10.0).notes == ()
    assert scene.window(sort=300.0).notes == ()
    assert len(scene.window(sort=300.0).notes) == 1
    (note,) = scene.window(sort=300.0).notes
    assert note.rule == "interference.cpu.web.sort"
    assert note.text == (
        "pod default/web waits for a CPU because of pod default/sort; "
        "with act = true it would be held back while the victim suffers"
    )
    inputs = {each.name: each.value for each in note.inputs}
    assert inputs["blame"] == pytest.approx(300 / 500)
    assert inputs["normal"] == pytest.approx(10 / 210, abs=1e-4)
    assert (inputs["wait"], inputs["demand"]) == (300.0, 500.0)
    assert inputs["waits for others"] == pytest.approx(300 / 500)
    assert inputs["its normal"] == pytest.approx(10 / 210, abs=1e-4)
    assert inputs["suffers"] is True
    assert (inputs["bad windows"], inputs["clear windows"]) == (3, 2)
    assert {each.window_s for each in note.inputs if each.name in ("wait", "demand")} == {1.0}
    (gauge,) = scene.decision.gauges
    assert gauge.labels == ("cpu", "pod", WEB, "pod", SORT)
    assert gauge.value == pytest.approx(0.6)
    assert scene.decision.plan.settings == ()


def test_a_neighbour_that_takes_a_fifth_from_the_start_is_normal() -> None:
    scene = Scene(act=True, calm=0)
    for _ in range(500):
        assert scene.window(sort=50.0).notes == ()
    assert scene.quota() == -1
    for _ in range(3):
        scene.window(sort=600.0)
    assert len(scene.decision.notes) == 1


def test_a_victim_that_comes_later_learns_as_well() -> None:
    scene = Scene()
    pods, scene.pods = scene.pods, scene.pods[1:]
    scene.window()
    scene.pods = pods
    scene.now += LOOK_AGAIN_S
    for _ in range(50):
        assert scene.window(sort=50.0).notes == ()


def test_one_that_comes_later_is_an_antagonist_for_as_long_as_it_stays() -> None:
    scene = Scene()
    for _ in range(500):
        scene.window(sort=50.0)
    assert len(scene.decision.notes) == 1


def test_a_turn_without_a_new_window_counts_nothing() -> None:
    scene = Scene()
    scene.window(sort=300.0)
    for _ in range(10):
        scene.metrics.age_s += 0.2
        scene.now += 0.2
        assert scene.again().notes == ()
    scene.metrics.age_s = 0.1
    scene.window(sort=300.0)
    assert len(scene.window(sort=300.0).notes) == 1


def test_the_reason_depends_on_whose_the_culprit_is() -> None:
    scene = Scene()
    for _ in range(3):
        scene.window(throttled=200.0, system=100.0, db=150.0, rest=90.0)
    assert sorted(_texts(scene.decision)) == [
        f"{WAITS} because of many pods together",
        f"{WAITS} because of pod default/db; it is not best-effort, so it is only reported",
        f"{WAITS}: its own CPU limit keeps it waiting: raise it, or let it burst",
        f"{WAITS}: work outside pods and applications keeps it waiting",
    ]
    scene = Scene()
    for _ in range(3):
        scene.window(own=100.0)
    assert _texts(scene.decision) == [
        f"{WAITS}: its own tasks keep each other waiting: it needs more CPUs"
    ]


def test_what_grows_with_a_disturbance_is_not_its_cause() -> None:
    """Tasks pile up, and the kernel writes what others have written."""
    scene = Scene()
    for _ in range(20):
        scene.window(sort=300.0, own=200.0)
    assert len(scene.decision.notes) == 1
    for _ in range(2):
        scene.window(own=200.0)
        assert not scene.decision.notes
    scene.window(own=200.0)
    assert len(scene.decision.notes) == 1
    for waits in (IO_WAIT, CPU_WAIT):
        scene = Scene(calm=0)
        for _ in range(LEARN):
            scene.window(waits)
        for _ in range(5):
            scene.window(waits, sort=300.0)
            scene.metrics.samples[waits.pod.kind, (WEB, "", "kernel")] = 300.0
            scene.now += 1
            scene.again()
        assert len(scene.decision.notes) == 1


def test_nobody_is_blamed_for_what_is_nobody_s_doing() -> None:
    """A slow wake-up, what is not remembered, and the own service of a disk's requests."""
    for waits in (CPU_WAIT, IO_WAIT, MEMORY_WAIT):
        scene = Scene(calm=0)
        for _ in range(LEARN):
            scene.window(waits)
        for _ in range(5):
            scene.window(waits, idle=300.0, older=300.0, gone=300.0)
        assert scene.decision.notes == ()
        for _ in range(5):
            scene.window(waits, own=900.0)
        assert len(scene.decision.notes) == (waits is not IO_WAIT)
    (text,) = _texts(scene.decision)
    assert text == (
        "pod default/web waits for memory: it takes memory faster than it is freed, and has no "
        "limit of its own: the node is short of memory"
    )


@pytest.mark.parametrize("limited", [False, True])
def test_only_a_limit_that_is_there_is_raised(limited: bool) -> None:
    """tests/qos/interference/test_memory_room.py has the rest."""
    scene = Scene(calm=0)
    if limited:
        scene.kernel.values[scene.pods[0].cgroup, Resource.MEMORY_LIMIT] = 1 << 30
    for own_ms in (*[0.0] * LEARN, *[900.0] * 5):
        scene.window(MEMORY_WAIT, own=own_ms)
    (text,) = _texts(scene.decision)
    assert text.endswith("it is freed: raise its memory limit") is limited


def test_only_so_many_are_named_and_the_rest_is_counted() -> None:
    scene = Scene()
    for _ in range(3):
        scene.window()
        samples = scene.metrics.samples
        samples[CPU_WAIT.pod_total.kind, (WEB,)] = 1100.0
        for number in range(notes.MOST + 3):
            samples[CPU_WAIT.pod.kind, (WEB, f"p{number}", "pod")] = 100.0
        scene.now += 1
        scene.again()
    *named, more = scene.decision.notes
    assert len({note.rule for note in named}) == notes.MOST
    assert (more.rule, more.text[:29]) == ("interference.more", "there are 3 more antagonists;")
    assert len(scene.decision.gauges) == notes.MOST + 3


_ORDERS = """
from tests.qos.interference.test_strategy import many
print(*many())
"""


def many() -> list[int]:
    """Digests of decisions about twelve culprits of equal blame."""
    scene = Scene()
    found = []
    for _ in range(4):
        scene.window()
        samples = scene.metrics.samples
        samples[CPU_WAIT.pod_total.kind, (WEB,)] = 1200.0
        for number in range(12):
            samples[CPU_WAIT.pod.kind, (WEB, f"p{number}", "pod")] = 100.0
        scene.now += 1
        found.append(digest(scene.again()))
    return found


def test_decisions_do_not_depend_on_the_seed_of_hashes() -> None:
    repository = Path(__file__).parents[3]
    found = {
        subprocess.run(
            [sys.executable, "-c", _ORDERS],
            env=os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(repository)},
            cwd=repository,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in range(4)
    }
    assert len(found) == 1


def test_only_the_culprit_is_held_back_and_more_while_it_goes_on() -> None:
    scene = Scene(act=True)
    for _ in range(2):
        scene.window(sort=300.0)
    assert scene.quota() == 40_000  # half of 0.8 cores
    assert scene.quota("batch.slice") == -1
    for _ in range(4):
        scene.window(sort=300.0)
    assert scene.quota() == 40_000  # what a step did must be seen first
    scene.window(sort=300.0)
    assert scene.quota() == 20_000
    for _ in range(40):
        scene.window(sort=300.0)
    assert scene.quota() == LEAST_CORES * 100_000


def test_it_gets_its_cpu_back_step_by_step() -> None:
    scene = Scene(act=True)
    for _ in range(3):
        scene.window(sort=300.0)
    for _ in range(3):
        scene.window(sort=0.0)
    assert scene.quota() == 40_000  # the last step is fresh
    seen = []
    for _ in range(12):
        scene.window(sort=0.0)
        seen.append(scene.quota())
    # Half as much again would then be more than it used.
    assert list(dict.fromkeys(seen)) == [60_000, -1]


def test_a_victim_that_does_not_suffer_needs_no_help() -> None:
    """0.06 of its demand: bad for the pair, but less than a tenth in all."""
    scene = Scene(act=True)
    for _ in range(5):
        scene.window(sort=13.0)
    assert len(scene.decision.notes) == 1
    assert scene.quota() == -1


def test_a_victim_under_pressure_suffers_whatever_its_waits_are() -> None:
    scene = Scene(act=True)
    for psi in (14.0, 15.0):
        for _ in range(5):
            scene.window(sort=13.0)
            scene.metrics.samples[POD_PSI.kind, (WEB, "cpu", "10", "some")] = psi
            scene.now += 1
            scene.again()
        assert (scene.quota() == -1) is (psi < 15)


def test_without_a_reading_of_its_use_there_is_no_step() -> None:
    scene = Scene(act=True)
    scene.used = None
    for _ in range(20):
        scene.window(sort=300.0)
    assert scene.quota() == -1
    assert "it is left alone" in _texts(scene.decision)[0]
    scene.used = 0.8
    scene.window(sort=300.0)
    assert scene.quota() == 40_000
    assert "it is held back" in _texts(scene.decision)[0]


def test_a_hold_loosens_no_limit() -> None:
    scene = Scene(act=True)
    scene.kernel.values[HELD, Resource.CPU_QUOTA_US] = 2_000
    scene.used = 0.02
    for _ in range(5):
        scene.window(sort=300.0)
    assert scene.quota() == 2_000
    assert scene.decision.plan.settings == ()
    scene.used = 0.8
    scene.kernel.values[HELD, Resource.CPU_QUOTA_US] = 30_000
    scene.window(sort=300.0)
    assert scene.decision.plan.settings == ()  # half of its use would be more
    assert "it is held back" not in _texts(scene.decision)[0]
    for _ in range(5):
        scene.window(sort=300.0)
    assert scene.quota() == 20_000


def test_old_evidence_cuts_nothing_and_ends() -> None:
    scene = Scene(act=True)
    for _ in range(3):
        scene.window(sort=300.0)
    assert scene.quota() == 40_000
    for _ in range(11):
        scene.now += 1
        scene.metrics.age_s += 1
        scene.again()
    assert scene.quota() == 40_000
    for _ in range(20):
        scene.now += 1
        scene.metrics.age_s += 1
        scene.again()
    assert scene.decision.notes == ()
    assert scene.quota() == -1


def test_a_hold_says_for_whom_it_is() -> None:
    scene = Scene(act=True)
    for _ in range(3):
        scene.window(sort=300.0)
    (setting,) = scene.decision.plan.settings
    assert setting.why.text == ("because of it pod default/web waits for a CPU: 0.40 cores for now")
    assert {each.name: each.value for each in setting.why.inputs} == {
        "used before": 0.8,
        "blame": 0.6,
    }


def test_its_memory_can_be_written_down() -> None:
    scene = Scene(act=True)
    for _ in range(3):
        scene.window(sort=300.0)
    assert scene.memory.held
    assert unpacked(packed(scene.memory), InterferenceState) == scene.memory


def test_it_declares_what_it_uses() -> None:
    assert {"bpf-run-queue", "bpf-block-io", "bpf-memory-stalls", "pmu"} < set(STRATEGY.uses)


def test_an_application_is_held_back_too() -> None:
    scene = Scene(act=True)
    for _ in range(3):
        scene.window(batch=300.0)
    assert scene.quota("batch.slice") == 50_000


def test_switched_off_gives_everything_back() -> None:
    scene = Scene(act=True)
    for _ in range(3):
        scene.window(sort=300.0)
    scene.options = InterferenceOptions(act=False)
    scene.window(sort=300.0)
    assert scene.quota() == -1


def test_a_victim_may_be_an_application() -> None:
    scene = Scene()
    samples = scene.metrics.samples
    samples[HOST_APPLICATION_CPU_USAGE.kind, ("shop",)] = 0.5
    samples[CPU_WAIT.app_total.kind, ("shop",)] = 500.0
    for _ in range(LEARN):
        scene.now += 1
        scene.again()
    samples[CPU_WAIT.application.kind, ("shop", SORT, "pod")] = 500.0
    for _ in range(3):
        scene.now += 1
        scene.again()
    (text,) = _texts(scene.decision)
    assert "application shop waits for a CPU because of pod default/sort" in text


def test_a_victim_that_is_gone_takes_its_pairs_along() -> None:
    scene = Scene()
    for _ in range(3):
        scene.window(sort=300.0)
    assert scene.memory.waits.pairs
    scene.pods = scene.pods[1:]
    scene.metrics.samples[CPU_WAIT.pod_total.kind, (DB,)] = 1.0
    scene.metrics.samples[POD_CPU_USAGE.kind, (DB,)] = 1.0
    scene.now += 1
    scene.again()
    assert not scene.memory.waits.pairs
    assert not scene.memory.waits.suffering


def test_a_resource_that_nobody_measures_is_looked_for_now_and_then() -> None:
    scene = Scene(calm=0)
    scene.metrics.samples.clear()
    scene.again()
    assert scene.memory.waits.unmeasured == {"cpu": scene.now, "io": scene.now, "memory": scene.now}
    since = scene.now
    scene.window(sort=300.0)
    assert not scene.memory.waits.pairs
    while scene.now < since + LOOK_AGAIN_S:
        scene.window(sort=300.0)
    assert scene.memory.waits.pairs


def test_pairs_are_bounded() -> None:
    scene = Scene()
    scene.window()
    for number in range(MOST_PAIRS + 500):
        scene.metrics.samples[CPU_WAIT.pod.kind, (WEB, f"p{number}", "pod")] = 100.0
    scene.metrics.samples[CPU_WAIT.pod_total.kind, (WEB,)] = 700.0
    scene.now += 1
    scene.again()
    assert len(scene.memory.waits.pairs) == MOST_PAIRS
