"""Whole rounds on the fake machine, for every layout."""

from __future__ import annotations

import errno

import msgspec
import pytest
from koordlet_fakefs import FakeCpu, FakeTopology, shape
from koordlet_fakefs.faults import Op

from koordlet.collectors import COLLECTORS, collectors
from koordlet.collectors.psi import PsiCollector
from koordlet.collectors.self_usage import SelfUsageCollector
from koordlet.collectors.throttled import TURN_ROUNDS
from koordlet.collectors.usage import STILL_TURNS
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Resources
from koordlet.kernel.descriptors import Descriptors
from koordlet.protocol.qos import QoSClass

from .world import UID, UID2, World


class Sparse(FakeTopology):
    """NUMA nodes 0 and 2."""

    @property
    def nodes(self) -> frozenset[int]:
        return frozenset({0, 2})


LAYOUTS = ["v1", "comount", "hybrid", "v2"]


def close(value: float) -> object:
    return pytest.approx(value, rel=0.02, abs=0.02)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cpu_and_memory_of_everything(layout: str) -> None:
    world = World(layout, topology=shape(cores_per_l3=8))
    pod = world.pod("burstable", UID, "c1", "c2")
    world.application("web", "web")
    world.host.spawn(pod.containers[0].cgroup, demand_cores=1.5, threads=2, memory_bytes=64 << 20)
    world.host.spawn(pod.containers[1].cgroup, demand_cores=0.5, cache_bytes=32 << 20)
    world.host.spawn("web", demand_cores=1.0, memory_bytes=16 << 20)
    world.host.make_cgroup("other")
    world.host.spawn("other", demand_cores=0.25)

    first = world.samples(world.round())
    assert first["pod_memory_usage", UID] == close(64 << 20), "memory needs no second look"
    assert ("pod_cpu_usage", UID) not in first and ("node_cpu_usage",) not in first
    assert ("sys_cpu_usage",) not in first

    found = {}
    for _ in range(10):  # memory is read in turns
        found |= world.samples(world.rounds())
    assert found["pod_cpu_usage", UID] == close(2.0)
    assert found["container_cpu_usage", "c1"] == close(1.5)
    assert found["container_cpu_usage", "c2"] == close(0.5)
    assert found["host_application_cpu_usage", "web"] == close(1.0)
    assert found["node_cpu_usage",] == close(3.25)
    # Rounded to ticks of 10 ms for each CPU.
    assert found["sys_cpu_usage",] == pytest.approx(0.25, abs=0.08)
    assert found["pod_memory_usage", UID] == close(64 << 20)
    assert found["pod_memory_usage_with_page_cache", UID] == close(96 << 20)
    assert found["container_memory_usage", "c2"] == close(0)
    assert found["host_application_memory_usage", "web"] == close(16 << 20)
    assert found["node_memory_usage_with_page_cache",] >= found["node_memory_usage",]
    assert found["sys_memory_usage",] == close(found["node_memory_usage",] - (80 << 20))
    assert all(health.success for health in world.runner.health())
    assert all(health.skipped == 0 for health in world.runner.health())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_throttling_only_where_there_is_a_quota(layout: str) -> None:
    world = World(layout)
    pod = world.pod("burstable", UID, "c1", "c2")
    world.cgroups.write(pod.containers[0].cgroup, Resource.CPU_QUOTA_US, 50_000)
    for container in pod.containers:
        world.host.spawn(container.cgroup, demand_cores=1)
    world.application("web", "web")
    world.round()
    found = world.samples(world.rounds())
    assert found["container_cpu_throttled", "c1"] == close(1.0)
    # One task that wants a whole core stands still for the half of each period; of the last one
    # the other half may be missing.
    assert found["container_cpu_throttled_time", "c1"] == pytest.approx(50_000.0, rel=0.2)
    assert ("container_cpu_throttled", "c2") not in found
    assert ("host_application_cpu_throttled", "web") not in found
    world.cgroups.write("web", Resource.CPU_QUOTA_US, 50_000)
    world.cgroups.write(pod.containers[0].cgroup, Resource.CPU_QUOTA_US, -1)
    found = world.samples(world.rounds(TURN_ROUNDS + 1))
    assert found["host_application_cpu_throttled", "web"] == 0.0
    assert ("host_application_cpu_throttled_time", "web") not in found
    assert ("container_cpu_throttled", "c1") not in found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fields", [("nr_throttled",), ("nr_periods", "nr_throttled")])
