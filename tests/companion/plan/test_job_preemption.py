"""Room for whole gangs: docs/reference/central.md 8.2."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.model.cluster.pods import Pod, PodClass
from koord_scheduler.plan.network import Network
from koord_scheduler.plan.preemption.jobs import JobPreemption, NoJobPreemption, preempt_for_job
from koordlet.protocol.objects.network_topology import ClusterNetworkTopologySpec, TopologyLayer
from tests.companion.plan.build import Fit, Taints, classes, cluster, engine, node, pod, running
from tests.companion.plan.test_preemption import SameTeam

make = classes()
HIGH = make(cpu=1000, priority=100)
JOB = "scheduling.koordinator.sh/questioned-object-key"


def gang(count: int, cls: PodClass = HIGH, **more: Any) -> list[Pod]:
    return [pod(f"m{i}", cls, gang="a/g", **more) for i in range(count)]


def victims(found: JobPreemption | NoJobPreemption) -> dict[str, list[str]]:
    assert isinstance(found, JobPreemption), found
    return {name: sorted(each.key for each in pods) for name, pods in found.victims.items()}


def full(*priorities: tuple[int, str], cpu: int = 1000) -> tuple[Cluster, list[PodClass]]:
    """Node n0, n1, ...: each full with one pod of this priority and job."""
    found = cluster(*(node(f"n{i}", cpu=cpu) for i in range(len(priorities))))
    some = []
    for i, (priority, job) in enumerate(priorities):
        cls = make(cpu=cpu, priority=priority)
        some.append(cls)
        running(found, f"v{i}", cls, f"n{i}", labels={JOB: job} if job else {})
    return found, some


def test_the_cheapest_nodes_by_rank_of_priority_and_name() -> None:
    found, _ = full((5, "a"), (1, "b"), (3, "c"), (1, "d"))
    pods = gang(3)
    made = preempt_for_job(engine(found), pods[0], pods)
    assert victims(made) == {"n1": ["a/v1"], "n3": ["a/v3"], "n2": ["a/v2"]}
    assert isinstance(made, JobPreemption)
    assert made.nominations == {"a/m0": "n1", "a/m1": "n3", "a/m2": "n2"}
    assert len(found.claims) == 4  # nothing has happened


def test_all_members_or_nobody_goes() -> None:
    found, _ = full((1, ""), (1, ""))
    pods = gang(3)
    made = preempt_for_job(engine(found), pods[0], pods)
    assert isinstance(made, NoJobPreemption)
    assert "even without pods of lower priority" in made.words
    assert len(found.claims) == 2


def test_free_nodes_are_used_too_and_first() -> None:
    found, _ = full((1, ""), (2, ""))
    found.set_node(node("z-free", cpu=1000))
    pods = gang(2)
    made = preempt_for_job(engine(found), pods[0], pods)
    assert victims(made) == {"n0": ["a/v0"]}
    assert isinstance(made, JobPreemption)
    assert set(made.nominations.values()) == {"z-free", "n0"}


def test_a_job_costs_once_on_each_node() -> None:
    """n0 has two victims of one job, n1 two of two jobs: n0 is cheaper."""
    found = cluster(node("n1", cpu=2000), node("n0", cpu=2000), node("n2", cpu=1000))
    low, high = make(cpu=1000, priority=1), make(cpu=1000, priority=2)
    for name, where, job in (
        ("a", "n0", "x"),
        ("b", "n0", "x"),
        ("c", "n1", "x"),
        ("d", "n1", "y"),
    ):
        running(found, name, high, where, labels={JOB: job})
    running(found, "e", low, "n2")
    pods = gang(2, make(cpu=1000, priority=100))
    made = preempt_for_job(engine(found), pods[0], pods)
    # n2 (rank 0) takes one member, n0 (rank 1) the other; one of its two victims can stay.
    assert victims(made) == {"n0": ["a/b"], "n2": ["a/e"]}


def test_reprieve_by_priority_then_job_then_name() -> None:
    found = cluster(node("n0", cpu=4000))
    low, high = make(cpu=1000, priority=1), make(cpu=1000, priority=9)
    running(found, "c", low, "n0", labels={JOB: "x"})
    running(found, "b", low, "n0", labels={JOB: "y"})
    running(found, "a", low, "n0", labels={JOB: "y"})
    running(found, "z", high, "n0", labels={JOB: "z"})
    pods = gang(2)
    assert victims(preempt_for_job(engine(found), pods[0], pods)) == {"n0": ["a/a", "a/b"]}


@pytest.mark.parametrize(
    "labels",
    [
        {"scheduling.koordinator.sh/disable-preemptible": "true"},
        {"quota.scheduling.koordinator.sh/preemptible": "false"},
    ],
)
def test_pods_that_may_not_be_preempted(labels: dict[str, str]) -> None:
    found = cluster(node("n0", cpu=1000))
    running(found, "v", make(cpu=1000, priority=1, labels=labels), "n0", labels=labels)
    pods = gang(1)
    assert isinstance(preempt_for_job(engine(found), pods[0], pods), NoJobPreemption)


def test_equal_priority_stays_and_the_ledger_may_refuse() -> None:
    found, _ = full((100, ""))
    pods = gang(1)
    assert isinstance(preempt_for_job(engine(found), pods[0], pods), NoJobPreemption)
    found, _ = full((1, ""), (2, ""))
    made = preempt_for_job(
        engine(found), pods[0], pods, lambda each, _: "again" if each.uid == "v0" else None
    )
    assert victims(made) == {"n1": ["a/v1"]}


def test_who_never_preempts_and_who_waits_for_the_last_one() -> None:
    found, _ = full((1, ""))
    pods = gang(1, make(cpu=1000, priority=100, preempts=False))
    made = preempt_for_job(engine(found), pods[0], pods)
    assert made == NoJobPreemption("not eligible due to preemptionPolicy=Never.")
    found, some = full((1, ""), (1, ""))
    running(found, "v0", some[0], "n0", terminating=True)
    trigger, nominated = gang(1)[0], pod("other", HIGH, gang="a/g", nominated="n0")
    made = preempt_for_job(engine(found), trigger, [trigger, nominated])
    assert isinstance(made, NoJobPreemption)
    assert "terminating" in made.words


@pytest.mark.parametrize("ends", [False, True])
def test_a_quota_is_freed_wherever_its_pods_are(ends: bool) -> None:
    found = cluster(*(node(name) for name in ("a0", "a1", "n0", "n1")))
    low = make(cpu=1000, priority=1, labels={"team": "red"})
    for at in range(2):
        running(found, f"v{at}", low, f"n{at}", terminating=ends and at == 0)
    decide = engine(found)
    decide.gates.append(SameTeam(found, limit=2))
    pods = gang(2, make(cpu=4000, priority=100, labels={"team": "red"}))
    kept = preempt_for_job(decide, pods[0], pods, lambda victim, _: "no")
    assert isinstance(kept, NoJobPreemption) and "Insufficient quotas" in kept.words
    made = preempt_for_job(decide, pods[0], pods)
    assert victims(made) == ({} if ends else {"n0": ["a/v0"]}) | {"n1": ["a/v1"]}
    assert isinstance(made, JobPreemption)
    assert made.nominations == {"a/m0": "a0", "a/m1": "a1"} and len(found.claims) == 2


def test_a_gate_is_asked_for_the_victims() -> None:
    found, _ = full((1, ""), (2, ""))

    class Quota:
        name = "ElasticQuota"

        def admit(self, each: Pod) -> str | None:
            return None

        def may_preempt(self, each: Pod, victim: Pod) -> bool:
            return victim.uid != "v0"

    decide = engine(found)
    decide.gates.append(Quota())
    pods = gang(1)
    assert victims(preempt_for_job(decide, pods[0], pods)) == {"n1": ["a/v1"]}


def test_a_job_that_must_stay_together_makes_room_in_one_block() -> None:
    found = cluster(*(node(f"n{i}", cpu=1000, labels={"block": f"b{i // 2}"}) for i in range(4)))
    for i, priority in enumerate((1, 200, 5, 5)):
        running(found, f"v{i}", make(cpu=1000, priority=priority), f"n{i}")
    network = Network(found)
    network.spec = ClusterNetworkTopologySpec((TopologyLayer("block", "", ("block",)),))
    asked = '{"gatherStrategy":[{"layer":"block","strategy":"MustGather"}]}'
    pods = gang(2)
    made = preempt_for_job(engine(found), pods[0], pods, None, asked, network)
    assert victims(made) == {"n2": ["a/v2"], "n3": ["a/v3"]}
    assert len(found.claims) == 4
    three = gang(3)
    none = preempt_for_job(engine(found), three[0], three, None, asked, network)
    assert isinstance(none, NoJobPreemption)
    assert "desiredOfferSlot: 3" in none.words


def test_a_member_may_go_where_the_trigger_may_not() -> None:
    """The trigger does not tolerate the node that another member of the job fits on."""
    block = {"block": "b"}
    found = cluster(
        node("n0", cpu=1000, labels=block),
        node("n1", cpu=1000, labels=block, taints=(Taint("a", "b", "NoSchedule"),)),
    )
    low = make(cpu=1000, priority=1)
    running(found, "v0", low, "n0")
    network = Network(found)
    network.spec = ClusterNetworkTopologySpec((TopologyLayer("block", "", ("block",)),))
    tolerant = make(cpu=1000, priority=100, labels={"tolerant": ""})
    pods = [pod("m0", HIGH, gang="a/g", index=0), pod("m1", tolerant, gang="a/g", index=1)]
    asked = '{"gatherStrategy": [{"layer": "block", "strategy": "MustGather"}]}'
    made = preempt_for_job(engine(found, Tolerating(), Fit()), pods[0], pods, None, asked, network)
    assert isinstance(made, JobPreemption), made
    assert made.nominations == {"a/m0": "n0", "a/m1": "n1"}
    assert victims(made) == {"n0": ["a/v0"]}


class Tolerating(Taints):
    def applies(self, cluster: Cluster, pod: PodClass) -> bool:
        return "tolerant" not in pod.labels
