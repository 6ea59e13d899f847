"""The collector on the fake kernel: which series, when, and from which way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from koordlet_fakefs import FakeHost

from koordlet.collectors import COLLECTORS
from koordlet.collectors.base import Machine
from koordlet.collectors.cold.collector import ColdCollector, ColdOptions, without
from koordlet.collectors.cold.confirmed import Confirmed
from koordlet.collectors.cold.worker import Worker
from koordlet.kernel.cold import methods
from koordlet.kernel.cold.cold import Cold
from koordlet.kernel.descriptors import Descriptors
from koordlet.protocol.qos import QoSClass
from tests.collectors.world import UID, UID2, World

MIB = 1 << 20


def furnish(world: World) -> FakeHost:
    """A BE pod with 48 MiB of its own, 20 of them cold, and 24 MiB of page cache, 16 cold."""
    host = world.host
    pod = world.pod("besteffort", UID, "c1", raw=QoSClass.BE)
    world.pod("guaranteed", UID2)
    world.application("batch", "batch", QoSClass.BE)
    host.spawn(pod.containers[0].cgroup, memory_bytes=48 * MIB, cache_bytes=24 * MIB)
    host.cool(pod.containers[0].cgroup, anon_bytes=20 * MIB, file_bytes=16 * MIB)
    host.spawn("batch", memory_bytes=8 * MIB).cold_bytes = 6 * MIB
    return host


class Measured:
    """A world with the collector alone, whose scans are done at once."""

    def __init__(self, method: str, layout: str = "v2", **options: object) -> None:
        self.world = World(layout, **options)
        self.host = furnish(self.world)
        machine = Machine(self.host, self.world.cgroups, Descriptors(self.host), self.world.store)
        worker = Worker(lambda work: work(), lambda: 0.0)
        self.collector = ColdCollector(machine, ColdOptions(method=method), worker)
        self.world.runner = self.world.runner_of(self.collector)

    def after(self, seconds: float) -> dict[tuple[str, ...], float]:
        """Samples of the last of the rounds in that time, one each ten seconds."""
        for _ in range(int(seconds / 10)):
            self.host.advance(10)
            last = self.world.round()
        return self.world.samples(last)

    @property
    def health(self) -> object:
        return self.world.health("cold")


def test_by_default_refaults_alone_where_there_is_no_kidled() -> None:
    assert ColdOptions().method == "kidled"
    world = Measured("kidled")
    first = world.after(10)
    assert "pod_memory_refault" not in {kind for kind, *_ in first}
    world.host.refault(f"kubepods/besteffort/pod{UID}/c1", 50)
    samples = world.after(10)
    assert samples["pod_memory_refault", UID] == 50 * 4096 / 10
    assert samples["pod_memory_refault", UID2] == 0
    assert samples["host_application_memory_refault", "batch"] == 0
    assert samples["node_swap_free",] == 0
    assert not [key for key in samples if "cold" in key[0]]
    assert world.health.success and not world.health.skipped
    assert "kidled: /sys/kernel/mm/kidled/" in world.collector.about()
    assert "would work" not in world.collector.about()
    (capability,) = world.collector.capabilities
    assert (capability.supported, capability.remedy) == (False, "")


def test_another_way_that_would_work_is_named() -> None:
    world = Measured("kidled", lru_gen=True)
    world.after(20)
    remedy = 'mglru would work: set collectors.cold.method = "auto"'
    assert world.collector.about().endswith(f"; {remedy}")
    (capability,) = world.collector.capabilities
    assert (capability.feature, capability.remedy) == ("cold-memory", remedy)
    assert capability.why.startswith("kidled: /sys/kernel/mm/kidled/")


def test_a_search_is_no_work_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading what a kernel has takes as long as a scan."""
    world = Measured("auto", lru_gen=True)
    begun: list[Callable[[], None]] = []
    machine = Machine(world.host, world.world.cgroups, Descriptors(world.host), world.world.store)
    collector = ColdCollector(machine, ColdOptions(method="auto"), Worker(begun.append))
    world.world.runner = world.world.runner_of(collector)
    monkeypatch.setattr(methods, "find", None)
    world.after(10)
    assert len(begun) == 1 and collector.about().endswith("has not ended yet")


