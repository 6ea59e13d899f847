"""Waits for disks and memory, segments sent again and interrupts, in ``koordlet blame`` and on the
metrics page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs.bpf.stalls import FakeBlockIo, FakeInterrupts, FakeStalls
from prometheus_client.parser import text_string_to_metric_families

from koordlet.decision.family import Page
from koordlet.kernel.bpf.irq import Interrupted
from koordlet.kernel.bpf.stalls import MACHINE
from koordlet.kernel.cgroup.layout import detect
from koordlet.report.page import Format, render
from koordlet.views.publish import publish
from tests.daemon.world import World

MakeWorld = Callable[..., World]
UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
BE_UID = "11111111-2222-3333-4444-555555555555"
MS = 1_000_000


@pytest.fixture
def scene(make_world: MakeWorld) -> World:
    """Each second an LS pod waits 60 ms for the requests of a BE pod and 40 ms for its own, and 8
    ms for memory, three quarters of which the BE pod took. TCP sends two segments again."""
    world = make_world("")
    block_io, stalls, interrupts = FakeBlockIo(), FakeStalls(), FakeInterrupts()
    world.host.make_block_io = lambda: block_io
    world.host.make_stalls = lambda: stalls
    world.host.make_interrupts = lambda: interrupts
    ls = world.host.make_pod("cgroupfs", "burstable", UID, ["web"])
    be = world.host.make_pod("cgroupfs", "besteffort", BE_UID, ["sort"])
    layout = detect(world.host)
    web, sort = (
        {
            root: world.host.inode(f"{root}/{group.containers[0]}")
            for root in layout.roots
            if world.host.exists(f"{root}/{group.containers[0]}")
        }
        for group in (ls, be)
    )
    io, memory, cpu = (layout.v1.get(each, layout.v2) for each in ("blkio", "memory", "cpu"))
    counters = Interrupted(0, 0)
    world.start()
    for _ in range(70):
        block_io.wait(web[io], sort[io], 60 * MS)
        block_io.wait(web[io], web[io], 40 * MS)
        block_io.serve(web[io], queue_slot=5, device_slot=7, requests=10)
        stalls.stall(MACHINE, web[memory], 8 * MS, 100)
        stalls.stall(MACHINE, sort[memory], 50 * MS, 300)
        again = stalls.retransmits.get(web[layout.v2], 0) + 2
        stalls.retransmits[web[layout.v2]] = again
        counters = Interrupted(counters.softirq_ns + 5 * MS, counters.hardirq_ns + MS)
        interrupts.counters[web[cpu]] = counters
        world.run(1)
    return world


def test_disks_and_memory_are_blamed_too(scene: World) -> None:
    (web,) = scene.views.blame("", 30.0)().victims
    stalls = {stall.resource: stall for stall in web.stalls}
    assert stalls["io"].ms_per_s == pytest.approx(100, rel=0.01)
    assert [(each.kind, each.id) for each in stalls["io"].culprits] == [
        ("pod", BE_UID),
        ("self", ""),
    ]
    assert [each.share for each in stalls["io"].culprits] == pytest.approx([0.6, 0.4], rel=0.01)
    assert stalls["memory"].ms_per_s == pytest.approx(8, rel=0.01)
    assert [each.share for each in stalls["memory"].culprits] == pytest.approx(
        [0.75, 0.25], rel=1e-3
    )


def test_the_metrics_page_has_all_of_it(scene: World) -> None:
    publish(scene.engine, scene.views)
    text = b"".join(render(scene.parts.metrics, Format.TEXT, Page.INTERNAL, Page.EXTERNAL)).decode()
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if not k.startswith(("pod_", "cont"))}
            assert sample.labels.get("pod_uid", UID) in (UID, BE_UID)
            found.setdefault(family.name, {})[tuple(sorted(labels.values()))] = sample.value
    waits = found["koordlet_pod_wait_ratio"]
    assert waits[BE_UID, "io", "pod"] == pytest.approx(0.06, rel=0.01)
    assert waits["", "memory", "self"] == pytest.approx(0.002, rel=0.01)
    latency = found["koordlet_container_io_latency_seconds"]
    # Slot 5: from 16.384 us to twice that; slot 7: four times as long.
    assert latency["p50", "queue"] == pytest.approx(16.384e-6 * 1.5, rel=1e-4)
    assert latency["device", "p50"] == pytest.approx(65.536e-6 * 1.5, rel=1e-4)
    assert found["koordlet_pod_tcp_retransmits_per_second"][()] == pytest.approx(2.0, rel=0.01)
    interrupted = found["koordlet_pod_irq_ratio"]
    assert interrupted["softirq",] == pytest.approx(0.005, rel=0.01)
    assert interrupted["hardirq",] == pytest.approx(0.001, rel=0.01)
