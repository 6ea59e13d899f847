"""The whole metrics page of a fixed scene, as a golden file and for the client library's parser."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from koordlet.decision.family import Family, Page
from koordlet.decision.resource import Resource
from koordlet.report import device_metrics
from koordlet.report import metrics as table
from koordlet.report.page import Format, render
from koordlet.views.publish import publish
from tests.daemon.everything import furnish, start
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, World, suppress
from tests.engine.test_kubepods import UIDS

MakeWorld = Callable[..., World]
GOLDEN = Path(__file__).parent / "golden" / "metrics.txt"
NOT_IN_THE_SCENE = {
    "cluster_connected",
    "cluster_object_age_seconds",
    "cluster_objects_refused_total",
    "cluster_writes_total",
    "node_metric_node_usage",
    "node_metric_numa_node_usage",
    "node_metric_numa_system_usage",
    "node_metric_system_usage",
    "node_memory_cold_bytes",
    "node_memory_with_hot_page_cache_bytes",
    "pod_memory_cold_bytes",
    "pod_memory_with_hot_page_cache_bytes",
    "pod_memory_confirmed_cold_bytes",
    "container_memory_cold_bytes",
    "container_memory_with_hot_page_cache_bytes",
    "host_application_memory_cold_bytes",
    "host_application_memory_with_hot_page_cache_bytes",
    "host_application_memory_confirmed_cold_bytes",
    "cold_scan_cpu_cores",
    "container_psi",
    "container_cpu_throttled_ratio",
    "pod_cpu_throttled_ratio",
    "container_core_sched_cookie",
    "core_sched_cookie_manage_status",
    "container_scaled_cfs_burst_us",
    "container_scaled_cfs_quota_us",
    "eviction_duration_seconds",
    "application_evictions_total",
    "pod_eviction_detail",
    "pod_eviction",
    "reclaimed_bytes_total",
    "strategy_failing",
    "container_resource_limits",
    "container_resource_requests",
    "node_resource_allocatable",
    "strategy_failures_total",
    "resctrl_llc_occupancy",
    "resctrl_memory_bandwidth",
    "resctrl_memory_traffic_bytes_per_second",
    "resctrl_monitor_pods",
    "resctrl_uncounted_groups",
    "pod_llc_occupancy_bytes",
    "pod_memory_traffic_bytes_per_second",
    "admin_refused_connections_total",
    "metrics_dropped_connections_total",
    "metrics_pages_reused_total",
    "missed_adjustments",
    "missed_adjustments_found_total",
    "runtime_hook_invoked_duration_milliseconds",
    "container_oom_score_adj",
    "nri_connected",
    "nri_events_total",
    "nri_handler_duration_seconds",
    "nri_errors_total",
    "nri_reconnects_total",
    "interference_blame_ratio",
    "pod_wait_ratio",  # tests/views/test_blame.py
    "host_application_wait_ratio",
    "container_run_queue_latency_seconds",
    "container_io_latency_seconds",  # tests/views/test_stalls.py
    "pod_tcp_retransmits_per_second",
    "pod_irq_ratio",
    "bpf_program_cores",
    "bpf_program_run_seconds",
    # There are no devices; tests/views/test_devices.py has some.
    *(each.name for each in vars(device_metrics).values() if isinstance(each, Family)),
    "container_cpi",
    "node_predicted_mid",
    "node_predicted_resource_peak",
    "node_predicted_resource_reclaimable",
    "prediction_miss_ratio",
    "prediction_over_ratio",
}
REAL = {
    "own_cpu_cores": "0.01",
    "resource_update_duration_milliseconds_sum": "0",
    "tsdb_memory_bytes": "100000",
    "prediction_round_seconds": "0",
}
"""What the fake clock does not hold still: CPU time of the process, the duration of a write,
the store's memory, which depends on the build of Python."""


def _scene(make_world: MakeWorld) -> World:
    world = make_world(suppress("cfsQuota") + CPU_QOS + APPLICATIONS)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    for qos, uid in UIDS.items():
        pod = world.host.make_pod("cgroupfs", qos, uid, [uid[:8] * 8])
        world.host.spawn(pod.containers[0], demand_cores=0.2, memory_bytes=64 << 20)
    world.start()
    world.run(22)
    world.engine.answered(0.004)
    publish(world.engine, world.views)
    return world