def test_counters_of_throttling_that_run_backwards_give_no_sample(
    layout: str, fields: tuple[str, ...]
) -> None:
    world = World(layout)
    pod = world.pod("burstable", UID, "c1")
    cgroup = pod.containers[0].cgroup
    world.cgroups.write(cgroup, Resource.CPU_QUOTA_US, 50_000)
    world.host.spawn(cgroup, demand_cores=1)
    world.round()
    world.rounds(3)
    state = world.host.group(world.cgroups.directory(cgroup, Resource.CPU_QUOTA_US)).cpu
    for field in fields:
        setattr(state, field, 1)
    state.throttled_ns = 0.0
    found = world.samples(world.rounds())
    assert not [key for key in found if key[0].startswith("container_cpu_throttled")]
    found = world.samples(world.rounds())
    assert found["container_cpu_throttled", "c1"] == close(1.0)
    assert found["container_cpu_throttled_time", "c1"] > 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_best_effort_tier(layout: str) -> None:
    world = World(layout, topology=shape(cores_per_l3=8))
    pod = world.pod("besteffort", UID, "c1", raw=QoSClass.BE)
    world.application("job", "job", QoSClass.BE)
    world.host.spawn(pod.containers[0].cgroup, demand_cores=1)
    world.host.spawn("job", demand_cores=2, threads=2)
    world.round()
    found = world.samples(world.rounds())
    assert found["node_be", "real-limit", "cpu"] == 8000
    assert found["node_be", "usage", "cpu"] == pytest.approx(3000, abs=30)
    assert found["node_be", "request", "cpu"] == 0
    world.cgroups.write(pod.containers[0].cgroup, Resource.CPUSET_CPUS, "0-2")
    world.cgroups.write("job", Resource.CPU_QUOTA_US, 150_000)
    found = world.samples(world.rounds(10))  # lists of containers are read in turns
    assert found["node_be", "real-limit", "cpu"] == 4500


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_application_without_a_process_asks_for_nothing(layout: str) -> None:
    """Its cgroup stays when it was evicted; what it had asked for no longer counts."""
    world = World(layout)
    asked = Resources(request_cpu_milli=1500)
    for name in ("gone", "job"):
        application = world.application(name, name, QoSClass.BE)
        others = world.applications[:-1]
        world.applications = (*others, msgspec.structs.replace(application, resources=asked))
    gone = world.host.spawn("gone", demand_cores=1)
    world.host.spawn("job", demand_cores=0)
    assert world.samples(world.rounds(3))["node_be", "request", "cpu"] == 3000
    world.host.exit(gone)
    assert world.samples(world.rounds(2))["node_be", "request", "cpu"] == 1500


def test_a_node_without_best_effort_has_no_tier() -> None:
    world = World()
    world.application("web", "web")
    world.round()
    assert not [key for key in world.samples(world.rounds()) if key[0] == "node_be"]


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_pressure_of_node_pods_and_applications(layout: str) -> None:
    world = World(layout)
    pod = world.pod("burstable", UID, "c1")
    world.host.spawn(pod.containers[0].cgroup, demand_cores=0.1)
    world.application("web", "web")
    root = "/sys/fs/cgroup/unified" if layout == "hybrid" else "/sys/fs/cgroup"
    world.host.stall(f"{root}/{pod.cgroup}/memory.pressure", some=0.5, full=0.25)
    world.host.stall("/proc/pressure/io", some=0.1)
    found = world.samples(world.rounds(21))
    assert found["pod_psi", UID, "some", "10", "mem"] == pytest.approx(50, abs=15)
    assert found["pod_psi", UID, "full", "10", "mem"] == pytest.approx(25, abs=8)
    assert not [key for key in found if key[0].startswith("container_psi")]
    assert found["pod_psi_cpu_full_supported", UID] == 1
    assert found["node_psi", "some", "10", "io"] == pytest.approx(10, abs=3)
    assert ("host_application_psi", "web", "some", "10", "cpu") in found


