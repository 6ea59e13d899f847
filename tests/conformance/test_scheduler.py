"""The scheduling model: usage answers to what the cgroups say, and counters only grow."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koordlet_fakefs import FakeHost, Process, shape

Version = Literal["v1", "v2"]


class Node:
    """Two CPUs and groups ``ls`` and ``be``; settings by their v1 name on either version."""

    def __init__(self, version: Version, cpus: int = 2, step_s: float = 0.01) -> None:
        layout: Literal["hybrid", "v2"] = "hybrid" if version == "v1" else "v2"
        self.version = version
        self.host = FakeHost(layout, topology=shape(cores_per_l3=cpus), step_s=step_s)
        for group in ("ls", "be"):
            self.host.make_cgroup(group)

    def path(self, controller: str, group: str, file: str) -> str:
        mount = f"/sys/fs/cgroup/{controller}" if self.version == "v1" else "/sys/fs/cgroup"
        return f"{mount}/{group}/{file}"

    def set(self, group: str, **values: int | str) -> None:
        files = {
            "weight": ("cpu", "cpu.shares", "cpu.weight"),
            "idle": ("cpu", "cpu.idle", "cpu.idle"),
            "quota": ("cpu", "cpu.cfs_quota_us", "cpu.max"),
            "burst": ("cpu", "cpu.cfs_burst_us", "cpu.max.burst"),
            "cpus": ("cpuset", "cpuset.cpus", "cpuset.cpus"),
        }
        for name, value in values.items():
            controller, v1, v2 = files[name]
            path = self.path(controller, group, v1 if self.version == "v1" else v2)
            self.host.write(path, str(value).encode())

    def stat(self, group: str) -> dict[str, int]:
        rows = self.host.read(self.path("cpu", group, "cpu.stat")).decode().splitlines()
        return {name: int(value) for name, value in (row.split() for row in rows)}

    def usage_s(self, group: str) -> float:
        if self.version == "v1":
            return int(self.host.read(self.path("cpuacct", group, "cpuacct.usage"))) / 1e9
        return self.stat(group)["usage_usec"] / 1e6

    def throttled_s(self, group: str) -> float:
        stat = self.stat(group)
        return (
            stat["throttled_time"] / 1e9 if self.version == "v1" else (stat["throttled_usec"] / 1e6)
        )


@pytest.fixture(params=["v1", "v2"])
def node(request: pytest.FixtureRequest) -> Node:
    return Node(request.param)


def burner(node: Node, group: str, threads: int = 4) -> Process:
    return node.host.spawn(group, demand_cores=threads, threads=threads)


def test_weights_share_a_full_machine(node: Node) -> None:
    burner(node, "ls")
    burner(node, "be")
    node.set("be", weight=512 if node.version == "v1" else 50)
    node.host.advance(10)
    assert node.usage_s("ls") == pytest.approx(20 * 2 / 3, rel=0.01)
    assert node.usage_s("be") == pytest.approx(20 / 3, rel=0.01)


def test_an_idle_group_gets_what_is_left(node: Node) -> None:
    service = node.host.spawn("ls", demand_cores=1.5, threads=4)
    burner(node, "be")
    node.set("be", idle=1)
    node.host.advance(10)
    assert node.usage_s("ls") == pytest.approx(15, rel=0.01)
    assert node.usage_s("be") == pytest.approx(5, rel=0.01)
    node.host.set_demand(service, 4)
    before = node.usage_s("be")
    node.host.advance(10)
    assert node.usage_s("be") - before < 0.1


def test_quota_limits_and_counts(node: Node) -> None:
    burner(node, "be")
    node.set("be", quota=50_000)
    node.host.advance(10)
    stat = node.stat("be")
    assert node.usage_s("be") == pytest.approx(5, rel=0.02)
    assert 98 <= stat["nr_periods"] <= 100
    assert stat["nr_throttled"] == stat["nr_periods"]
    # Two CPUs stand still for 75 ms of each period.
    assert node.throttled_s("be") == pytest.approx(15, rel=0.02)


def test_below_its_quota_a_group_is_not_throttled(node: Node) -> None:
    node.host.spawn("be", demand_cores=0.3)
    node.set("be", quota=50_000)
    node.host.advance(5)
    assert node.stat("be")["nr_periods"] > 40
    assert node.stat("be")["nr_throttled"] == 0
    assert node.throttled_s("be") == 0


def test_burst_carries_over_what_was_not_used(node: Node) -> None:
    task = node.host.spawn("be", demand_cores=0.0, threads=2)
    node.set("be", quota=20_000)
    node.set("be", burst=20_000)
    node.host.advance(1)
    before = node.usage_s("be")
    node.host.set_demand(task, 2)
    node.host.advance(0.1)
    assert node.usage_s("be") - before == pytest.approx(0.04, abs=0.001)
    node.host.advance(0.1)
    assert node.usage_s("be") - before == pytest.approx(0.06, abs=0.001)
    node.host.advance(0.1)
    assert node.stat("be")["nr_bursts"] == 1


def test_long_steps_hold_the_same_quota() -> None:
    node = Node("v1", step_s=1.0)
    burner(node, "be")
    node.set("be", quota=50_000)
    node.host.advance(10)
    assert node.usage_s("be") == pytest.approx(5, rel=0.02)
    assert node.stat("be")["nr_throttled"] == pytest.approx(90, abs=10)


def test_cpuset_confines(node: Node) -> None:
    burner(node, "ls")
    burner(node, "be")
    node.set("be", cpus="1")
    node.set("ls", cpus="0")
    node.host.advance(10)
    assert node.usage_s("be") == pytest.approx(10)
    node.set("ls", cpus="0-1")
    node.set("ls", weight=10_000)
    node.host.advance(10)
    assert node.usage_s("ls") > 10 + 18


def test_a_parent_limits_what_is_below(node: Node) -> None:
    node.host.make_cgroup("be/one")
    node.host.make_cgroup("be/two")
    for group in ("be/one", "be/two"):
        burner(node, group)
    node.set("be", quota=100_000)
    node.host.advance(10)
    assert node.usage_s("be") == pytest.approx(10, rel=0.02)
    assert node.usage_s("be/one") == pytest.approx(5, rel=0.02)


def test_an_open_loop_service_works_off_its_backlog(node: Node) -> None:
    service = node.host.spawn("ls", demand_cores=1.0, threads=4, open_loop=True)
    node.set("ls", quota=50_000)
    node.host.advance(4)
    assert service.granted_s == pytest.approx(2, rel=0.03)
    assert service.backlog_ns / 1e9 == pytest.approx(2, rel=0.03)
    node.set("ls", quota=-1 if node.version == "v1" else "max")
    node.host.advance(4)
    assert service.granted_s == pytest.approx(8, rel=0.03)
    assert service.backlog_ns == pytest.approx(0, abs=1e7)


def test_normal_neighbours_delay_wakeups_and_idle_ones_do_not(node: Node) -> None:
    service = node.host.spawn("ls", demand_cores=0.5, threads=4)
    burner(node, "be")
    node.host.advance(5)
    delayed = service.wait_s
    assert delayed > 0.1
    node.set("be", idle=1)
    node.host.advance(5)
    assert service.wait_s == delayed


def test_pressure_of_four_spinners_on_one_cpu() -> None:
    """On a real kernel avg10 stood at 17.8 after three seconds of this."""
    node = Node("v2", cpus=1)
    burner(node, "be")
    node.host.advance(3)
    text = node.host.read("/sys/fs/cgroup/be/cpu.pressure").decode()
    average = float(text.split("avg10=")[1].split()[0])
    assert average == pytest.approx(18, abs=0.5)
    assert "full avg10=0.00" in text


def test_a_frozen_group_stands_still() -> None:
    node = Node("v2")
    burner(node, "be")
    node.host.write("/sys/fs/cgroup/be/cgroup.freeze", b"1")
    node.host.advance(5)
    assert node.usage_s("be") == 0


def test_each_cpu_adds_up() -> None:
    node = Node("v1", cpus=4)
    burner(node, "be", 3)
    node.set("be", cpus="1-2")
    node.host.advance(7)
    per_cpu = node.host.read("/sys/fs/cgroup/cpuacct/be/cpuacct.usage_percpu").split()
    assert [int(ns) / 1e9 for ns in per_cpu] == pytest.approx([0, 7, 7, 0])
    rows = node.host.read("/proc/stat").decode().splitlines()[1:5]
    busy = [sum(map(int, row.split()[1:4])) for row in rows]
    assert busy == [0, 700, 700, 0]


_CHANGES = st.one_of(
    st.tuples(st.just("weight"), st.sampled_from([2, 100, 1024])),
    st.tuples(st.just("idle"), st.sampled_from([0, 1])),
    st.tuples(st.just("quota"), st.sampled_from([-1, 10_000, 150_000])),
    st.tuples(st.just("cpus"), st.sampled_from(["0", "1-2", "0-3"])),
    st.tuples(st.just("demand"), st.sampled_from([0, 1, 3])),
    st.tuples(st.just("advance"), st.sampled_from([0.003, 0.25, 1.7])),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["ls", "be"]), _CHANGES), max_size=12))
def test_counters_grow_and_nothing_is_made_up(
    changes: list[tuple[str, tuple[str, int | str]]],
) -> None:
    node = Node("v1", cpus=4)
    tasks = {group: node.host.spawn(group, threads=3, open_loop=True) for group in ("ls", "be")}
    seen: dict[str, float] = {}
    for group, (what, value) in changes:
        if what == "advance":
            node.host.advance(float(value))
        elif what == "demand":
            node.host.set_demand(tasks[group], float(value))
        else:
            try:
                node.set(group, **{what: value})
            except OSError:
                assert what == "weight"  # the group is idle
        now = {f"{g} usage": node.usage_s(g) for g in tasks}
        now |= {f"{g} {k}": v for g in tasks for k, v in node.stat(g).items()}
        for name, count in now.items():
            assert count >= seen.get(name, 0.0), name
        seen = now
        elapsed = node.host.monotonic() - node.host.options.uptime_s
        assert now["ls usage"] + now["be usage"] <= 4 * elapsed + 1e-6
        granted = sum(task.granted_s for task in tasks.values())
        assert granted == pytest.approx(now["ls usage"] + now["be usage"], abs=1e-6)
