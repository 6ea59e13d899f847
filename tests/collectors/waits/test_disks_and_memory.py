"""The collectors on the fake machine, whose kernel counts what the test says."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs.bpf.stalls import FakeBlockIo, FakeInterrupts, FakeStalls

from koordlet.collectors.waits.block import BlockCollector
from koordlet.collectors.waits.interrupts import InterruptCollector
from koordlet.collectors.waits.memory import MemoryCollector
from koordlet.collectors.waits.readings import CLOSE_S, TRY_AGAIN_S
from koordlet.decision.snapshot import Capability
from koordlet.kernel.bpf.block import IDLE, KERNEL, OLDER
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.irq import Interrupted
from koordlet.kernel.bpf.stalls import MACHINE
from koordlet.protocol.qos import QoSClass
from tests.collectors.world import UID, UID2, World

MS = 1_000_000
Samples = dict[tuple[str, ...], float]


@pytest.fixture(params=["hybrid", "v2"])
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


@pytest.fixture
def block_io(world: World) -> FakeBlockIo:
    block_io = FakeBlockIo()
    world.host.make_block_io = lambda: block_io
    return block_io


@pytest.fixture
def stalls(world: World) -> FakeStalls:
    stalls = FakeStalls()
    world.host.make_stalls = lambda: stalls
    return stalls


@pytest.fixture
def interrupts(world: World) -> FakeInterrupts:
    interrupts = FakeInterrupts()
    world.host.make_interrupts = lambda: interrupts
    return interrupts


def _block(world: World) -> BlockCollector:
    collector = BlockCollector(world.host, world.cgroups.layout, world.store)
    world.runner = world.runner_of(collector)
    return collector


def _memory(world: World) -> MemoryCollector:
    collector = MemoryCollector(world.host, world.cgroups.layout, world.store)
    world.runner = world.runner_of(collector)
    return collector


def _interrupts(world: World) -> InterruptCollector:
    collector = InterruptCollector(world.host, world.cgroups.layout, world.store)
    world.runner = world.runner_of(collector)
    return collector


def _id(world: World, cgroup: str, controller: str) -> int:
    """In the hierarchy by which the kernel counts this."""
    layout = world.cgroups.layout
    return world.host.inode(f"{layout.v1.get(controller, layout.v2)}/{cgroup}")


def _samples(world: World, rounds: int) -> Samples:
    """Of the last ``rounds`` rounds together."""
    found: Samples = {}
    for _ in range(rounds):
        found |= world.samples(world.rounds())
    return found


def _cells(found: Samples, kind: str) -> Samples:
    return {key[1:]: value for key, value in found.items() if key[0] == kind}


def test_io_waits_are_told_by_culprit(world: World, block_io: FakeBlockIo) -> None:
    ls = world.pod("burstable", UID, "web", "sidecar", raw=QoSClass.LS)
    be = world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    world.host.make_cgroup("system.slice/ssh.service")
    _block(world)
    world.rounds(2)
    web, sidecar, batch, ssh = (
        _id(world, cgroup, "blkio")
        for cgroup in (
            *(container.cgroup for container in ls.containers),
            be.containers[0].cgroup,
            "system.slice/ssh.service",
        )
    )
    assert block_io.watched == {web, sidecar}
    for culprit, ms in (
        *((web, 200), (sidecar, 50), (batch, 400), (ssh, 30), (KERNEL, 20), (IDLE, 10)),
        *((OLDER, 4), (987654321, 3)),
    ):
        block_io.wait(web, culprit, ms * MS)
    block_io.wait(sidecar, batch, 100 * MS)
    found = _samples(world, 10)
    assert _cells(found, "pod_io_wait") == {
        (UID2, "pod", UID): pytest.approx(50.0),
        ("", "self", UID): pytest.approx(25.0),
        ("system.slice/ssh.service", "system", UID): pytest.approx(3.0),
        ("", "kernel", UID): pytest.approx(2.0),
        ("", "idle", UID): pytest.approx(1.0),
        ("", "older", UID): pytest.approx(0.4),
        ("", "gone", UID): pytest.approx(0.3),
    }
    assert found["pod_io_wait_total", UID] == pytest.approx(81.7)


def test_an_application_waits_for_disks_too(world: World, block_io: FakeBlockIo) -> None:
    world.application("shop", "shop.slice")
    world.application("batch", "batch.slice", QoSClass.BE)
    _block(world)
    world.rounds(2)
    shop, batch = (_id(world, cgroup, "blkio") for cgroup in ("shop.slice", "batch.slice"))
    assert block_io.watched == {shop}
    block_io.wait(shop, batch, 70 * MS)
    found = _samples(world, 10)
    key = "host_application_io_wait", "batch", "application", "shop"
    assert found[key] == pytest.approx(7.0)
    assert found["host_application_io_wait_total", "shop"] == pytest.approx(7.0)


def test_latency_is_told_by_stage_and_only_of_new_requests(
    world: World, block_io: FakeBlockIo
) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    web = _id(world, ls.containers[0].cgroup, "blkio")
    block_io.serve(web, queue_slot=20, device_slot=20, requests=1000)
    _block(world)
    world.rounds(2)
    block_io.serve(web, queue_slot=0, device_slot=3, requests=100)
    cells = _cells(_samples(world, 10), "container_io_latency")
    # Slot 0 is for less than 1.024 us, slot 3 from 4.096 us to twice that.
    assert cells["web", "p50", "queue"] == pytest.approx(0.512)
    assert cells["web", "p50", "device"] == pytest.approx(4.096 * 1.5)
    assert cells["web", "p99", "device"] == pytest.approx(4.096 * 1.99)
    assert len(cells) == 6
    # No request since: no quantile, not 0.
    assert not _cells(_samples(world, 10), "container_io_latency")


def test_where_the_kernel_cannot_tell_whose_requests_they_are_it_says_so() -> None:
    world = World("v2")
    world.host.write("/sys/fs/cgroup/cgroup.subtree_control", b"-io")
    block_io = FakeBlockIo()
    world.host.make_block_io = lambda: block_io
    collector = _block(world)
    assert not _samples(world, 20)
    (found,) = collector.capabilities
    assert not found.supported
    assert found.feature == "bpf-block-io"
    assert "(controller io is not enabled, so that no request belongs to a pod)" in found.why
    assert "echo +io > /sys/fs/cgroup/cgroup.subtree_control" in found.remedy


def test_cgroups_beyond_the_bound_are_reported(world: World, block_io: FakeBlockIo) -> None:
    world.pod("burstable", UID, "web", "sidecar", raw=QoSClass.LS)
    block_io.room = 1
    _block(world)
    world.rounds(12)
    (health,) = world.runner.health()
    assert health.skipped_example == "1 cgroups are beyond the bound of watched ones"


def test_waits_for_memory_are_told_by_who_took_it(world: World, stalls: FakeStalls) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    be = world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    _memory(world)
    world.rounds(2)
    web, batch, kubepods = (
        _id(world, cgroup, "memory")
        for cgroup in (ls.containers[0].cgroup, be.containers[0].cgroup, "kubepods")
    )
    stalls.stall(kubepods, web, 40 * MS, 100)
    stalls.stall(kubepods, batch, 999 * MS, 300)
    stalls.stall(web, web, 20 * MS, 64)
    stalls.stall(MACHINE, web, 10 * MS, 0)
    found = _samples(world, 10)
    assert _cells(found, "pod_memory_wait") == {
        (UID2, "pod", UID): pytest.approx(3.0),
        ("", "self", UID): pytest.approx(1.0 + 2.0),
        ("", "older", UID): pytest.approx(1.0),
    }
    assert _cells(found, "pod_memory_wait_total") == {(UID,): pytest.approx(7.0)}
    # Nothing since: measured, and 0.
    assert _cells(_samples(world, 10), "pod_memory_wait_total") == {(UID,): 0.0}


def test_segments_sent_again_are_those_of_the_pods_containers(
    world: World, stalls: FakeStalls
) -> None:
    ls = world.pod("burstable", UID, "web", "sidecar", raw=QoSClass.LS)
    world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    _memory(world)
    layout = world.cgroups.layout
    for container, count in zip(ls.containers, (30, 20), strict=True):
        path = f"{layout.v2}/{container.cgroup}"
        if not world.host.exists(path):
            pytest.fail(f"the fake has no {path}")
        stalls.retransmits[world.host.inode(path)] = count
    world.rounds(2)
    stalls.retransmits = {cgroup: n + 5 for cgroup, n in stalls.retransmits.items()}
    assert _cells(_samples(world, 10), "pod_tcp_retransmits") == {(UID,): pytest.approx(1.0)}


def test_without_the_unified_hierarchy_nothing_is_said_about_segments() -> None:
    world = World("v1")
    stalls = FakeStalls()
    world.host.make_stalls = lambda: stalls
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    collector = _memory(world)
    found = _samples(world, 12)
    assert not _cells(found, "pod_tcp_retransmits")
    assert _cells(found, "pod_memory_wait_total") == {(UID,): 0.0}
    supported = {each.feature: each.supported for each in collector.capabilities}
    assert supported == {"bpf-memory-stalls": True, "bpf-tcp-retransmits": False}


def test_interrupts_are_measured_a_second_in_sixty(
    world: World, interrupts: FakeInterrupts
) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    web = _id(world, ls.containers[0].cgroup, "cpu")
    interrupts.counters[web] = Interrupted(7 * MS, 3 * MS)
    collector = _interrupts(world)
    world.rounds(1)
    assert interrupts.attached
    assert interrupts.watched == {web}
    interrupts.counters[web] = Interrupted(19 * MS, 4 * MS)
    interrupts.meter.costs = {"on_softirq_exit": Cost(0.06, 600.0, 100_000.0)}
    world.rounds(1)
    assert not interrupts.attached
    found = _samples(world, 1)
    assert _cells(found, "pod_irq_time") == {
        ("softirq", UID): pytest.approx(12.0),
        ("hardirq", UID): pytest.approx(1.0),
    }
    # Of a minute, the programs ran for a second.
    (cost,) = collector.costs.values()
    assert cost.cores == pytest.approx(0.001)
    assert cost.ns_per_run == 600.0
    world.rounds(57)
    assert interrupts.windows == 1
    world.rounds(2)
    assert interrupts.windows == 2


def test_the_first_second_of_trouble_counts_as_a_second(
    world: World, block_io: FakeBlockIo, stalls: FakeStalls
) -> None:
    """Eight calm seconds after a reading, then one in which everything happens."""
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    be = world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    layout = world.cgroups.layout
    world.runner = world.runner_of(
        BlockCollector(world.host, layout, world.store),
        MemoryCollector(world.host, layout, world.store),
    )
    world.rounds(9)
    cgroups = ls.containers[0].cgroup, be.containers[0].cgroup
    web, batch = (_id(world, cgroup, "blkio") for cgroup in cgroups)
    block_io.wait(web, batch, 400 * MS)
    block_io.waits_for_others_ns += 400 * MS
    web, batch = (_id(world, cgroup, "memory") for cgroup in cgroups)
    stalls.stall(MACHINE, web, 80 * MS, 10)
    stalls.stall(MACHINE, batch, 120 * MS, 30)
    stalls.waits_for_others_ns += 200 * MS
    found = world.samples(world.rounds())
    assert found["pod_io_wait", UID2, "pod", UID] == pytest.approx(400.0)
    assert found["pod_memory_wait", UID2, "pod", UID] == pytest.approx(60.0)
    # It is looked at each second from now on.
    before = block_io.reads
    world.rounds(3)
    assert block_io.reads == before + 3
    # A little trouble is none.
    world.rounds(int(CLOSE_S) + 2)
    before = block_io.reads
    block_io.waits_for_others_ns += 8 * MS
    world.rounds(5)
    assert block_io.reads <= before + 1


def test_an_alarm_makes_them_look_each_second_for_a_while(
    world: World, block_io: FakeBlockIo, stalls: FakeStalls
) -> None:
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    layout = world.cgroups.layout
    world.runner = world.runner_of(
        BlockCollector(world.host, layout, world.store),
        MemoryCollector(world.host, layout, world.store),
    )
    world.rounds(5)
    assert (block_io.reads, stalls.reads) == (1, 1)
    world.runner.alarm()
    world.rounds(6)
    assert (block_io.reads, stalls.reads) == (8, 8)
    for turn in range(2):
        world.host.advance(1.002 if turn % 2 else 0.998)
        world.round()
    assert (block_io.reads, stalls.reads) == (10, 10)
    world.rounds(int(CLOSE_S))
    alarmed = block_io.reads
    world.rounds(10)
    assert block_io.reads == alarmed + 1


def test_a_machine_that_lacks_it_says_so_and_is_asked_again(world: World) -> None:
    layout = world.cgroups.layout
    collectors = (
        BlockCollector(world.host, layout, world.store),
        MemoryCollector(world.host, layout, world.store),
        InterruptCollector(world.host, layout, world.store),
    )
    world.runner = world.runner_of(*collectors)
    assert not _samples(world, 3)
    assert world.runner.capabilities()[0] == Capability(
        "bpf-block-io",
        False,
        "/sys/kernel/btf/vmlinux: ENOENT (the kernel has no BTF (CONFIG_DEBUG_INFO_BTF))",
        "whose disk requests make latency-sensitive work wait is not known",
        "use a kernel with CONFIG_DEBUG_INFO_BTF, 5.12 or later",
    )
    assert [each.supported for each in world.runner.capabilities()] == [False] * 3
    block_io = FakeBlockIo()
    world.host.make_block_io = lambda: block_io
    world.rounds(100)
    assert block_io.reads == 0
    world.rounds(int(TRY_AGAIN_S))
    assert block_io.reads > 0
    assert collectors[0].capabilities[0].supported


def test_a_reading_that_fails_is_a_failure_of_the_round(
    world: World, block_io: FakeBlockIo
) -> None:
    world.pod("burstable", UID, "web", raw=QoSClass.LS)
    _block(world)
    world.rounds(2)
    block_io.error = OSError(errno.EIO, "broken", "bpf(MAP_LOOKUP_BATCH)")
    world.rounds(10)
    (health,) = world.runner.health()
    assert "bpf(MAP_LOOKUP_BATCH)" in health.error
    block_io.error = None
    world.rounds(10)
    (health,) = world.runner.health()
    assert health.success


def test_what_is_shed_leaves_the_kernel_and_comes_back(world: World, block_io: FakeBlockIo) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    collector = _block(world)
    world.rounds(2)
    block_io.wait(_id(world, ls.containers[0].cgroup, "blkio"), IDLE, MS)
    _samples(world, 10)
    before = len(list(world.store.select("pod_io_wait_total", {})))
    collector.close()
    assert block_io.closed
    assert before == 1
    again = FakeBlockIo()
    world.host.make_block_io = lambda: again
    world.rounds(12)
    assert again.reads == 2


def test_no_victim_waits_longer_than_its_tasks_had_time(
    world: World, block_io: FakeBlockIo
) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    be = world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    world.host.spawn(ls.containers[0].cgroup, demand_cores=0.1, threads=2)
    _block(world)
    world.rounds(2)
    web, batch = (_id(world, each.containers[0].cgroup, "blkio") for each in (ls, be))
    block_io.wait(web, batch, 100_000 * MS)
    found = _samples(world, 10)
    assert found["pod_io_wait_total", UID] == pytest.approx(2000.0)
    assert found["pod_io_wait", UID2, "pod", UID] == pytest.approx(2000.0)
    (health,) = world.runner.health()
    assert health.skipped_example == (
        f"80000 ms of waits of pod {UID} are left out: more than its tasks had time for"
    )


def test_the_busiest_process_of_a_culprit_that_is_no_pod_is_named(
    world: World, block_io: FakeBlockIo
) -> None:
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    backup, idle = "system.slice/backup.service", "system.slice/idle.service"
    for cgroup in (backup, f"{backup}/job", idle):
        world.host.make_cgroup(cgroup)
    world.host.spawn(backup, demand_cores=0.1, comm="sh")
    world.host.spawn(f"{backup}/job", demand_cores=0.5, comm="tar")
    world.host.spawn(idle, demand_cores=0.9, comm="sleep")
    _block(world)
    world.rounds(2)
    web, job = (_id(world, each, "blkio") for each in (ls.containers[0].cgroup, f"{backup}/job"))
    block_io.wait(web, job, 700 * MS)
    found = _cells(_samples(world, 10), "io_culprit_process")
    assert list(found) == [(backup, "system", "job: tar")]
    block_io.wait(web, job, 40 * MS)
    assert not _cells(_samples(world, 10), "io_culprit_process")
