"""Crowds of cgroups below pods and containers: bounded work for each decision, all of them in the
end, and a quota where they are too many."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.qos.cpu_suppress.below import FOLLOWERS, LOOKS, Below, look
from koordlet.qos.cpu_suppress.strategy import SuppressState, decide
from koordlet.qos.cpu_suppress.targets import LARGEST_TREE, walk
from koordlet.qos.cpu_suppress.targets import crowd as crowd_note
from tests.qos.build import (
    BE_DIR,
    Kernel,
    app,
    bare,
    be_pod,
    cpus_of,
    kernel,
    metrics,
    node,
    snapshot,
)

CPUS, QUOTA = Resource.CPUSET_CPUS, Resource.CPU_QUOTA_US
BOX = f"{BE_DIR}/poda/c0"


class Counting(Kernel):
    """Listings are made at once, because the tests have thousands; ``asked`` counts questions."""

    asked = 0

    def value(self, cgroup: str, resource: Resource):
        self.asked += 1
        return super().value(cgroup, resource)

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        if not hasattr(self, "_tree") or self._made != len(self.cgroups):
            self._tree, self._made = {}, len(self.cgroups)
            for each in sorted(self.cgroups):
                self._tree.setdefault(each.rpartition("/")[0], []).append(each)
        return tuple(self._tree.get(cgroup, ()))


def crowd(count: int, lists: int, top: str = BOX) -> Counting:
    """``lists`` of ``count`` cgroups below ``top`` have a CPU list of their own: the last ones."""
    found = Counting(**{f: getattr(kernel(16, "0-15"), f) for f in ("values", "cgroups")})
    for cgroup in (f"{BE_DIR}/poda", BOX, "job"):
        found.add(cgroup, cpus="0-15", quota=-1, period=100_000)
    found.add(BE_DIR, quota=-1, period=100_000)
    for n in range(count):
        has_list = n >= count - lists
        found.add(f"{top}/n{n:05d}", cpus="0-15" if has_list else "")
    return found


def below(in_force: Counting, rounds: int, tops: tuple[str, ...] = (BOX,)) -> list[Below]:
    memory, found = Below(), []
    for _ in range(rounds):
        memory = look(in_force, tops, memory, lambda each: bool(in_force.value(each, CPUS)))
        found.append(memory)
    return found


@pytest.mark.parametrize("count", [0, 1, 50, LOOKS - 10])
def test_a_few_are_all_looked_at_each_time(count: int) -> None:
    in_force = crowd(count, count)
    for memory in below(in_force, 3):
        assert len(memory.followers) == count and not memory.waiting


def test_thousands_are_looked_at_in_turns_and_found_in_the_end() -> None:
    in_force = crowd(10_000, 5)
    history = []
    memory = Below()
    for _ in range(80):
        in_force.asked = 0
        memory = look(in_force, (BOX,), memory, lambda each: bool(in_force.value(each, CPUS)))
        assert in_force.asked <= LOOKS
        history.append(len(memory.followers))
    assert history[0] == 0 and history[-1] == 5
    assert history == sorted(history), "what was found stays found while the next round goes on"


def test_what_lost_its_list_or_went_is_forgotten_after_a_round() -> None:
    in_force = crowd(1000, 5)
    memory = below(in_force, 10)[-1]
    assert len(memory.followers) == 5
    in_force.values[f"{BOX}/n00999", CPUS] = ""
    in_force.cgroups.discard(f"{BOX}/n00998")
    del in_force.values[f"{BOX}/n00998", CPUS]
    for _ in range(20):
        memory = look(in_force, (BOX,), memory, lambda each: bool(in_force.value(each, CPUS)))
    assert len(memory.followers) == 3


def test_nested_ones_and_those_of_a_container_that_went() -> None:
    in_force = crowd(0, 0)
    path = BOX
    for n in range(600):
        path = f"{path}/d"
        in_force.add(path, cpus="0-15" if n == 599 else "")
    memory = below(in_force, 10)[-1]
    assert memory.followers == (path,)
    gone = look(crowd(0, 0), ("elsewhere",), memory, lambda each: False)
    assert gone.followers == ()


def test_more_than_can_follow_are_counted() -> None:
    in_force = crowd(300, FOLLOWERS + 20)
    memory = below(in_force, 12)[-1]
    assert len(memory.followers) == FOLLOWERS and memory.left_out == 20


def test_the_more_siblings_the_fewer_can_follow() -> None:
    """The kernel compares a new list with those of all siblings."""
    followers = {
        count: len(below(crowd(count, count), 80)[-1].followers) for count in (200, 1000, 10_000)
    }
    assert followers == {200: 200, 1000: 85, 10_000: 9}


def play(in_force: Counting, apps=(), pods=None, ticks: int = 1, machine=None):
    memory = SuppressState()
    pods = [be_pod("a", containers=("c0",))] if pods is None else pods
    for tick in range(ticks):
        snap = snapshot(
            machine or node(16),
            pods=pods,
            apps=apps,
            metrics_=metrics(10.0),
            in_force=in_force,
        )
        in_force.asked = 0
        decision = decide(msgspec.structs.replace(snap, now=100.0 + tick), memory)
        memory = decision.memory
    return decision


def test_pods_and_containers_are_confined_at_once_beside_a_crowd() -> None:
    in_force = crowd(10_000, 0)
    found = cpus_of(play(in_force).plan)
    assert found == dict.fromkeys((BE_DIR, f"{BE_DIR}/poda", BOX), "0-1")


def test_a_crowd_with_lists_gets_a_quota_beside_and_loses_it_when_it_goes() -> None:
    in_force = crowd(399, 399)
    decision = play(in_force, ticks=6)
    quotas = {s.cgroup: s.value for s in decision.plan.settings if s.resource is QUOTA}
    assert quotas == {BE_DIR: 200_000}
    lists = [s for s in decision.plan.settings if s.resource is CPUS]
    assert len(lists) == 3 + FOLLOWERS
    (note,) = [each for each in decision.notes if each.rule == "cpu-suppress.crowd"]
    assert "143 of them, such as" in note.text
    few = crowd(100, 100)
    decision = play(few, ticks=3)
    assert not [s for s in decision.plan.settings if s.resource is QUOTA]
    assert not [each for each in decision.notes if each.rule == "cpu-suppress.crowd"]


def test_a_quota_in_another_period_means_as_many_cpus() -> None:
    in_force = crowd(400, 400, top="job")
    in_force.values["job", Resource.CPU_PERIOD_US] = 50_000
    decision = play(in_force, [app("job", "BE")], [], ticks=6, machine=bare(16, cpusets_nest=True))
    assert [s.value for s in decision.plan.settings if s.resource is QUOTA] == [100_000]


def test_on_v2_nothing_below_a_container_is_looked_at() -> None:
    in_force = crowd(1000, 1000)
    in_force.asked = 0
    decision = play(in_force, machine=node(16, cpusets_nest=False))
    assert set(cpus_of(decision.plan)) == {BE_DIR, f"{BE_DIR}/poda", BOX}
    assert in_force.asked < 20


def test_blkio_and_resctrl_leave_the_rest_of_a_crowd_out_and_say_so() -> None:
    in_force = crowd(1000, 0, top="job")
    assert len(walk(in_force, "job")) == LARGEST_TREE
    (note,) = crowd_note("blkio-qos.crowd", "job", LARGEST_TREE)
    assert "256 cgroups in job are managed" in note.text
    assert not list(crowd_note("blkio-qos.crowd", "job", LARGEST_TREE - 1))
