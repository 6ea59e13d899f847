"""The collector on the fake machine, whose kernel counts what the test says."""

from __future__ import annotations

import errno
from typing import NoReturn

import pytest
from koordlet_fakefs.bpf.run_queue import FakeRunQueue

from koordlet.collectors.waits.readings import CLOSE_S, TRY_AGAIN_S
from koordlet.collectors.waits.run_queue import RunQueueCollector
from koordlet.collectors.waits.series import KEEP_S
from koordlet.decision.snapshot import Capability
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.bpf.run_queue import IDLE, OLDER, SLOTS, THROTTLED
from koordlet.protocol.qos import QoSClass
from tests.collectors.world import UID, UID2, World

MS = 1_000_000


@pytest.fixture(params=["hybrid", "v2"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


@pytest.fixture
def queue(world: World) -> FakeRunQueue:
    queue = FakeRunQueue()
    world.host.make_run_queue = lambda: queue
    return queue


def _watch(world: World, every_s: float = 10.0) -> RunQueueCollector:
    collector = RunQueueCollector(world.host, world.cgroups.layout, world.store, every_s)
    world.runner = world.runner_of(collector)
    return collector


def _id(world: World, cgroup: str) -> int:
    return world.host.inode(f"{world.cgroups.layout.reference_root}/{cgroup}")


def _samples(world: World, rounds: int) -> dict[tuple[str, ...], float]:
    """Of the last ``rounds`` rounds together."""
    found: dict[tuple[str, ...], float] = {}
    for _ in range(rounds):
        found |= world.samples(world.rounds())
    return found


def test_waits_are_told_by_culprit(world: World, queue: FakeRunQueue) -> None:
    ls = world.pod("burstable", UID, "web", "sidecar", raw=QoSClass.LS)
    be = world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    world.host.make_cgroup("system.slice/ssh.service")
    _watch(world)
    world.rounds(2)
    web, sidecar = (_id(world, container.cgroup) for container in ls.containers)
    assert queue.watched == {web, sidecar}
    batch = _id(world, be.containers[0].cgroup)
    for culprit, ms in (
        (batch, 400),
        (sidecar, 50),
        (_id(world, "system.slice/ssh.service"), 30),
        (1, 20),
        (IDLE, 10),
        (THROTTLED, 5),
        (OLDER, 4),
        (987654321, 3),
    ):
        queue.wait(web, culprit, ms * MS)
    queue.wait(sidecar, batch, 100 * MS)
    found = _samples(world, 10)
    cells = {key[1:]: value for key, value in found.items() if key[0] == "pod_cpu_wait"}
    assert cells == {
        (UID2, "pod", UID): pytest.approx(50.0),
        ("", "self", UID): pytest.approx(5.0),
        ("system.slice/ssh.service", "system", UID): pytest.approx(3.0),
        ("/", "system", UID): pytest.approx(2.0),
        ("", "idle", UID): pytest.approx(1.0),
        ("", "throttled", UID): pytest.approx(0.5),
        ("", "older", UID): pytest.approx(0.4),
        ("", "gone", UID): pytest.approx(0.3),
    }
    assert found["pod_cpu_wait_total", UID] == pytest.approx(62.2)


def test_cgroups_that_a_container_made_are_its_own(world: World, queue: FakeRunQueue) -> None:
    ls = world.pod("guaranteed", UID, "web")
    inner = f"{ls.containers[0].cgroup}/init.scope"
    world.host.make_cgroup(inner)
    _watch(world)
    world.rounds(2)
    assert _id(world, inner) in queue.watched
    queue.wait(_id(world, inner), _id(world, ls.containers[0].cgroup), 10 * MS)
    assert _samples(world, 10)["pod_cpu_wait", "", "self", UID] == pytest.approx(1.0)


def test_an_application_is_a_victim_and_a_culprit(world: World, queue: FakeRunQueue) -> None:
    world.application("shop", "shop.slice")
    world.application("batch", "batch.slice", QoSClass.BE)
    _watch(world)
    world.rounds(2)
    assert queue.watched == {_id(world, "shop.slice")}
    queue.wait(_id(world, "shop.slice"), _id(world, "batch.slice"), 70 * MS)
    found = _samples(world, 10)
    key = "host_application_cpu_wait", "batch", "application", "shop"
    assert found[key] == pytest.approx(7.0)
    assert found["host_application_cpu_wait_total", "shop"] == pytest.approx(7.0)


def test_quantiles_are_of_the_waits_since_the_last_reading(
    world: World, queue: FakeRunQueue
) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    web = _id(world, ls.containers[0].cgroup)
    slots = queue.slots[web] = [0] * SLOTS
    slots[20] = 1000
    _watch(world)
    world.rounds(2)
    slots[3] += 100
    found = _samples(world, 10)
    assert found["container_run_queue_latency", "web", "p50"] == pytest.approx(4.096 * 1.5)
    assert found["container_run_queue_latency", "web", "p99"] == pytest.approx(4.096 * 1.99)
    # Nobody waited since: no quantile, not 0.
    assert not [key for key in _samples(world, 10) if key[0] == "container_run_queue_latency"]


def test_a_culprit_that_stops_stands_at_zero_for_a_minute(
    world: World, queue: FakeRunQueue
) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    world.pod("besteffort", UID2, "batch")
    _watch(world)
    world.rounds(2)
    queue.wait(_id(world, ls.containers[0].cgroup), _id(world, world.pods[1].cgroup), 10 * MS)
    key = "pod_cpu_wait", UID2, "pod", UID
    assert _samples(world, 10)[key] == pytest.approx(1.0)
    assert _samples(world, 10)[key] == 0.0
    assert _samples(world, int(KEEP_S))[key] == 0.0
    assert key not in _samples(world, 10)
    assert _samples(world, 10)["pod_cpu_wait_total", UID] == 0.0


def test_an_alarm_makes_it_look_each_second_for_a_while(world: World, queue: FakeRunQueue) -> None:
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    _watch(world)
    world.rounds(5)
    assert queue.reads == 1
    world.runner.alarm()
    world.rounds(6)
    # One at once; then each reading comes with the round after it.
    assert queue.reads == 1 + 1 + 6
    world.rounds(int(CLOSE_S))
    alarmed = queue.reads
    world.rounds(10)
    assert queue.reads == alarmed + 1


def test_a_round_that_comes_early_is_not_missed(world: World, queue: FakeRunQueue) -> None:
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    _watch(world)
    world.rounds(5)
    world.runner.alarm()
    for turn in range(6):
        world.host.advance(1.002 if turn % 2 else 0.998)
        world.round()
    assert queue.reads == 1 + 1 + 6


def test_a_machine_that_lacks_it_says_so_once_and_is_asked_again(world: World) -> None:
    collector = _watch(world)
    world.rounds(3)
    assert collector.capabilities == (
        Capability(
            "bpf-run-queue",
            False,
            "/sys/kernel/btf/vmlinux: ENOENT (the kernel has no BTF (CONFIG_DEBUG_INFO_BTF))",
            "who makes latency-sensitive work wait for a CPU is not known (koordlet blame)",
            "use a kernel with CONFIG_DEBUG_INFO_BTF, 5.12 or later",
        ),
    )
    assert world.runner.capabilities() == collector.capabilities
    queue = FakeRunQueue()
    world.host.make_run_queue = lambda: queue
    world.rounds(100)
    assert queue.reads == 0
    world.rounds(int(TRY_AGAIN_S))
    assert queue.reads > 0
    assert collector.capabilities[0].supported


def test_where_lengths_alone_are_measured_nobody_is_said_not_to_wait(
    world: World, queue: FakeRunQueue
) -> None:
    """As through BCC."""
    queue.has_matrix = False
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    world.application("shop", "shop.slice")
    slots = queue.slots[_id(world, ls.containers[0].cgroup)] = [0] * SLOTS
    collector = _watch(world)
    world.rounds(2)
    slots[3] += 100
    found = _samples(world, 10)
    assert {key[0] for key in found} == {"container_run_queue_latency"}
    assert found["container_run_queue_latency", "web", "p50"] == pytest.approx(4.096 * 1.5)
    matrix, lengths = collector.capabilities
    assert (matrix.feature, matrix.supported) == ("bpf-run-queue", False)
    assert "histogram alone" in matrix.why
    assert "not known" in matrix.cost
    assert matrix.remedy == "use a kernel with CONFIG_DEBUG_INFO_BTF, 5.12 or later"
    assert (lengths.feature, lengths.supported) == ("bcc-run-queue", True)
    assert lengths.why.startswith("compiled with BCC: attached")


def test_what_was_tried_comes_with_its_own_remedy(world: World) -> None:
    def refuse() -> NoReturn:
        raise NeedError(errno.ENOENT, "no BTF; no module bcc", "/btf", "install it")

    world.host.make_run_queue = refuse
    collector = _watch(world)
    world.rounds(3)
    (found,) = collector.capabilities
    assert found.why == "/btf: ENOENT (no BTF; no module bcc)"
    assert found.remedy == "install it"


def test_a_reading_that_fails_is_a_failure_of_the_round(world: World, queue: FakeRunQueue) -> None:
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    _watch(world)
    world.rounds(2)
    queue.error = OSError(errno.EIO, "broken", "bpf(MAP_LOOKUP_BATCH)")
    world.rounds(10)
    (health,) = world.runner.health()
    assert "bpf(MAP_LOOKUP_BATCH)" in health.error
    queue.error = None
    world.rounds(10)
    (health,) = world.runner.health()
    assert health.success


def test_what_is_shed_leaves_the_kernel_and_comes_back(world: World, queue: FakeRunQueue) -> None:
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    collector = _watch(world)
    world.rounds(2)
    collector.close()
    assert queue.closed
    again = FakeRunQueue()
    world.host.make_run_queue = lambda: again
    world.rounds(12)
    assert again.reads == 2


def test_many_waits_together_make_it_look_each_second(world: World, queue: FakeRunQueue) -> None:
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    _watch(world)
    for _ in range(31):
        queue.waits_for_others_ns += 20 * MS
        world.rounds(1)
    calm = queue.reads
    assert calm == 4
    for _ in range(3):
        queue.waits_for_others_ns += 200 * MS
        world.rounds(1)
    # One at once, then one for each round.
    assert queue.reads == calm + 4


def test_the_first_second_of_trouble_counts_as_a_second(world: World, queue: FakeRunQueue) -> None:
    """Eight calm seconds after a reading, then one in which everything happens."""
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    be = world.pod("besteffort", UID2, "batch")
    _watch(world)
    world.rounds(9)
    queue.wait(_id(world, ls.containers[0].cgroup), _id(world, be.containers[0].cgroup), 400 * MS)
    queue.waits_for_others_ns += 400 * MS
    found = world.samples(world.rounds())
    assert found["pod_cpu_wait", UID2, "pod", UID] == pytest.approx(400.0)