def test_what_another_way_has_found_is_forgotten() -> None:
    """Or it would pass for what the new one has found."""
    world = Measured("auto", lru_gen=True, page_idle=True, memory_bytes=256 * MIB)
    found = world.after(150)
    assert found["node_cold_method", "mglru"] == 1
    world.host.write("/sys/kernel/mm/lru_gen/enabled", b"n")
    world.host.faults.hide("/sys/kernel/debug/lru_gen")
    world.host.cool(f"kubepods/besteffort/pod{UID}/c1")
    still = world.after(240)
    assert still["node_cold_method", "mglru"] == 1
    assert still["pod_memory_cold_anon", UID] == 20 * MIB
    later = world.after(240)
    assert (
        later["node_cold_method", "page-idle"] == 1 and ("node_cold_method", "mglru") not in later
    )
    assert later.get(("pod_memory_cold_anon", UID), 0) == 0


def test_a_counter_that_starts_anew_gives_no_rate() -> None:
    world = Measured("off", "hybrid")
    world.host.refault(f"kubepods/besteffort/pod{UID}/c1", 50)
    world.after(10)
    world.host.remove_cgroup(f"kubepods/besteffort/pod{UID}")
    world.host.make_cgroup(f"kubepods/besteffort/pod{UID}/c1")
    assert ("pod_memory_refault", UID) not in world.after(10)
    assert world.after(10)["pod_memory_refault", UID] == 0


def test_a_pod_that_stands_still_is_not_read() -> None:
    world = Measured("off")
    machine = Machine(world.host, world.world.cgroups, Descriptors(world.host), world.world.store)
    pods = COLLECTORS["pods"]
    world.world.runner = world.world.runner_of(pods.make(machine, pods.options), world.collector)
    world.after(20)
    world.host.faults.add(f"*/pod{UID2}/memory.stat", op="open", times=None)
    assert world.after(10)["pod_memory_refault", UID2] == 0
    world.host.spawn(f"kubepods/pod{UID2}", demand_cores=0.5)
    assert ("pod_memory_refault", UID2) not in world.after(10)


@pytest.mark.parametrize(
    ("method", "layout", "options"),
    [
        ("kidled", "hybrid", {"anolis": True}),
        ("mglru", "v2", {"lru_gen": True}),
        ("mglru", "hybrid", {"lru_gen": True}),
        ("auto", "v2", {"lru_gen": True, "page_idle": True}),
    ],
)
def test_cold_memory_of_node_pod_and_container(
    method: str, layout: str, options: dict[str, bool]
) -> None:
    world = Measured(method, layout, **options)
    if method == "kidled":
        for name in ("scan_period_in_seconds", "use_hierarchy"):
            world.host.write(f"/sys/kernel/mm/kidled/{name}", b"1")
    # kidled has been through 60 scans of a second at the second search.
    samples = world.after(150)
    for kind, *labels in (
        ("node", *()),
        ("pod", UID),
        ("container", "c1"),
    ):
        assert samples[f"{kind}_memory_cold_page_size", *labels] == 16 * MIB
    for kind, *labels in (("node", *()), ("pod", UID)):
        assert samples[f"{kind}_memory_cold_anon", *labels] == 20 * MIB
    # 48 MiB of its own and the 8 MiB of page cache that are hot.
    assert samples["pod_memory_with_hot_page_usage", UID] == 56 * MIB
    assert samples["container_memory_with_hot_page_usage", "c1"] == 56 * MIB
    found = samples["node_memory_with_hot_page_usage",]
    assert found == (512 + 48 + 24 + 8 - 16) * MIB
    assert samples["node_cold_method", "kidled" if method == "kidled" else "mglru"] == 1
    assert samples["koordlet_cold_cpu_usage",] == 0  # the clock of the test stands still
    # Nothing is said of the pod without memory, rather than 0, where its lists are not looked at.
    assert (("pod_memory_cold_anon", UID2) in samples) == (method == "kidled")


def test_page_idle_by_name() -> None:
    world = Measured("page-idle", page_idle=True, memory_bytes=256 * MIB)
    samples = world.after(250)
    assert samples["pod_memory_cold_anon", UID] == 20 * MIB
    assert samples["node_cold_method", "page-idle"] == 1


def test_referenced_bits_one_pod_a_minute_and_no_page_cache() -> None:
    world = Measured("clear-refs")
    assert world.collector._scan_s == 120.0
    samples = world.after(600)
    assert samples["host_application_memory_cold_mapped", "batch"] == 6 * MIB
    assert ("pod_memory_cold_page_size", UID) not in samples
    assert ("pod_memory_with_hot_page_usage", UID) not in samples
    assert not [key for key in samples if key[0].startswith("node_memory")]
    quick = ColdCollector(
        Machine(world.host, world.world.cgroups, Descriptors(world.host), world.world.store),
        ColdOptions(method="clear-refs", interval_seconds=10),
    )
    assert quick._scan_s == 60.0