def _page(world: World) -> str:
    metrics = world.parts.metrics
    return b"".join(render(metrics, Format.TEXT, Page.INTERNAL, Page.EXTERNAL)).decode()


def _held_still(page: str) -> str:
    lines = []
    for line in page.splitlines():
        name = line.partition(" ")[0].partition("{")[0].removeprefix("koordlet_")
        if name == "resource_update_duration_milliseconds_bucket" and "+Inf" not in line:
            line = f"{line.rpartition(' ')[0]} 0"
        elif name in REAL:
            line = f"{line.rpartition(' ')[0]} {REAL[name]}"
        lines.append(line)
    return "\n".join([*lines, ""])


def test_the_whole_page_is_the_golden_file(make_world: MakeWorld) -> None:
    """KOORDLET_UPDATE_GOLDEN=1 rewrites it; look at the difference before committing."""
    found = _held_still(_page(_scene(make_world)))
    if os.environ.get("KOORDLET_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_a_parser_reads_it_and_finds_every_family(make_world: MakeWorld) -> None:
    world = _scene(make_world)
    families = {f.name: f for f in text_string_to_metric_families(_page(world))}
    wanted = {f"koordlet_{name}" for name in table.FAMILIES if name not in NOT_IN_THE_SCENE}
    assert set(families) == {name.removesuffix("_total") for name in wanted}
    used = {
        sample.labels["host_application_name"]: sample.value
        for sample in families["koordlet_host_application_resource_usage"].samples
        if sample.labels["resource"] == "cpu"
    }
    assert used["shop"] == pytest.approx(1.0, abs=0.1)
    (limit,) = families["koordlet_be_suppress_cpu_cores"].samples
    assert limit.labels == {"node": "node-1", "type": "cfsQuota"}
    batch, pods = (world.limit_cores(c) for c in ("batch", "kubepods/besteffort"))
    assert limit.value == pytest.approx(batch + pods, abs=0.05)
    assert {s.labels["pod_uid"] for s in families["koordlet_pod_psi"].samples} == set(UIDS.values())
    pressed = families["koordlet_host_application_psi"].samples
    assert {s.labels["host_application_name"] for s in pressed} == {"shop", "batch"}
    assert len(families["koordlet_node_psi"].samples) == 6
    (held_back,) = families["koordlet_host_application_cpu_throttled_ratio"].samples
    assert held_back.labels == {"host_application_name": "batch"}
    assert 0 < held_back.value <= 1


def test_containers_show_their_pressure_where_the_configuration_says_so(
    make_world: MakeWorld,
) -> None:
    world = _scene(make_world)
    body = world.file.read_text()
    world.file.write_text(body + "\n[collectors.psi]\ncontainers = true\n")
    world.reload()
    world.run(11)
    publish(world.engine, world.views)
    families = {f.name: f for f in text_string_to_metric_families(_page(world))}
    shown = families["koordlet_container_psi"].samples
    assert len(shown) == 18 * len(UIDS)
    assert {each.labels["pod_uid"] for each in shown} == set(UIDS.values())
    world.file.write_text(body)
    world.reload()
    publish(world.engine, world.views)
    assert "koordlet_container_psi" not in _page(world)


def test_a_throttled_container_is_on_the_page_with_its_pod(make_world: MakeWorld) -> None:
    world = _scene(make_world)
    uid = UIDS["guaranteed"]
    (pod,) = (pod for pod in world.parts.state.pods() if pod.uid == uid)
    world.parts.cgroups.write(pod.containers[0].cgroup, Resource.CPU_QUOTA_US, 10_000)
    world.run(60)  # the collector looks for new quotas in turns
    publish(world.engine, world.views)
    families = {f.name: f for f in text_string_to_metric_families(_page(world))}
    (ratio,) = families["koordlet_container_cpu_throttled_ratio"].samples
    assert ratio.value > 0.5
    assert ratio.labels == {
        "container_id": pod.containers[0].id,
        "container_name": pod.containers[0].name,
        "pod_uid": uid,
        "pod_name": pod.name,
        "pod_namespace": pod.namespace,
    }


def test_cycles_and_instructions_stay_until_the_next_window(make_world: MakeWorld) -> None:
    """Under the reference's names (docs/reference/metrics.md 7): 10 s of 1.5 cores at 2.5 GHz."""
    world = make_world("[collectors.cpi]\nenable = true\n", pmu="full")
    pod = world.host.make_pod("cgroupfs", "guaranteed", UIDS["guaranteed"], ["a" * 64])
    world.host.spawn(pod.containers[0], demand_cores=1.5, threads=2)
    world.host.counters.cpi[pod.containers[0]] = 1.25
    world.start()
    world.run(70)
    publish(world.engine, world.views)
    families = {f.name: f for f in text_string_to_metric_families(_page(world))}
    shown = {
        each.labels.pop("cpi_field"): each for each in families["koordlet_container_cpi"].samples
    }
    assert {field: each.value for field, each in shown.items()} == {
        "cycles": pytest.approx(37.5e9, rel=0.01),
        "instructions": pytest.approx(30e9, rel=0.01),
    }
    assert shown["cycles"].labels == {
        "node": "node-1",
        "container_id": "a" * 64,
        "container_name": "",
        "pod_uid": UIDS["guaranteed"],
        "pod_name": "",
        "pod_namespace": "",
    }
    (capability,) = (c for c in world.views.status().capabilities if c.feature == "cpi")
    assert capability.supported
    world.host.remove_cgroup(pod.pod)
    world.run(5)
    publish(world.engine, world.views)
    assert "koordlet_container_cpi" not in _page(world)


def test_of_a_container_that_rested_in_the_last_window_there_is_nothing(
    make_world: MakeWorld,
) -> None:
    world = make_world("[collectors.cpi]\nenable = true\n", pmu="full")
    pod = world.host.make_pod("cgroupfs", "guaranteed", UIDS["guaranteed"], ["a" * 64])
    process = world.host.spawn(pod.containers[0], demand_cores=1.0)
    world.start()
    world.run(58)
    publish(world.engine, world.views)
    assert "koordlet_container_cpi" in _page(world)
    world.host.set_demand(process, 0.0)
    world.run(20)
    publish(world.engine, world.views)
    assert "koordlet_container_cpi" not in _page(world)


def test_what_is_gone_is_off_the_page(make_world: MakeWorld) -> None:
    world = _scene(make_world)
    world.host.remove_cgroup(f"kubepods/burstable/pod{UIDS['burstable']}")
    world.host.remove_cgroup("shop")
    world.run(5)
    world.reload("[strategies.cpu-suppress]\nenable = false\n")
    publish(world.engine, world.views)
    page = _page(world)
    assert UIDS["burstable"] not in page
    assert UIDS["guaranteed"] in page
    assert 'host_application_name="shop"' not in page
    assert "be_suppress_cpu_cores" not in page


def test_what_pods_of_the_tiers_ask_for_and_which_cpus_are_shared(make_world: MakeWorld) -> None:
    world = furnish(make_world)
    node = "[node]\n" + '[node.allocatable]\n"kubernetes.io/batch-cpu" = "4000"\n'
    world.file.write_text(world.file.read_text() + node.removeprefix("[node]\n"))
    start(world)
    world.run(3)
    publish(world.engine, world.views)
    families = {f.name: f for f in text_string_to_metric_families(_page(world))}

    def samples(name: str, *labels: str) -> dict[tuple[str, ...], float]:
        found = families[f"koordlet_{name}"].samples
        return {tuple(each.labels[label] for label in labels): each.value for each in found}

    offered = samples("node_resource_allocatable", "resource", "unit")
    assert offered["kubernetes.io/batch-cpu", "integer"] == 4000
    assert offered["kubernetes.io/mid-memory", "byte"] == 0
    of_pod = ("pod_name", "resource", "unit")
    asked = samples("container_resource_requests", *of_pod)
    assert asked["pod0", "kubernetes.io/batch-cpu", "integer"] == 500
    limits = samples("container_resource_limits", *of_pod)
    assert limits["pod0", "kubernetes.io/batch-memory", "byte"] == 64 << 20
    assert {name for name, *_ in limits} == {"pod0"}
    shared = samples("cpuset_share_pool_info", "cpu")
    assert set(shared) == {("1",), ("2",), ("3",)}
    assert samples("cpuset_share_pool_cpu_cores", "node") == {("node-1",): len(shared)}
    writes = families["koordlet_resource_update_duration_milliseconds"].samples
    counts = {
        (each.labels["type"], each.labels["status"]): each.value
        for each in writes
        if each.name.endswith("_count")
    }
    assert counts["resctrl-schema", "success"] >= 2
    assert counts["cgroup", "success"] > 2