def test_pressure_of_containers_on_request() -> None:
    world = World()
    world.pod("burstable", UID, "c1")
    files = Descriptors(world.host)
    world.runner = world.runner_of(PsiCollector(world.cgroups, files, world.store, containers=True))
    found = world.samples(world.rounds(1))
    assert found["container_psi", "c1", UID, "some", "10", "cpu"] == 0


def test_pressure_of_memory_and_disks_is_not_read_where_nothing_has_run() -> None:
    """Of pods and containers. A file that cannot be read tells when it is."""
    world = World()
    pod = world.pod("burstable", UID, "c1")
    files = Descriptors(world.host)
    collector = PsiCollector(world.cgroups, files, world.store, interval_s=1.0, containers=True)
    usage = [each for each in collectors(COLLECTORS.values(), world.machine) if each.name == "pods"]
    world.runner = world.runner_of(*usage, collector)
    world.rounds(2)
    world.host.faults.add(f"*{pod.cgroup}*/memory.pressure", op="read", times=None)
    world.rounds(1)
    assert world.health("psi").skipped == 0
    world.host.spawn(pod.containers[0].cgroup, demand_cores=1)
    world.rounds(1)
    assert world.health("psi").skipped == 2


def test_pressure_is_missing_on_plain_v1_and_said_once() -> None:
    world = World("v1")
    world.pod("burstable", UID, "c1")
    found = world.samples(world.rounds(1))
    assert not [key for key in found if key[0] in ("pod_psi", "container_psi")]
    assert world.health("psi").success and world.health("psi").skipped == 0


@pytest.mark.parametrize(
    ("name", "path", "op", "number"),
    [
        ("psi", "/proc/pressure/cpu", "read", errno.ENOENT),
        ("psi", "/proc/pressure/cpu", "read", errno.EOPNOTSUPP),
        ("numa", "/sys/devices/system/node", "listdir", errno.ENOENT),
    ],
)
def test_what_this_kernel_does_not_have_is_no_failure(
    name: str, path: str, op: Op, number: int
) -> None:
    world = World()
    world.host.faults.add(path, op=op, errno=number, times=None)
    world.rounds(3)
    health = world.health(name)
    assert path in health.missing and "CONFIG_" in health.missing
    assert not (health.success or health.error or health.consecutive_failures or health.samples)
    world.host.faults.clear()
    world.rounds(11)
    assert world.health(name).success and not world.health(name).missing