def test_a_way_that_is_not_there_is_said_and_looked_for_again() -> None:
    world = Measured("mglru", lru_gen=True, lockdown=True)
    samples = world.after(20)
    assert samples["pod_memory_refault", UID] == 0
    about = world.collector.about()
    assert about.startswith("counts refaults; cold memory is not measured: mglru: ")
    assert "EPERM" in about
    switch = "/sys/kernel/mm/lru_gen/enabled"
    world = Measured("mglru", lru_gen=True)
    world.host.write(switch, b"n")
    assert "pod_memory_cold_anon" not in {kind for kind, *_ in world.after(130)}
    world.host.write(switch, b"y")
    assert world.after(250)["pod_memory_cold_anon", UID] == 20 * MIB
    assert world.collector.about() == (
        "counts refaults; finds cold memory by mglru, every 120 s at 0.00% of a core"
    )


def test_what_was_found_is_told_for_ten_minutes() -> None:
    world = Measured("mglru", lru_gen=True)
    world.after(130)
    world.host.write("/sys/kernel/mm/lru_gen/enabled", b"n")
    world.host.faults.hide("/sys/kernel/debug/lru_gen")
    assert ("pod_memory_cold_anon", UID) in world.after(590)
    assert ("pod_memory_cold_anon", UID) not in world.after(20)


def test_no_more_is_cold_than_there_is() -> None:
    world = Measured("mglru", lru_gen=True)
    world.after(150)
    world.host.write(f"/sys/fs/cgroup/kubepods/besteffort/pod{UID}/memory.reclaim", b"18M")
    samples = world.after(10)
    assert samples["pod_memory_cold_page_size", UID] == 6 * MIB
    assert samples["pod_memory_with_hot_page_usage", UID] == 48 * MIB


def test_what_koordlet_had_reclaimed_is_cold_no_more_and_proved_so_unless_it_comes_back() -> None:
    world = Measured("mglru", lru_gen=True)
    world.after(150)
    pod = f"kubepods/besteffort/pod{UID}"
    world.host.write(f"/sys/fs/cgroup/{pod}/memory.reclaim", b"12M")
    world.collector.reclaimed(pod, 12 * MIB)
    samples = world.after(10)
    assert samples["pod_memory_cold_page_size", UID] == 4 * MIB
    assert samples["node_memory_cold_page_size",] == 4 * MIB
    assert samples["pod_memory_confirmed_cold", UID] == 12 * MIB
    world.host.refault(f"{pod}/c1", 512)
    assert world.after(10)["pod_memory_confirmed_cold", UID] == 10 * MIB
    assert ("pod_memory_confirmed_cold", UID2) not in world.after(10)
    assert ("pod_memory_confirmed_cold", UID) not in world.after(600)


def test_a_reclaimed_container_counts_for_its_pod() -> None:
    world = Measured("off")
    world.after(10)
    world.collector.reclaimed(f"kubepods/besteffort/pod{UID}/c1", 3 * MIB)
    assert world.after(10)["pod_memory_confirmed_cold", UID] == 3 * MIB


def test_pods_that_go_give_their_series_up_and_a_closed_one_starts_afresh() -> None:
    world = Measured("mglru", lru_gen=True)
    world.after(150)
    world.world.pods = ()
    assert not [key for key in world.after(10) if key[0].startswith(("pod", "container"))]
    world.collector.close()
    assert not [key for key in world.after(10) if "cold" in key[0] and key[0] != "node_cold_method"]


def test_page_cache_goes_first() -> None:
    cold = Cold(anon_bytes=5, file_bytes=10)
    assert without(cold, 4) == Cold(anon_bytes=5, file_bytes=6)
    assert without(cold, 12) == Cold(anon_bytes=3, file_bytes=0)
    assert without(cold, 99) == Cold(anon_bytes=0, file_bytes=0)
    assert without(Cold(mapped_bytes=7), 3) == Cold(mapped_bytes=4)


def test_confirmed_is_of_ten_minutes_and_never_negative() -> None:
    confirmed = Confirmed()
    confirmed.add(0, 0, 500)  # nothing of ours
    assert confirmed.cold_bytes is None
    confirmed.add(10, 100, 0)
    confirmed.add(20, 0, 30)
    assert confirmed.cold_bytes == 70
    confirmed.add(30, 0, 500)
    assert confirmed.cold_bytes == 0
    confirmed.add(610, 0, 0)
    assert confirmed.cold_bytes is None
