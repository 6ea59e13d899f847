"""The collector on the fake machine: by eBPF, by descriptors, and where nothing counts."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs.bpf.cpi import FakeCpiCounters

from koordlet.collectors.cpi.collector import TRY_AGAIN_S, CpiCollector
from koordlet.collectors.cpi.part import COLLECTOR, CpiOptions
from koordlet.collectors.cpi.sources import Counting
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.cgroup.ids import MOST_IDS
from koordlet.kernel.perf import groups
from koordlet.kernel.perf.counts import Count
from koordlet.protocol.qos import QoSClass
from tests.collectors.world import UID, UID2, World

S = 10**9
LAYOUTS = ("hybrid", "v2", "comount")
Found = dict[tuple[str, ...], float]


def watch(world: World, **options: object) -> CpiCollector:
    collector = CpiCollector(
        world.host, world.cgroups.layout, world.store, CpiOptions(**options), "/sys"
    )
    world.runner = world.runner_of(collector)
    return collector


def after(world: World, rounds: int) -> Found:
    """Samples of so many rounds together."""
    found: Found = {}
    for _ in range(rounds):
        found |= world.samples(world.rounds())
    return found


def id_of(world: World, cgroup: str) -> int:
    return world.host.inode(f"{world.cgroups.layout.reference_root}/{cgroup}")


@pytest.fixture(params=LAYOUTS)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param, pmu="full")


@pytest.fixture
def counters(world: World) -> FakeCpiCounters:
    counters = FakeCpiCounters()
    world.host.make_cpi_counters = lambda: counters
    return counters


def test_off_by_default_as_in_the_reference() -> None:
    assert COLLECTOR.options == CpiOptions(False, 60.0, 10.0, 1024)
    assert not list(COLLECTOR.problems())


def test_a_window_as_long_as_the_interval_is_refused() -> None:
    (problem,) = COLLECTOR.with_options(
        CpiOptions(interval_seconds=10.0, window_seconds=10.0)
    ).problems()
    assert problem.path == "window_seconds" and "shorter than" in problem.message


def test_by_ebpf_a_container_is_its_cgroup_and_those_below(
    world: World, counters: FakeCpiCounters
) -> None:
    pod = world.pod("burstable", UID, "web", "idle", raw=QoSClass.LS)
    web, idle = (container.cgroup for container in pod.containers)
    world.host.make_cgroup(f"{web}/init.scope")
    collector = watch(world)
    # 2 CPUs: of one the counters had half of the time, the other is the inner group's.
    counters.counts = {
        id_of(world, web): [Count(3 * S, S, 2 * S, S), Count(0, 0, 0, 0)],
        id_of(world, f"{web}/init.scope"): [Count(2 * S, S, S, S)],
    }
    found = after(world, 13)
    assert found == {
        ("container_cpi", "web", "cycle", UID): pytest.approx(8 * S),
        ("container_cpi", "web", "instruction", UID): pytest.approx(3 * S),
        ("container_cycles_per_instruction", "web", UID): pytest.approx(8 / 3),
    }
    assert counters.watched == tuple(
        id_of(world, each) for each in (idle, web, f"{web}/init.scope")
    )
    assert counters.cpus == (0, 1)
    (capability,) = collector.capabilities
    assert capability.supported and "eBPF" in capability.why
    assert world.round().skipped == []


def test_ten_seconds_of_each_minute(world: World, counters: FakeCpiCounters) -> None:
    world.pod("burstable", UID, "web")
    watch(world)
    world.rounds()
    counting = []
    for _ in range(180):
        counting.append(counters.counting)
        world.rounds()
    assert sum(counting) == 30
    assert counters.windows == 3
    starts = [n for n in range(1, 180) if counting[n] and not counting[n - 1]]
    assert starts == [60, 120]


def test_a_window_that_lasts_longer_counts_as_one_of_ten_seconds(
    world: World, counters: FakeCpiCounters
) -> None:
    pod = world.pod("burstable", UID, "web")
    counters.counts = {id_of(world, pod.containers[0].cgroup): [Count(40 * S, 20 * S, S, S)]}
    watch(world)
    world.rounds()
    world.host.advance(19)  # somebody else had the CPU
    found = after(world, 2)
    assert found["container_cpi", "web", "cycle", UID] == pytest.approx(20 * S)
    assert found["container_cycles_per_instruction", "web", UID] == 2.0


def test_what_the_programs_cost_is_spread_over_the_interval(
    world: World, counters: FakeCpiCounters
) -> None:
    counters.meter.costs = {"on_change": Cost(0.06, 400.0, 150_000.0)}
    collector = watch(world)
    world.rounds(13)
    assert collector.costs == {"on_change": Cost(pytest.approx(0.01), 400.0, 150_000.0)}
    assert world.runner.kernel_costs() == collector.costs


def test_latency_sensitive_containers_come_first_where_room_is_short(world: World) -> None:
    counters = FakeCpiCounters(room=1)
    world.host.make_cpi_counters = lambda: counters
    world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    ls = world.pod("burstable", UID, "web", raw=QoSClass.LS)
    watch(world)
    rounds = [world.rounds() for _ in range(13)]
    assert counters.watched == (id_of(world, ls.containers[0].cgroup),)
    assert rounds[-1].skipped == ["batch: no room among the 1 cgroups"]


def test_a_container_with_very_many_cgroups_is_left_out_by_name_and_costs_nobody_else(
    world: World,
) -> None:
    counters = FakeCpiCounters(room=9)
    world.host.make_cpi_counters = lambda: counters
    pod = world.pod("burstable", UID, "hog", "big", "web", raw=QoSClass.LS)
    hog, big, web = (container.cgroup for container in pod.containers)
    for number in range(MOST_IDS):
        world.host.make_cgroup(f"{hog}/{number}")
    for number in range(8):
        world.host.make_cgroup(f"{big}/{number}")
    watch(world)
    last = world.rounds(13)
    assert counters.watched == (id_of(world, web),)
    assert last.skipped == [
        "big: no room among the 9 cgroups",
        "hog: has more than 64 cgroups",
    ]


def test_what_is_left_out_is_said_until_the_next_window_ends(
    world: World, counters: FakeCpiCounters
) -> None:
    pod = world.pod("burstable", UID, "web")
    cgroup = id_of(world, pod.containers[0].cgroup)
    counters.counts = {cgroup: [Count(0, 0, S, 0)]}
    watch(world)
    world.rounds(13)
    for _ in range(57):
        assert world.rounds().skipped == ["web: no counter had room for it"]
    counters.counts = {cgroup: [Count(S, S, S, S)]}
    world.rounds(5)
    assert world.rounds().skipped == []


def test_by_descriptors_where_there_is_no_ebpf(world: World) -> None:
    web = world.pod("burstable", UID, "web", raw=QoSClass.LS).containers[0].cgroup
    world.pod("besteffort", UID2, "asleep")
    world.host.spawn(web, demand_cores=1.0)
    world.host.counters.cpi[web] = 4.0
    world.host.counters.share[web] = 0.5
    collector = watch(world)
    found = after(world, 13)
    # 10 s of one core at 2.5 GHz, half of it counted.
    assert found == {
        ("container_cpi", "web", "cycle", UID): pytest.approx(25e9, rel=0.01),
        ("container_cpi", "web", "instruction", UID): pytest.approx(6.25e9, rel=0.01),
        ("container_cycles_per_instruction", "web", UID): pytest.approx(4.0),
    }
    assert world.host.counters.held == 0
    (capability,) = collector.capabilities
    assert capability.supported
    assert capability.why.startswith("at most 1024 counters")
    assert "no eBPF: /sys/kernel/btf/vmlinux: ENOENT" in capability.why


def test_descriptors_have_a_bound_and_say_who_is_beyond(world: World) -> None:
    world.pod("besteffort", UID2, "batch", raw=QoSClass.BE)
    web = world.pod("burstable", UID, "web", raw=QoSClass.LS).containers[0].cgroup
    for pod in world.pods:
        world.host.spawn(pod.containers[0].cgroup, demand_cores=0.5)
    watch(world, max_descriptors=9)  # a container takes 5 on two CPUs
    rounds = [world.rounds() for _ in range(13)]
    found = {key for each in rounds for key in world.samples(each)}
    assert {key[1] for key in found} == {"web"} and web
    assert rounds[-1].skipped == ["1 containers are beyond 9 counters"]


def test_the_bound_is_a_quarter_of_the_files_where_that_is_less(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups.resource, "getrlimit", lambda which: (40, 40))
    world.pod("burstable", UID, "a", "b", "c")
    collector = watch(world)
    bound = "10 counters (a quarter of the files that koordlet may open)"
    assert world.rounds(13).skipped == [f"1 containers are beyond {bound}"]
    assert collector.capabilities[0].why.startswith(f"at most {bound}, one pair")


def test_a_counter_that_the_kernel_lacks_for_a_cgroup_is_not_a_cgroup_that_has_gone(
    world: World,
) -> None:
    """As in a unified hierarchy in which no controller was ever enabled."""
    pod = world.pod("burstable", UID, "web", "gone")
    collector = watch(world)
    world.host.faults.add("perf_event_open(cycles*", op="perf", errno=errno.ENOENT, after=1)
    world.host.remove_cgroup(pod.containers[1].cgroup)
    (skipped,) = world.rounds(13).skipped
    assert "/web: perf_event_open(cycles, CPU 0): ENOENT" in skipped
    (capability,) = collector.capabilities
    assert not capability.supported
    assert capability.why.startswith("no container was counted: ")


def test_counters_that_open_and_stand_still_are_no_sample_and_said(
    world: World, counters: FakeCpiCounters
) -> None:
    """As on a virtual machine whose PMU is there in name alone."""
    pod = world.pod("burstable", UID, "web")
    cgroup = id_of(world, pod.containers[0].cgroup)
    counters.counts = {cgroup: [Count(0, 0, S, S)]}
    collector = watch(world)
    assert after(world, 70) == {}
    (capability,) = collector.capabilities
    assert not capability.supported
    assert capability.why == (
        "of 1 containers that ran none was measured; one ran while its counters were on, and they "
        "say 0 cycles and 0 instructions"
    )
    counters.counts = {cgroup: [Count(S, S, S, S)]}
    assert after(world, 70) != {}
    assert collector.capabilities[0].supported


def test_what_koordlet_itself_takes_for_a_window_is_said(
    world: World, counters: FakeCpiCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(Counting.__init__, "__defaults__", (lambda: next(clock) * 0.012,))
    collector = watch(world)
    assert collector.about() == "no window has begun yet"
    world.rounds(13)
    # The begin and the end of a window took 12 ms each.
    assert collector.about().endswith("(eBPF); koordlet itself takes 0.04% of a core for it")


def test_a_counter_without_a_turn_is_told_and_is_no_zero(world: World) -> None:
    web = world.pod("burstable", UID, "web").containers[0].cgroup
    world.host.spawn(web, demand_cores=1.0)
    world.host.counters.share[web] = 0.0
    watch(world)
    rounds = [world.rounds() for _ in range(13)]
    assert not any(each.ids for each in rounds)
    assert rounds[-1].skipped == ["web: no counter had room for it"]


def test_a_container_that_ends_inside_a_window_is_left_out(
    world: World, counters: FakeCpiCounters
) -> None:
    pod = world.pod("burstable", UID, "web", "job")
    web, job = (container.cgroup for container in pod.containers)
    counters.counts = {id_of(world, each): [Count(2 * S, S, S, S)] for each in (web, job)}
    watch(world)
    assert {key[1] for key in after(world, 13)} == {"web", "job"}
    world.host.remove_cgroup(job)
    assert {key[1] for key in after(world, 60)} == {"web"}


@pytest.mark.parametrize(
    ("pmu", "why"),
    [
        ("none", "perf_event_open(cycles, CPU 0): ENOENT"),
        ("cycles", "cycles alone are counted; perf_event_open(instructions, CPU 0): ENOENT"),
    ],
)
def test_without_a_pmu_there_is_a_reason_and_never_a_zero(pmu: str, why: str) -> None:
    world = World("v2", pmu=pmu)
    web = world.pod("burstable", UID, "web").containers[0].cgroup
    world.host.spawn(web, demand_cores=1.0)
    collector = watch(world)
    assert after(world, 120) == {}
    (capability,) = world.runner.capabilities()
    assert (capability.feature, capability.supported) == ("cpi", False)
    assert capability.why.startswith(why)
    assert capability.cost and capability.remedy
    assert world.health("cpi").error == ""
    assert world.host.counters.held == 0
    assert collector.costs == {}


def test_what_was_missing_is_tried_again(world: World) -> None:
    fault = world.host.faults.add("perf_event_open(cycles*", op="perf", errno=errno.EACCES)
    world.pod("burstable", UID, "web")
    collector = watch(world)
    world.rounds(30)
    assert "CAP_PERFMON" in collector.capabilities[0].remedy
    assert fault.hits == 1
    world.rounds(int(TRY_AGAIN_S))
    assert collector.capabilities[0].supported


def test_neither_ebpf_nor_a_hierarchy_for_perf() -> None:
    world = World("v1", pmu="full")
    collector = watch(world)
    world.rounds(3)
    (capability,) = collector.capabilities
    assert not capability.supported
    assert "perf_event is mounted; no eBPF: /sys/kernel/btf/vmlinux" in capability.why


def test_a_window_that_is_refused_is_a_failure_and_starts_afresh(
    world: World, counters: FakeCpiCounters
) -> None:
    world.pod("burstable", UID, "web")
    collector = watch(world)
    counters.error = OSError(errno.EIO, "broken", "bpf(MAP_UPDATE_ELEM)")
    world.rounds(2)
    for _ in range(60):
        world.rounds()
        assert "bpf(MAP_UPDATE_ELEM)" in world.health("cpi").error
    assert counters.closed
    (capability,) = collector.capabilities
    assert not capability.supported
    assert capability.why == "bpf(MAP_UPDATE_ELEM): EIO (broken)"
    counters.error, counters.closed = None, False
    world.rounds(75)
    assert world.health("cpi").success and counters.windows == 1
    assert collector.capabilities[0].supported


def test_what_is_shed_leaves_nothing_open_and_comes_back(world: World) -> None:
    web = world.pod("burstable", UID, "web").containers[0].cgroup
    world.host.spawn(web, demand_cores=1.0)
    collector = watch(world)
    world.rounds(3)
    assert world.host.counters.held > 0
    collector.close()
    assert world.host.counters.held == 0
    world.runner = world.runner_of(collector)
    assert ("container_cycles_per_instruction", "web", UID) in after(world, 13)


def test_series_of_a_container_that_is_gone_end(world: World, counters: FakeCpiCounters) -> None:
    pod = world.pod("burstable", UID, "web")
    counters.counts = {id_of(world, pod.containers[0].cgroup): [Count(2 * S, S, S, S)]}
    collector = watch(world)
    world.rounds(13)
    assert len(collector._series) == 1
    world.pods = ()
    world.rounds(60)
    assert collector._series == {}