def test_an_empty_pressure_file_costs_its_group_only() -> None:
    """The reference dies of it (D-12)."""
    world = World()
    bad = world.pod("burstable", UID, "c1")
    world.pod("burstable", UID2, "c2")
    world.host.faults.short_read(f"*{bad.cgroup}/cpu.pressure", 0, times=None)
    found = world.samples(world.rounds())
    assert not [key for key in found if key[:2] == ("pod_psi", UID)]
    assert [key for key in found if key[:2] == ("pod_psi", UID2)]
    assert world.health("psi").skipped == 1 and world.health("psi").success


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numa_memory_with_sparse_nodes(layout: str) -> None:
    cpus = tuple(FakeCpu(n, n, n // 2, numa=2 * (n // 2), l3=n // 2) for n in range(4))
    world = World(layout, topology=Sparse(cpus, numa_nodes=2))
    pod = world.pod("burstable", UID, "c1")
    world.host.spawn(pod.containers[0].cgroup, demand_cores=1, memory_bytes=64 << 20)
    world.round()
    found = world.samples(world.rounds(10))
    nodes = {key[1] for key in found if key[0] == "node_numa_memory_usage"}
    assert nodes == {"0", "2"}
    used = {n: found["node_numa_memory_usage", n] for n in nodes}
    rest = {n: found["sys_numa_memory_usage", n] for n in nodes}
    # The pod's pages are in a child cgroup: the hierarchical count finds them (D-8).
    assert sum(used.values()) - sum(rest.values()) == pytest.approx(64 << 20, rel=0.01)
    assert {key[1] for key in found if key[0] == "node_numa_cpu_usage"} == {"0", "2"}
    shares = [found["sys_numa_cpu_usage", n] for n in nodes]
    assert sum(shares) == pytest.approx(found["sys_cpu_usage",])


def test_counter_reset_gives_no_sample_and_no_absurd_one() -> None:
    """The reference's unsigned difference wraps (D-9)."""
    world = World()
    world.application("web", "web")
    world.host.spawn("web", demand_cores=1)
    world.round()
    assert world.samples(world.rounds())["host_application_cpu_usage", "web"] == close(1)
    world.host.remove_cgroup("web")
    world.host.make_cgroup("web")
    world.host.spawn("web", demand_cores=0.5)
    assert ("host_application_cpu_usage", "web") not in world.samples(world.rounds())
    assert world.samples(world.rounds())["host_application_cpu_usage", "web"] == close(0.5)


def test_no_time_between_two_rounds() -> None:
    world = World()
    world.pod("burstable", UID, "c1")
    world.round()
    found = world.samples(world.round())
    assert ("pod_cpu_usage", UID) not in found and ("node_cpu_usage",) not in found


def test_pod_churn_releases_files_and_series() -> None:
    world = World()
    world.round()
    files, series = len(world.host.open_files), world.store.status().series
    for n in range(5):
        world.pods = ()
        pod = world.pod("burstable", f"uid-{n}", f"c{n}")
        world.rounds(12)
        world.host.remove_cgroup(pod.cgroup)
    world.pods = ()
    world.rounds(11)  # until the slowest collector has looked
    assert len(world.host.open_files) <= files + 3
    world.rounds(320)  # the hot window forgets the gone
    world.pod("burstable", "last", "last")
    world.rounds()
    assert world.store.status().series <= series + 12


def test_vanishing_in_the_middle_of_a_round() -> None:
    world = World()
    gone = world.pod("burstable", UID, "c1")
    stays = world.pod("burstable", UID2, "c2")
    for pod in (gone, stays):
        world.host.spawn(pod.cgroup, demand_cores=1)
    world.round()
    world.host.faults.before(
        f"*{gone.cgroup}/memory.numa_stat", lambda: world.host.remove_cgroup(gone.cgroup), op="read"
    )
    found = world.samples(world.rounds(2))
    assert found["pod_cpu_usage", UID2] == close(1)
    assert ("pod_memory_usage", UID) not in found
    assert not world.host.exists(f"/sys/fs/cgroup/memory/{gone.cgroup}")
    assert all(health.success and health.skipped == 0 for health in world.runner.health())


def test_who_does_not_run_is_not_read() -> None:
    world = World()
    pod = world.pod("burstable", UID, "c1", "c2")
    world.rounds(40)  # until its memory is known and every quota has been looked at
    reads = {
        kind: world.host.faults.before(f"*{UID}/{path}", lambda: None, op="read", times=None)
        for kind, path in {"cpu": "c*/cpuacct.usage", "memory": "*memory.numa_stat"}.items()
    }
    found = world.samples(world.rounds(1))
    assert found["container_cpu_usage", "c1"] == 0
    world.rounds(9)
    assert reads["cpu"].hits == 0
    assert reads["memory"].hits <= 4, "pressure of other groups may have taken some of it"
    work = world.host.spawn(pod.containers[0].cgroup, demand_cores=0.5)
    found = world.samples(world.rounds(1))
    assert found["container_cpu_usage", "c1"] == close(0.5)
    assert found["container_cpu_usage", "c2"] == 0
    world.host.set_demand(work, 0)
    world.rounds(1)
    assert world.samples(world.rounds(1))["container_cpu_usage", "c1"] == 0


def test_pressure_and_numa_memory_of_a_pod_that_does_not_run_are_not_read() -> None:
    world = World()
    pod = world.pod("burstable", UID, "c1")
    world.cgroups.write(pod.cgroup, Resource.CPU_QUOTA_US, 10_000)
    world.rounds(40)
    reads = world.host.faults.before(f"*{UID}/*.[psn]*[rt]*", lambda: None, op="read", times=None)
    found = world.samples(world.rounds(1))
    assert found["pod_cpu_throttled", UID] == 0
    world.rounds(25)
    assert reads.hits <= 8, "its CPU pressure, and now and then its memory"
    world.host.stall(f"/sys/fs/cgroup/unified/{pod.cgroup}/io.pressure", some=0.5)
    world.host.spawn(pod.containers[0].cgroup, demand_cores=1)
    seen: dict[tuple[str, ...], float] = {}
    for _ in range(20):
        seen |= world.samples(world.rounds(1))
    assert seen["pod_psi", UID, "some", "10", "io"] > 30
    assert seen["pod_cpu_throttled", UID] > 0.5


def test_memory_of_a_group_that_does_not_run_is_followed_too() -> None:
    world = World()
    pod = world.pod("burstable", UID, "c1")
    process = world.host.spawn(pod.containers[0].cgroup)
    world.rounds(5)
    world.host.set_memory(process, 64 << 20)
    read = {}
    for _ in range(2 * (STILL_TURNS + 2)):
        read |= world.samples(world.rounds(1))
    assert read["pod_memory_usage", UID] >= 64 << 20


def test_a_container_made_anew_while_its_pod_rests_starts_again() -> None:
    world = World()
    pod = world.pod("burstable", UID, "c1")
    (container,) = pod.containers
    world.host.spawn(container.cgroup, demand_cores=0.5)
    world.rounds(3)
    world.host.remove_cgroup(container.cgroup)
    world.host.make_cgroup(container.cgroup)
    world.rounds(3)
    world.host.spawn(container.cgroup, demand_cores=0.5)
    world.rounds(2)
    found = world.samples(world.rounds(1))
    assert found["container_cpu_usage", "c1"] == close(0.5)


def test_few_files_stay_open() -> None:
    """Those that are read each second: of a pod its CPU counter, of a container too."""
    world = World()
    world.rounds(2)
    before = len(world.host.open_files)
    for number in range(10):
        world.pod("burstable", UID[:-2] + f"{number:02}", f"c{number}", f"d{number}")
    world.rounds(25)
    assert len(world.host.open_files) - before <= 30


def test_an_io_error_on_one_file_leaves_out_that_value_alone() -> None:
    world = World()
    bad = world.pod("burstable", UID, "c1")
    world.pod("burstable", UID2, "c2")
    world.round()
    world.host.faults.add(f"*{bad.cgroup}/cpuacct.usage", op="read", errno=errno.EIO)
    found = world.samples(world.rounds())
    assert ("pod_cpu_usage", UID) not in found
    assert ("pod_memory_usage", UID) in found and ("pod_cpu_usage", UID2) in found
    health = world.health("pods")
    assert health.success and health.skipped == 1 and "cpuacct.usage" in health.skipped_example
    world.rounds()
    assert ("pod_cpu_usage", UID) in world.samples(world.rounds())


def test_node_memory_survives_a_bad_proc_stat() -> None:
    world = World()
    world.round()
    world.host.faults.short_read("/proc/stat", 10, times=1)
    found = world.samples(world.rounds())
    assert ("node_memory_usage",) in found and ("node_cpu_usage",) not in found
    assert ("sys_memory_usage",) in found and ("sys_cpu_usage",) not in found
    assert world.health("node").success and world.health("node").skipped == 1


def test_applications_inside_pods_do_not_lower_the_system_share() -> None:
    world = World(topology=shape(cores_per_l3=4))
    pod = world.pod("besteffort", UID, "c1")
    world.application("inside", pod.containers[0].cgroup)
    world.application("above", "kubepods")
    world.host.spawn(pod.containers[0].cgroup, demand_cores=1)
    world.host.make_cgroup("other")
    world.host.spawn("other", demand_cores=1)
    world.round()
    found = world.samples(world.rounds())
    assert found["container_cpu_usage", "c1"] == close(1)
    assert found["host_application_cpu_usage", "inside"] == close(1)
    assert found["sys_cpu_usage",] == close(1)


def test_koordlet_itself() -> None:
    world = World()
    used = iter([1.0, 1.05])
    world.runner = world.runner_of(
        SelfUsageCollector(world.host, Descriptors(world.host), cpu_seconds=lambda: next(used))
    )
    first = world.samples(world.round())
    assert ("koordlet_cpu_usage",) not in first
    assert first["koordlet_open_files",] >= 4
    found = world.samples(world.rounds())
    assert found["koordlet_cpu_usage",] == pytest.approx(0.05)
    assert ("koordlet_memory_rss",) in found
