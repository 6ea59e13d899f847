"""``koordlet blame`` and the metrics page, on a machine whose kernel counts what the test says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs.bpf.run_queue import FakeRunQueue
from koordlet_fakefs.bpf.stalls import FakeBlockIo, FakeInterrupts, FakeStalls
from prometheus_client.parser import text_string_to_metric_families

from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.cli.show.blame import lines
from koordlet.decision.family import Page
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.cgroup.layout import detect
from koordlet.report.page import Format, render
from koordlet.views.blame import STEPS, Series, mean_of, weights_ms
from koordlet.views.publish import publish
from tests.daemon.world import APPLICATIONS, World

MakeWorld = Callable[..., World]
UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
BE_UID = "11111111-2222-3333-4444-555555555555"
MS = 1_000_000


@pytest.fixture
def scene(make_world: MakeWorld) -> World:
    """An LS pod that waits 300 ms each second for a BE pod, and an application that waits 20."""
    world = make_world(APPLICATIONS)
    queue = FakeRunQueue()
    world.host.make_run_queue = lambda: queue
    world.host.make_block_io = FakeBlockIo
    world.host.make_stalls = FakeStalls
    world.host.make_interrupts = FakeInterrupts
    queue.meter.costs = {"on_switch": Cost(0.002, 210.0, 9500.0)}
    world.application("shop", 1.0)
    world.application("batch", 1.0)
    ls = world.host.make_pod("cgroupfs", "burstable", UID, ["web"])
    be = world.host.make_pod("cgroupfs", "besteffort", BE_UID, ["sort"])
    root = detect(world.host).reference_root
    web, sort, shop = (
        world.host.inode(f"{root}/{cgroup}")
        for cgroup in (ls.containers[0], be.containers[0], "shop")
    )
    slots = queue.slots[web] = [0] * 27
    world.start()
    for _ in range(70):
        queue.wait(web, sort, 300 * MS)
        queue.wait(web, 1, 100 * MS)
        queue.wait(shop, sort, 20 * MS)
        slots[10] += 50
        world.run(1)
    return world


def test_victims_and_their_culprits(scene: World) -> None:
    view = scene.views.blame("", 30.0)()
    assert [victim.title for victim in view.victims] == [UID, "shop"]
    web, shop = view.victims
    cpu, *others = web.stalls
    assert {each.resource: each.ms_per_s for each in others} == {"io": 0.0, "memory": 0.0}
    assert cpu.resource == "cpu"
    assert cpu.ms_per_s == pytest.approx(400, rel=0.01)
    assert [(each.kind, each.id) for each in cpu.culprits] == [("pod", BE_UID), ("system", "/")]
    assert [each.ms_per_s for each in cpu.culprits] == pytest.approx([300, 100], rel=0.01)
    assert [each.share for each in cpu.culprits] == pytest.approx([0.75, 0.25], rel=0.01)
    assert cpu.culprits[0].qos == "BE"
    assert cpu.culprits[0].recent_ms_per_s == ()
    (latency,) = web.run_queue
    assert latency.p50_us == pytest.approx(1.024 * 2**9 * 1.5, rel=1e-4)
    assert shop.stalls[0].ms_per_s == pytest.approx(20, rel=0.01)
    assert view.missing == ()


def test_one_victim_with_the_course_of_its_waits(scene: World) -> None:
    view = scene.views.blame(UID, 40.0)()
    (web,) = view.victims
    recent = web.stalls[0].culprits[0].recent_ms_per_s
    assert len(recent) == STEPS
    assert recent[:15] == pytest.approx([300.0] * 15, rel=0.01)
    assert scene.views.blame("shop", 30.0)().victims[0].id == "shop"


def test_what_is_not_there_is_refused(scene: World) -> None:
    with pytest.raises(NotFoundError, match="'nothing' is no pod and no application"):
        scene.views.blame("nothing", 30.0)
    with pytest.raises(InvalidError, match=r"a window of 0\.5 s"):
        scene.views.blame("", 0.5)


def test_a_machine_that_lacks_it_says_what(make_world: MakeWorld) -> None:
    world = make_world("")
    world.start()
    world.run(3)
    view = world.views.blame("", 60.0)()
    assert view.victims == ()
    missing = view.missing[0]
    assert missing.startswith("bpf-run-queue: /sys/kernel/btf/vmlinux: ENOENT")
    assert "use a kernel with CONFIG_DEBUG_INFO_BTF" in missing
    features = {each.feature: each for each in world.views.status().capabilities}
    assert not features["bpf-run-queue"].supported


def test_lengths_of_waits_are_shown_where_nothing_else_is_known(make_world: MakeWorld) -> None:
    """As through BCC."""
    world = make_world("")
    queue = FakeRunQueue()
    queue.has_matrix = False
    world.host.make_run_queue = lambda: queue
    ls = world.host.make_pod("cgroupfs", "burstable", UID, ["web"])
    world.host.make_pod("cgroupfs", "besteffort", BE_UID, ["sort"])
    web = world.host.inode(f"{detect(world.host).reference_root}/{ls.containers[0]}")
    slots = queue.slots[web] = [0] * 27
    world.start()
    for _ in range(30):
        slots[10] += 50
        world.run(1)
    view = world.views.blame("", 30.0)()
    (victim,) = view.victims
    assert victim.id == UID
    assert victim.stalls == ()
    assert victim.run_queue[0].p99_us is not None
    assert any("histogram alone" in each for each in view.missing)
    (row,) = (line for line in lines(view, "") if line.startswith(UID))
    assert row.split()[2:] == ["cpu", "-", "1", "ms", "-"]
    assert world.views.blame(BE_UID, 30.0)().victims == ()


def test_the_metrics_page_tells_it_too(scene: World) -> None:
    publish(scene.engine, scene.views)
    text = b"".join(render(scene.parts.metrics, Format.TEXT, Page.INTERNAL, Page.EXTERNAL)).decode()
    found = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    waits = [key for key in found if key[0] == "koordlet_pod_wait_ratio"]
    assert {dict(key[1:])["culprit"] for key in waits} == {BE_UID, "/"}
    assert sum(found[key] for key in waits) == pytest.approx(0.4, rel=0.01)
    (shop,) = (key for key in found if key[0] == "koordlet_host_application_wait_ratio")
    assert dict(shop[1:])["name"] == "shop"
    ranks = [key for key in found if key[0] == "koordlet_container_run_queue_latency_seconds"]
    assert {dict(key[1:])["percentile"] for key in ranks} == {"p50", "p95", "p99"}
    assert found["koordlet_bpf_program_cores", ("program", "on_switch")] == 0.002
    assert found["koordlet_bpf_program_run_seconds", ("program", "on_switch")] == 2.1e-7


def test_doctor_says_what_the_programs_use(scene: World) -> None:
    checks = {each.name: each for each in scene.views.doctor()().checks}
    check = checks["kernel: bpf-run-queue"]
    assert "they use 0.20 % of a core" in check.why


def test_samples_stand_for_the_time_since_the_one_before() -> None:
    """Ten seconds at 10 ms/s, then an alarm: two seconds at 70."""
    total = Series((10_000, 11_000, 12_000), (10.0, 70.0, 70.0))
    weights = weights_ms(total.times_ms, 0)
    assert weights == [10_000, 1_000, 1_000]
    assert mean_of(total, total.times_ms, weights) == pytest.approx(240 / 12)
    late = Series((12_000,), (60.0,))
    assert mean_of(late, total.times_ms, weights) == pytest.approx(5.0)


def test_a_collector_that_is_off_or_shed_is_no_calm_node(make_world: MakeWorld) -> None:
    world = make_world("[collectors.disks]\nenable = false\n")
    world.host.make_run_queue = FakeRunQueue
    world.host.make_stalls = FakeStalls
    world.host.make_interrupts = FakeInterrupts
    world.start()
    world.run(2)
    for slot in world.parts.runner._slots:
        slot.shed = slot.collector.name == "stalls"
    view = world.views.blame("", 60.0)()
    assert view.missing == (
        "waits for io: the collector disks is switched off",
        "waits for memory: the collector stalls is shed, because koordlet is over its budget",
    )
    assert list(lines(view, ""))[-1] == "No waits are known."
    assert list(lines(view, "default/web-0"))[-1] == "No waits are known of it."


def test_the_longest_waits_of_the_window_are_shown_and_not_those_of_its_end(
    make_world: MakeWorld,
) -> None:
    world = make_world("")
    queue = FakeRunQueue()
    world.host.make_run_queue = lambda: queue
    ls = world.host.make_pod("cgroupfs", "burstable", UID, ["web"])
    web = world.host.inode(f"{detect(world.host).reference_root}/{ls.containers[0]}")
    slots = queue.slots[web] = [0] * 27
    world.start()
    world.run(2)
    for slot in (20, 3, 3):
        slots[slot] += 100
        world.run(10)
    (victim,) = world.views.blame("", 60.0)().victims
    assert victim.run_queue[0].p99_us == pytest.approx(1.024 * 2**19 * 1.99, rel=1e-3)
