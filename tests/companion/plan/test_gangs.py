"""A gang group as one decision: docs/reference/central.md 3.4, 8.1, example G9."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from koord_scheduler.model.annotations import NAME, bytes_of
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import Normalize, Verdict
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.gangs import (
    BEGUN_PRIORITY,
    GroupFailed,
    GroupPlaced,
    make_room,
    place_group,
    unit,
)
from koord_scheduler.plan.network import SELECTOR, Network
from koord_scheduler.plan.outcomes import Placement
from koord_scheduler.plan.preemption.jobs import JobPreemption, NoJobPreemption
from koord_scheduler.share.gang.book import Gangs, bind_annotations
from koord_scheduler.share.gang.declared import CoschedulingArgs, from_core
from koordlet.protocol.objects.network_topology import ClusterNetworkTopologySpec, TopologyLayer
from tests.companion.plan.build import Apart, Fit, Taints, classes, cluster, engine, node, running
from tests.companion.share.gang.build import pod

SMALL, LARGE = classes()(cpu=1000), classes()(cpu=9000)
make = classes()


def world(*nodes: Any, **args: Any) -> tuple[Cluster, Engine, Gangs]:
    found = cluster(*nodes)
    return found, engine(found), Gangs(found.claims, CoschedulingArgs(**args))


def join(gangs: Gangs, *pods: Pod) -> None:
    for each in pods:
        gangs.set_pod(each)


def nodes_of(outcome: GroupPlaced | GroupFailed) -> dict[str, str]:
    assert isinstance(outcome, GroupPlaced), outcome
    return {each.pod.key: each.node for each in outcome.placements}


def test_all_members_at_once_with_their_group_on_the_binding() -> None:
    found, decide, gangs = world(node("n1"), node("n2"))
    cls = make(cpu=2000)
    join(gangs, *(pod(f"p{i}", cls=cls, said={"min-available": "4"}) for i in range(4)))
    outcome = place_group(decide, gangs, "a/g")
    assert len(nodes_of(outcome)) == 4
    assert isinstance(outcome, GroupPlaced)
    assert set(outcome.placements[0].annotations.items()) >= set(bind_annotations("a/g", 4).items())
    assert found.requested[:2, 0].tolist() == [4000, 4000]
    assert gangs.pending("a/g") == []


def test_a_binding_must_not_make_a_member_unwritable() -> None:
    found, decide, gangs = world(node("n1"))
    free = (256 << 10) - bytes_of(bind_annotations("a/g", 2))
    most = {"p0": free, "p1": free + 1}
    for name, size in most.items():
        join(gangs, pod(name, cls=SMALL, said={"min-available": "2"}, annotation_bytes=size))
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupFailed) and outcome.root is not None
    assert outcome.root.pod.key == "a/p1" and not found.claims
    assert "262145 bytes, of which 262144 are allowed" in outcome.text("a/p1")
    assert outcome.refused_by == {NAME}


def test_an_impossible_gang_is_refused_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    found, decide, gangs = world(node("n1"), node("n2"))
    cls = make(cpu=2000)
    join(gangs, *(pod(f"p{i}", cls=cls, said={"min-available": "5"}) for i in range(5)))

    def never(*_: object) -> Placement:
        raise AssertionError("a member was tried")

    monkeypatch.setattr(decide, "place", never)
    version = found.version
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupFailed)
    assert "2 node(s) had room for too few members of the gang" in outcome.text("a/p0")
    assert outcome.text("a/p3").startswith('GangGroup "a/g" gets rejected due to member Pod "a/p0"')
    assert "NodeResourcesFit" in outcome.refused_by
    assert found.version == version


def test_g9_all_members_fail_with_the_message_of_the_first() -> None:
    found, decide, gangs = world(node("n1", cpu=8000))
    small = [pod(f"p{i}", cls=make(), said={"min-available": "3"}) for i in range(2)]
    large = pod("x", cls=make(cpu=7000), created_s=1.0, said={"min-available": "3"})
    join(gangs, *small, large)
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupFailed)
    own = "0/1 nodes are available: 1 Insufficient cpu."
    assert outcome.text("a/x") == own
    assert (
        outcome.text("a/p0")
        == outcome.text("a/p1")
        == (
            f'GangGroup "a/g" gets rejected due to member Pod "a/x" is unschedulable with reason '
            f'"{own}", alreadyWaitForBound: 2'
        )
    )
    assert not found.claims
    assert found.requested.sum() == 0


@pytest.mark.parametrize(
    ("mode", "placed"),
    [("Strict", 0), ("NonStrict", 3)],
)
def test_strict_and_not(mode: str, placed: int) -> None:
    found, decide, gangs = world(node("n1", cpu=8000))
    said = {"min-available": "3", "mode": mode}
    join(
        gangs,
        pod("large", cls=make(cpu=9000), said=said),
        *(pod(f"p{i}", cls=make(), created_s=1.0, said=said) for i in range(3)),
    )
    outcome = place_group(decide, gangs, "a/g")
    assert len(found.claims) == placed
    if placed:
        assert isinstance(outcome, GroupPlaced)
        assert [each.pod.key for each in outcome.left] == ["a/large"]


def test_a_member_beyond_the_minimum_does_not_hold_back_the_others() -> None:
    _, decide, gangs = world(node("n1", cpu=3000))
    cls = make()
    join(gangs, *(pod(f"p{i}", cls=cls, said={"min-available": "3"}) for i in range(5)))
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupPlaced)
    assert (len(outcome.placements), len(outcome.left)) == (3, 2)


def test_gangs_of_a_group_start_together() -> None:
    found, decide, gangs = world(node("n1", cpu=3000))
    groups = {"groups": '["a/g", "a/h"]', "min-available": "2"}
    cls = make()
    join(gangs, *(pod(f"p{i}", "g", cls, said=groups) for i in range(2)))
    assert "a/h" in gangs.gate("a/g,a/h")
    join(gangs, *(pod(f"q{i}", "h", cls, said=groups) for i in range(2)))
    assert isinstance(place_group(decide, gangs, "a/g,a/h"), GroupFailed)
    assert not found.claims
    found.set_node(node("n2", cpu=1000))
    assert len(nodes_of(place_group(decide, gangs, "a/g,a/h"))) == 4


def test_once_satisfied_members_start_one_by_one() -> None:
    found, decide, gangs = world(node("n1", cpu=2000))
    cls = make()
    join(gangs, *(pod(f"p{i}", cls=cls, said={"min-available": "2"}) for i in range(2)))
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupPlaced)
    for each in outcome.placements:
        gangs.bound(each.pod)
    found.remove("a/p0")
    join(gangs, pod("q0", cls=cls), pod("q1", cls=cls))
    gangs.remove_pod(pod("p0"))
    again = place_group(decide, gangs, "a/g")
    assert isinstance(again, GroupPlaced)
    assert [(each.pod.key, each.annotations) for each in again.placements] == [("a/q0", {})]
    assert [each.pod.key for each in again.left] == ["a/q1"]


def test_members_of_only_waiting_do_not_count_those_that_run() -> None:
    found, decide, gangs = world(node("n1", cpu=8000))
    cls = make()
    said = {"min-available": "2", "match-policy": "only-waiting"}
    join(gangs, pod("old", cls=cls, said=said, node="n1"), pod("new", cls=cls, said=said))
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupFailed)
    assert "too few members of the gang wait" in outcome.words
    said["match-policy"] = "waiting-and-running"
    other = Gangs(found.claims)
    join(other, pod("old", cls=cls, said=said, node="n1"), pod("new", cls=cls, said=said))
    assert list(nodes_of(place_group(decide, other, "a/g"))) == ["a/new"]


def test_a_new_leader_finishes_what_was_begun_first() -> None:
    found, decide, gangs = world(node("n1", cpu=8000))
    found.now_s = 200.0
    cls = make()
    said = {"min-available": "3", "match-policy": "only-waiting"}
    words = bind_annotations("a/g", 3)
    bound = pod("p0", cls=cls, said=said, node="n1", annotations=words, scheduled_s=100.0)
    found.add(Claim(bound, "n1"))
    join(gangs, bound, *(pod(f"p{i}", cls=cls, said=said) for i in (1, 2)))
    queued = unit(gangs, "a/g", found.now_s)
    assert queued is not None
    assert queued.priority == 0  # this process has led for long
    gangs.leads_since_s = 150.0
    queued = unit(gangs, "a/g", found.now_s)
    assert queued is not None
    assert (queued.name, queued.priority, queued.gate) == ("gang:a/g", BEGUN_PRIORITY, "")
    assert len(nodes_of(place_group(decide, gangs, "a/g"))) == 2
    assert unit(gangs, "a/g", found.now_s) is None


def test_the_unit_in_the_queue() -> None:
    _, _, gangs = world(node("n1"))
    cls = PodClass(number=77, namespace="a", priority=5)
    join(gangs, pod("p0", created_s=3.0, cls=cls, said={"min-available": "2"}))
    found = unit(gangs, "a/g", 0.0)
    assert found is not None
    assert (found.priority, found.created_s, found.pods) == (5, 3.0, ("a/p0",))
    assert "child pod not collect enough" in found.gate


def test_a_gate_that_refuses_one_member_refuses_all() -> None:
    found, decide, gangs = world(node("n1", cpu=8000))

    class AtMostTwo:
        name = "ElasticQuota"

        def admit(self, each: Pod) -> str | None:
            return "quota exceeded" if len(found.claims) >= 2 else None

        def may_preempt(self, each: Pod, victim: Pod) -> bool:
            return False

    decide.gates.append(AtMostTwo())
    cls = make()
    join(gangs, *(pod(f"p{i}", cls=cls, said={"min-available": "3"}) for i in range(3)))
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupFailed)
    assert outcome.refused_by == {"ElasticQuota"}
    assert not found.claims


def test_a_strict_gang_has_none_or_enough() -> None:
    draw = random.Random(12)
    some = [make(cpu=cpu) for cpu in (500, 1000, 2500)]
    for _ in range(150):
        found, decide, gangs = world(
            *(node(f"n{i}", cpu=draw.choice((1000, 3000, 6000))) for i in range(3))
        )
        minimums = {f"g{i}": draw.randint(1, 5) for i in range(draw.randint(1, 2))}
        groups = json.dumps([f"a/{name}" for name in minimums])
        for name, minimum in minimums.items():
            said = {"min-available": str(minimum), "groups": groups}
            said["mode"] = draw.choice(("Strict", "NonStrict"))
            for i in range(minimum + draw.randint(0, 2)):
                join(gangs, pod(f"{name}-{i}", name, draw.choice(some), said=said))
        group = ",".join(sorted(f"a/{name}" for name in minimums))
        outcome = place_group(decide, gangs, group)
        counts = {
            name: sum(claim.pod.gang == f"a/{name}" for claim in found.claims.values())
            for name in minimums
        }
        if isinstance(outcome, GroupFailed):
            assert set(counts.values()) == {0}
            assert not found.requested.any()
        else:
            assert all(counts[name] >= minimum for name, minimum in minimums.items())
        assert (found.requested <= found.allocatable).all()


SPEC = ClusterNetworkTopologySpec(
    (TopologyLayer("block", "", ("block",)), TopologyLayer("NodeTopologyLayer", "block"))
)
ASKED = '{"gatherStrategy":[{"layer":"block","strategy":"MustGather"}]}'


NODES_OF_BLOCKS = (("b1", 3000), ("b1", 1000), ("b2", 2000), ("b2", 2000))


def blocks(found: Cluster) -> Network:
    network = Network(found)
    network.spec = SPEC
    return network


def test_a_job_stays_in_one_block() -> None:
    found, decide, gangs = world(
        *(
            node(f"n{i}", cpu=cpu, labels={"block": block})
            for i, (block, cpu) in enumerate(NODES_OF_BLOCKS)
        ),
        aware_network_topology=True,
    )
    cls = make()
    said = {"min-available": "4", "network-topology-spec": ASKED}
    join(gangs, *(pod(f"p{i}", cls=cls, said=said, index=3 - i) for i in range(4)))
    where = nodes_of(place_group(decide, gangs, "a/g", blocks(found)))
    # Both blocks offer four; the nodes of b2 are better on average. Pods go by their index.
    assert where == {"a/p3": "n2", "a/p2": "n2", "a/p1": "n3", "a/p0": "n3"}


def test_a_job_that_fits_no_block_is_told_so() -> None:
    found, decide, gangs = world(
        node("n0", labels={"block": "b1"}),
        node("n1", labels={"block": "b2"}),
        aware_network_topology=True,
    )
    cls = make()
    said = {"min-available": "5", "network-topology-spec": ASKED}
    join(gangs, *(pod(f"p{i}", cls=cls, said=said) for i in range(5)))
    outcome = place_group(decide, gangs, "a/g", blocks(found))
    assert isinstance(outcome, GroupFailed)
    assert (
        "no candidate topology nodes can accommodate job, desiredOfferSlot: 5, topology "
        "topologyNode block/b1: 4;block/b2: 4"
    ) in outcome.words
    assert not found.claims
    without = place_group(decide, gangs, "a/g")
    assert isinstance(without, GroupFailed)
    assert "no cluster network topology" in without.words
    # Without the argument the network does not count.
    free = Gangs(found.claims)
    join(free, *(pod(f"p{i}", cls=cls, said=said) for i in range(5)))
    assert len(nodes_of(place_group(decide, free, "a/g"))) == 5


def test_a_plan_learns_what_a_node_does_not_take() -> None:
    found = cluster(*(node(f"n{i}", labels={"block": f"b{i // 3}"}) for i in range(6)))
    decide = engine(found, Taints(), Fit(), Apart())
    gangs = Gangs(found.claims, CoschedulingArgs(aware_network_topology=True))
    cls = make(labels={"apart": ""})
    said = {"min-available": "3", "network-topology-spec": ASKED}
    join(gangs, *(pod(f"p{i}", cls=cls, said=said) for i in range(3)))
    where = nodes_of(place_group(decide, gangs, "a/g", blocks(found)))
    assert sorted(where.values()) == ["n0", "n1", "n2"]


def test_a_job_is_drawn_to_pods_of_its_selector() -> None:
    found, decide, gangs = world(
        *(node(f"n{i}", labels={"block": f"b{i}"}) for i in range(3)),
        aware_network_topology=True,
    )
    selected = {SELECTOR: "job-1"}
    cls = make(annotations=selected)
    found.add(Claim(pod("there", "", cls, annotations=selected), "n2"))
    said = {"min-available": "2", "network-topology-spec": ASKED}
    join(gangs, *(pod(f"p{i}", cls=cls, said=said, annotations=selected) for i in range(2)))
    where = nodes_of(place_group(decide, gangs, "a/g", blocks(found)))
    assert set(where.values()) == {"n2"}


def test_a_gang_without_a_minimum_waits_for_nobody() -> None:
    _, decide, gangs = world(node("n1", cpu=1000))
    cls = make()
    gangs.set_gang(from_core("a/g", None, 0.0, gangs.args))
    join(gangs, *(pod(f"p{i}", cls=cls) for i in range(2)))
    outcome = place_group(decide, gangs, "a/g")
    assert isinstance(outcome, GroupPlaced)
    assert (len(outcome.placements), len(outcome.left)) == (1, 1)


def test_room_for_a_gang_that_failed() -> None:
    found, decide, gangs = world(node("n1", cpu=1000), node("n2", cpu=1000))
    low, high = make(cpu=1000, priority=1), make(cpu=1000, priority=9)
    for name in ("n1", "n2"):
        running(found, f"on-{name}", low, name)
    said = {"min-available": "2"}
    join(gangs, *(pod(f"p{i}", cls=high, said=said) for i in range(2)))
    failed = place_group(decide, gangs, "a/g")
    assert isinstance(failed, GroupFailed)
    assert isinstance(make_room(decide, gangs, failed), NoJobPreemption)  # it is off
    gangs.args = CoschedulingArgs(enable_preemption=True)
    made = make_room(decide, gangs, failed)
    assert isinstance(made, JobPreemption)
    assert made.nominations == {"a/p0": "n1", "a/p1": "n2"}
    for victims in made.victims.values():
        for victim in victims:
            found.remove(victim.key)
    assert nodes_of(place_group(decide, gangs, "a/g")) == made.nominations


def test_a_plugin_that_fails_refuses_the_gang_alone() -> None:
    class Broken:
        name = "Broken"
        local = True
        normalize = Normalize.NO

        def applies(self, cluster: Cluster, pod: PodClass) -> bool:
            return "broken" in pod.labels

        def judge(self, cluster: Cluster, pod: PodClass, rows: Rows) -> Verdict:
            raise KeyError("what")

    found = cluster(node("n1"))
    decide = engine(found, Fit(), Broken())
    gangs = Gangs(found.claims)
    said = {"min-available": "2"}
    bad, good = make(labels={"broken": ""}), make()
    join(gangs, *(pod(f"p{i}", "bad", bad, said=said) for i in range(2)))
    join(gangs, *(pod(f"q{i}", "good", good, said=said) for i in range(2)))
    outcome = place_group(decide, gangs, "a/bad")
    assert isinstance(outcome, GroupFailed)
    assert outcome.refused_by == {"Broken"}
    assert "plugin Broken failed" in outcome.words
    assert len(nodes_of(place_group(decide, gangs, "a/good"))) == 2
    assert place_group(decide, gangs, "a/good") == GroupPlaced("a/good", ())


def test_a_gang_is_not_moved_by_others_that_name_it() -> None:
    found, decide, gangs = world(node("n1", cpu=8000))
    cls = make()
    mine = {"min-available": "2"}
    join(gangs, *(pod(f"p{i}", "mine", cls, said=mine) for i in range(2)))
    theirs = {"min-available": "1", "groups": '["a/mine"]'}
    join(gangs, pod("q", "theirs", cls, said=theirs))
    assert [each.key for each in gangs.pending("a/mine,a/theirs")] == ["a/q"]
    # It waits for the other one, as it asks to.
    assert isinstance(place_group(decide, gangs, "a/mine,a/theirs"), GroupFailed)
    assert not found.claims
    outcome = place_group(decide, gangs, "a/mine")
    assert len(nodes_of(outcome)) == 2
    assert isinstance(outcome, GroupPlaced)
    for each in outcome.placements:
        gangs.bound(each.pod)
    assert list(nodes_of(place_group(decide, gangs, "a/mine,a/theirs"))) == ["a/q"]
