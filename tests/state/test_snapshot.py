"""Snapshots: what they freeze, and what they look up only when asked."""

from __future__ import annotations

import errno

import pytest

from koordlet.decision import metrics
from koordlet.decision.metrics import Aggregate
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.topology import read_topology
from koordlet.state.node import NodeOptions, memory_bytes, node_of
from koordlet.state.snapshot import KernelView, TsdbView, take
from koordlet.tsdb.store import Store

from .world import World, make_world


def node_in(world: World, tree: Kubepods | None = None) -> object:
    return node_of(
        NodeOptions("n1", kubelet_reserved_milli=500),
        read_topology(world.host),
        memory_bytes(world.host),
        {},
        tree,
    )


def test_the_node() -> None:
    world = make_world(memory_bytes=8 << 30)
    node = node_in(world, Kubepods("kubepods.slice"))
    assert node.capacity_milli == 1000 * len(node.topology.cpus) > 0
    assert node.memory_bytes == 8 << 30
    assert node.tree.besteffort == "kubepods.slice/kubepods-besteffort.slice"
    assert node_in(world).tree.root == ""


def store_with(*samples: tuple[int, float]) -> Store:
    store = Store(None)
    series = store.series("pod_cpu_usage", (("pod_uid", "u1"),))
    for time_ms, value in samples:
        store.append(time_ms, [series], [value])
    return store


def test_readings_have_age_and_count() -> None:
    store = store_with((1000, 1.0), (2000, 2.0), (3000, 4.0))
    view = TsdbView(store, 3500)
    last = view.read(metrics.POD_CPU_USAGE, ("u1",), window_s=2)
    assert (last.value, last.age_s, last.count) == (4.0, 0.5, 1)
    mean = view.read(metrics.POD_CPU_USAGE, ("u1",), window_s=10, aggregate=Aggregate.AVG)
    assert mean.value == pytest.approx(7 / 3) and mean.count == 3 and mean.window_s == 10
    assert view.read(metrics.POD_CPU_USAGE, ("u1",), window_s=0.4) is None
    assert view.read(metrics.POD_CPU_USAGE, ("other",), window_s=10) is None
    assert view.read(metrics.NODE_CPU_USAGE, window_s=10) is None
    count = view.read(metrics.POD_CPU_USAGE, ("u1",), window_s=0.4, aggregate=Aggregate.COUNT)
    assert count is None


def test_asking_makes_no_series() -> None:
    store = store_with((1000, 1.0))
    before = store.status().series
    TsdbView(store, 2000).read(metrics.POD_CPU_USAGE, ("unknown",), window_s=10)
    assert store.status().series == before


def test_labels_must_fit_the_metric() -> None:
    with pytest.raises(ValueError, match="pod_uid"):
        TsdbView(Store(None), 0).read(metrics.POD_CPU_USAGE, (), window_s=1)


def test_a_view_is_frozen() -> None:
    store = store_with((1000, 1.0))
    view = TsdbView(store, 2000)
    series = store.series("pod_cpu_usage", (("pod_uid", "u1"),))
    store.append(2500, [series], [9.0])
    assert view.read(metrics.POD_CPU_USAGE, ("u1",), window_s=5).value == 1.0


def test_the_kernel_is_read_once(world: World) -> None:
    world.host.make_cgroup("web")
    world.cgroups.write("web", Resource.CPU_QUOTA_US, 50_000)
    view = KernelView(Knobs(world.host, world.cgroups))
    assert view.value("web", Resource.CPU_QUOTA_US) == 50_000
    world.cgroups.write("web", Resource.CPU_QUOTA_US, 70_000)
    assert view.value("web", Resource.CPU_QUOTA_US) == 50_000
    view_after = KernelView(Knobs(world.host, world.cgroups))
    assert view_after.value("web", Resource.CPU_QUOTA_US) == 70_000
    assert view.value("gone", Resource.CPU_QUOTA_US) is None
    assert view.value("web", Resource.CPU_BVT_WARP_NS) is None
    world.host.make_cgroup("web/inner")
    assert view.children("web") == ("web/inner",)
    world.host.remove_cgroup("web/inner")
    assert view.children("web") == ("web/inner",)
    assert view.children("gone") == ()


def test_an_io_error_is_an_unknown_value() -> None:
    world = make_world()
    world.host.make_cgroup("web")
    world.host.faults.add("*web/cpu.cfs_quota_us", op="read", errno=errno.EIO)
    view = KernelView(Knobs(world.host, world.cgroups))
    assert view.value("web", Resource.CPU_QUOTA_US) is None


def test_take() -> None:
    world = make_world()
    store = Store(None)
    series = store.series("node_cpu_usage", ())
    store.append(int(world.host.time() * 1000), [series], [1.5])
    snapshot = take(
        world.host,
        Knobs(world.host, world.cgroups),
        store,
        wake=Wake(WakeKind.PSI, "web"),
        node=node_in(world),
        pods=(),
        applications=(),
        slo=None,
        collect_interval_s=1.0,
        sources_synced=True,
    )
    assert snapshot.now == world.host.monotonic() and snapshot.time == world.host.time()
    assert snapshot.metrics.read(metrics.NODE_CPU_USAGE, window_s=2).value == 1.5
    assert snapshot.in_force.children("") == ()
    assert snapshot.wake.source == "web"
