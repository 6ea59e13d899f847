"""What a look at once says, and for how long each sample stands."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import pytest
from koordlet_fakefs.bpf.run_queue import FakeRunQueue

from koordlet.collectors.waits.run_queue import RunQueueCollector
from koordlet.kernel.background import Pause, no_pause
from koordlet.kernel.bpf.run_queue import THROTTLED
from koordlet.protocol.qos import QoSClass
from koordlet.views.blame import Series, mean_of, weights_ms
from tests.collectors.world import UID, UID2, World

MS = 1_000_000
T = TypeVar("T")


class Scene:
    """An LS pod that waits for a BE pod as much as the test says, second by second."""

    def __init__(self) -> None:
        self.world = World("v2")
        self.queue = FakeRunQueue()
        self.world.host.make_run_queue = lambda: self.queue
        ls = self.world.pod("burstable", UID, "web", raw=QoSClass.LS)
        be = self.world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
        self.collector = RunQueueCollector(
            self.world.host, self.world.cgroups.layout, self.world.store
        )
        self.world.runner = self.world.runner_of(self.collector)
        root = self.world.cgroups.layout.reference_root
        self.web = self.world.host.inode(f"{root}/{ls.containers[0].cgroup}")
        self.batch = self.world.host.inode(f"{root}/{be.containers[0].cgroup}")

    def seconds(self, count: int, *, others_ms: float = 0.0, throttled_ms: float = 0.0) -> None:
        for _ in range(count):
            self.wait(others_ms, throttled_ms)
            self.world.rounds(1)

    def wait(self, others_ms: float = 0.0, throttled_ms: float = 0.0) -> None:
        self.queue.wait(self.web, self.batch, int(others_ms * MS))
        self.queue.wait(self.web, THROTTLED, int(throttled_ms * MS))
        self.queue.waits_for_others_ns += int(others_ms * MS)

    def points(self, kind: str, culprit: str | None = None) -> Series:
        store = self.world.store
        for series in store.select(kind, {}):
            labels = dict(store.describe(series)[1])
            if culprit in (None, labels.get("culprit_kind")):
                points = store.points(series, 0, int(self.world.host.time() * 1000))
                return Series(points.times, points.values)
        raise KeyError(kind, culprit)

    def waited(self, culprit: str) -> tuple[float, float]:
        """Milliseconds, and for how many of the last 50 seconds that is known, as the command
        blame reads it."""
        total, series = self.points("pod_cpu_wait_total"), self.points("pod_cpu_wait", culprit)
        weights = weights_ms(total.times_ms, int(self.world.host.time() * 1000) - 50_000)
        known_s = sum(weights) / 1000
        return mean_of(series, total.times_ms, weights) * known_s, known_s


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_throttling_that_was_always_there_does_not_grow_by_the_waits_of_others(
    scene: Scene,
) -> None:
    scene.seconds(9, throttled_ms=500.0)
    scene.seconds(1, others_ms=400.0, throttled_ms=500.0)
    assert scene.points("pod_cpu_wait", "throttled").values[-1] == pytest.approx(500.0)
    assert scene.points("pod_cpu_wait", "pod").values[-1] == pytest.approx(400.0)
    assert scene.points("pod_cpu_wait_total").values[-1] == pytest.approx(900.0)


def test_one_second_of_trouble_in_a_calm_minute_counts_as_one(scene: Scene) -> None:
    scene.seconds(35)
    scene.seconds(1, others_ms=400.0)
    scene.seconds(24)
    waited_ms, known_s = scene.waited("pod")
    assert waited_ms == pytest.approx(400.0, rel=0.01)
    assert known_s > 45


def test_calm_time_before_the_trouble_keeps_its_waits(scene: Scene) -> None:
    """20 ms a second for others, which is no suspicion, and 100 of throttling."""
    scene.seconds(39, others_ms=20.0, throttled_ms=100.0)
    scene.seconds(1, others_ms=400.0, throttled_ms=100.0)
    scene.seconds(20, others_ms=20.0, throttled_ms=100.0)
    waited_ms, known_s = scene.waited("pod")
    assert waited_ms == pytest.approx(20 * (known_s - 1) + 400, rel=0.01)
    waited_ms, known_s = scene.waited("throttled")
    assert waited_ms == pytest.approx(100 * known_s, rel=0.01)


def test_a_reading_that_ends_as_trouble_begins_is_not_lost(scene: Scene) -> None:
    scene.seconds(1)
    scene.seconds(10, throttled_ms=50.0)  # at the end of these the second look is due
    scene.seconds(1, others_ms=400.0)
    # 500 ms in the regular look, which came with the round before; then one second of trouble.
    throttled = scene.points("pod_cpu_wait", "throttled")
    assert 50.0 in [round(value, 3) for value in throttled.values]
    assert scene.points("pod_cpu_wait", "pod").values[-1] == pytest.approx(400.0)
    assert scene.points("pod_cpu_wait_total").values[-1] == pytest.approx(400.0)


def test_an_alarm_makes_the_last_second_known_at_once(scene: Scene) -> None:
    scene.seconds(18)
    scene.wait(others_ms=300.0)
    scene.world.host.advance(0.6)
    scene.world.runner.alarm()
    scene.world.host.advance(0.4)
    scene.wait(others_ms=200.0)
    scene.world.round()
    # 200 ms in the 0.4 s since the alarm; what came before is in the sample of that time.
    assert scene.points("pod_cpu_wait", "pod").values[-1] == pytest.approx(500.0)
    # The look before came a round late, as all regular ones: a second more or less.
    assert scene.waited("pod")[0] == pytest.approx(500.0, rel=0.1)


def test_an_alarm_in_calm_times_is_not_drowned_by_them(scene: Scene) -> None:
    """Trouble below the bound of suspicion."""
    scene.seconds(8)
    scene.world.runner.alarm()
    scene.seconds(1, others_ms=40.0)
    assert scene.points("pod_cpu_wait", "pod").values[-1] == pytest.approx(40.0)


class Slow:
    """A background whose work ends when the test says."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.holds = False

    def submit(self, work: Callable[[Pause], T], delay_s: float = 0.0) -> Future[T]:
        future: Future[T] = Future()
        self.waiting.append(lambda: future.set_result(work(no_pause)))
        if not self.holds:
            self.finish()
        return future

    def finish(self) -> None:
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each()

    def close(self, last: Callable[[], None]) -> None:
        last()


def test_a_look_that_takes_too_long_costs_no_round_beyond_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Slow()
    monkeypatch.setattr("koordlet_fakefs.host.FakeHost.background", lambda *_: slow)
    monkeypatch.setattr("koordlet.collectors.waits.readings.AT_ONCE_S", 0.01)
    scene = Scene()
    scene.seconds(5)
    slow.holds = True
    scene.seconds(1, others_ms=400.0)
    slow.holds = False
    slow.finish()
    scene.seconds(1, others_ms=500.0)
    # Both of them: the late one in a round of its own before this one.
    assert scene.points("pod_cpu_wait", "pod").values[-2:] == pytest.approx([400.0, 500.0])
