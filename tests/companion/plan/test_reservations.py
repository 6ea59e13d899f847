"""Reservations among the plugins, from objects to decisions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from koord_scheduler.kube.scheduling.loading import World
from koord_scheduler.place.reservation.reservation import RESERVATIONS
from koord_scheduler.plan.course import Decision, decide
from koord_scheduler.plan.profile import built_in
from koordlet.protocol.cpuset import parse_cpulist

Tree = dict[str, Any]
KEY = "scheduling.koordinator.sh/"
HOST = "kubernetes.io/hostname"
CORE, RATIO = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
MEMORY = "koordinator.sh/gpu-memory"
LSR = {"koordinator.sh/qosClass": "LSR"}


def node(name: str, cpu: str = "16", **amounts: str) -> Tree:
    status = {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "20", **amounts}}
    return {"kind": "Node", "metadata": {"name": name, "labels": {HOST: name}}, "status": status}


def spec_of(amounts: Mapping[str, str], **spec: Any) -> Tree:
    resources = {"requests": dict(amounts), "limits": dict(amounts)}
    container = {"name": "c", "resources": resources, "ports": spec.pop("ports", [])}
    return {"schedulerName": "koord-scheduler", "containers": [container], **spec}


def pod(name: str, labels: Mapping[str, str] | None = None, **more: Any) -> Tree:
    meta = {"name": name, "uid": name, "labels": labels or {}, **more.pop("metadata", {})}
    phase = "Running" if more.get("nodeName") else "Pending"
    amounts = more.pop("amounts", {"cpu": "1"})
    spec = spec_of(amounts, **more)
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": phase}}


def reservation(name: str, labels: Mapping[str, str] | None = None, **more: Any) -> Tree:
    status = {"phase": "Available", "nodeName": more.pop("node", "")} if "node" in more else {}
    meta = {"name": name, "uid": f"{name}-uid", **more.pop("metadata", {})}
    pod_spec = spec_of(more.pop("amounts", {"cpu": "2"}), **more.pop("pod_spec", {}))
    inner = {"labels": labels or {}, "namespace": more.pop("namespace", "default")}
    owners = more.pop("owners", [{"labelSelector": {"matchLabels": {"owner": "yes"}}}])
    template = {"metadata": inner, "spec": pod_spec}
    spec = {"template": template, "owners": owners, **more}
    return {"kind": "Reservation", "metadata": meta, "spec": spec, "status": status}


def course(*documents: Tree) -> Mapping[str, Decision]:
    world = World((built_in(),))
    world.take_all(documents, "test")
    return decide(world, 1_700_000_000.0).decisions


def nodes_of(*documents: Tree) -> dict[str, str]:
    return {key.removeprefix("default/"): each.node for key, each in course(*documents).items()}


def apart(app: str, namespaces: list[str] | None = None) -> Tree:
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": app}}}
    if namespaces:
        term["namespaces"] = namespaces
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


OWNER = {"owner": "yes"}


def test_neighbours_see_the_labels_of_a_reservation_and_its_owners_do_not() -> None:
    kept = reservation("r", {"app": "db"}, node="a", allocateOnce=False)
    far = {"affinity": apart("db")}
    found = nodes_of(node("a"), node("b"), kept, pod("other", **far), pod("own", OWNER, **far))
    assert found == {"other": "b", "own": "a"}
    elsewhere = reservation("r", {"app": "db"}, node="a", namespace="team")
    assert nodes_of(node("a"), elsewhere, pod("other", **far)) == {"other": "a"}
    far = {"affinity": apart("db", ["team"])}
    assert nodes_of(node("a"), elsewhere, pod("other", **far)) == {"other": ""}


def test_neighbours_see_terms_and_ports_of_a_reservation() -> None:
    port = [{"hostPort": 80, "containerPort": 80}]
    more = {"affinity": apart("web"), "ports": port}
    kept = reservation("r", node="a", pod_spec=more)
    web = {"app": "web"}
    pods = (
        pod("web", web),
        pod("ports", ports=port),
        pod("plain"),
        pod("own", {**web, **OWNER}, ports=port, priority=1),
    )
    found = nodes_of(node("a"), kept, *pods)
    assert found == {"web": "", "ports": "", "plain": "a", "own": "a"}


def test_a_reservation_spreads_as_pods_do() -> None:
    spread = {
        "maxSkew": 1,
        "topologyKey": HOST,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    kept = reservation("r", {"app": "web"}, node="a")
    web = pod("web", {"app": "web"}, topologySpreadConstraints=[spread])
    assert nodes_of(node("a", cpu="64"), node("b", cpu="4"), kept, web) == {"web": "b"}


def test_no_pod_makes_itself_a_reserve_pod() -> None:
    lender = pod("p", OWNER, nodeName="a", amounts={"cpu": "15"})
    wants = reservation("r", amounts={"cpu": "15"}, allocatePolicy="Restricted", preAllocation=True)
    wants["spec"]["template"]["spec"]["nodeSelector"] = {"no": "node"}
    marks = {f"{KEY}reserve-pod": "Restricted", f"{KEY}reservation-name": "r"}
    thief = pod("thief", amounts={"cpu": "4"}, metadata={"annotations": marks})
    found = nodes_of(node("a"), lender, wants, thief)
    assert found["thief"] == ""


# Pre-allocation.


def pre_allocating(amounts: Mapping[str, str], *, multiple: bool = True, **more: Any) -> Tree:
    return reservation(
        "r",
        more.pop("labels", {}),
        amounts=amounts,
        allocatePolicy="Restricted",
        preAllocation=True,
        preAllocationPolicy={"enableMultiple": multiple},
        pod_spec={"priority": 9500},
        **more,
    )


def test_several_pods_lend_their_room_and_fewer_are_better() -> None:
    lenders = [pod(f"a{i}", OWNER, nodeName="a", amounts={"cpu": "2"}) for i in range(4)]
    lenders.append(pod("b0", OWNER, nodeName="b", amounts={"cpu": "6"}))
    filler = [pod("fa", nodeName="a", amounts={"cpu": "2"}), pod("fb", nodeName="b")]
    world = World((built_in(),))
    nodes = [node("a", cpu="10"), node("b", cpu="10")]
    world.take_all((*nodes, *lenders, *filler, pre_allocating({"cpu": "8"})), "test")
    decide(world, 1_700_000_000.0)
    key = "(reservation)/r"
    assert world.cluster.claims[key].node == "b"
    engine, waiting = world.parts.first, world.cluster.claims[key].pod
    only_a = World((built_in(),))
    only_a.take_all((nodes[0], *lenders[:4], filler[0], pre_allocating({"cpu": "8"})), "test")
    engine, waiting = only_a.parts.first, only_a.waiting[key]
    scores = engine.evaluator.scores(waiting.cls, only_a.cluster.rows())
    assert scores["Reservation"].tolist() == [5000 * (100 // 5)]
    decide(only_a, 1_700_000_000.0)
    lent = only_a.cluster.claims[key].grants["Reservation"].pre_allocated
    assert sorted(lent) == [f"default/a{i}" for i in range(4)]


def machine(name: str, cpu: str = "16", **more: str) -> tuple[Tree, ...]:
    """16 CPUs on two NUMA nodes, whatever the node says, and eight GPUs."""
    gpu = {CORE: "100", RATIO: "100", MEMORY: "16Gi"}
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "health": True,
            "resources": gpu,
            "topology": {"nodeID": minor // 4, "pcieID": str(minor // 2), "socketID": 0},
        }
        for minor in range(8)
    ]
    detail = [{"id": n, "core": n // 2, "socket": 0, "node": n // 8} for n in range(16)]
    topology = json.dumps({"detail": detail})
    return (
        node(
            name, cpu, **{CORE: "800", RATIO: "800", "koordinator.sh/gpu-memory": "128Gi"}, **more
        ),
        {"kind": "Device", "metadata": {"name": name}, "spec": {"devices": devices}},
        {
            "kind": "NodeResourceTopology",
            "metadata": {
                "name": name,
                "annotations": {"node.koordinator.sh/cpu-topology": topology},
            },
            "topologyPolicies": [],
            "zones": [],
        },
    )


def holding(
    name: str, minors: list[int], cpus: str, labels: Mapping[str, str] = OWNER, share: int = 100
) -> Tree:
    """A running pod with these GPUs, or a share of each, and these CPUs."""
    amounts = {CORE: str(share), RATIO: str(share)}
    given = {"gpu": [{"minor": minor, "resources": amounts} for minor in minors]}
    annotations = {
        f"{KEY}device-allocated": json.dumps(given),
        f"{KEY}resource-status": json.dumps({"cpuset": cpus}),
    }
    many = len(parse_cpulist(cpus))
    whole = str(share * len(minors))
    total = {"cpu": str(many), CORE: whole, RATIO: whole}
    meta = {"annotations": annotations}
    return pod(name, {**labels, **LSR}, nodeName="a", amounts=total, metadata=meta, priority=9500)


@pytest.mark.parametrize("multiple", [False, True])
def test_a_reservation_contains_the_cpus_and_gpus_of_the_pods_that_lend_to_it(
    multiple: bool,
) -> None:
    lender = holding("lender", [4, 5], "5-8")
    other = holding("other", [0], "0-3", {})
    wants = pre_allocating({"cpu": "8", CORE: "400", RATIO: "400"}, multiple=multiple, labels=LSR)
    found = course(*machine("a"), lender, other, wants)["(reservation)/r"]
    assert found.node == "a", found.why
    given = json.loads(found.annotations[f"{KEY}device-allocated"])["gpu"]
    assert {4, 5} < {each["minor"] for each in given} and len(given) == 4
    cpus = parse_cpulist(json.loads(found.annotations[f"{KEY}resource-status"])["cpuset"])
    assert {5, 6, 7, 8} < cpus and len(cpus) == 8 and not cpus & {0, 1, 2, 3}


def test_who_cannot_lend_as_a_whole_is_passed_over() -> None:
    # Partitions of two are 0-1, 2-3, and so on.
    lenders = (holding("first", [1, 2], "0-1"), holding("second", [4, 5], "2-3"))
    wants = pre_allocating({"cpu": "4", CORE: "200", RATIO: "200"}, multiple=False, labels=LSR)
    machines = machine("a")
    labels = {"gpu-model": "H800", "gpu-partition-policy": "Honor"}
    for key, text in labels.items():
        machines[0]["metadata"]["labels"][f"node.koordinator.sh/{key}"] = text
    found = course(*machines, *lenders, wants)["(reservation)/r"]
    assert found.node == "a", found.why
    given = json.loads(found.annotations[f"{KEY}device-allocated"])["gpu"]
    assert [each["minor"] for each in given] == [4, 5]


def test_a_share_of_gpus_serves_pods_that_the_webhook_rewrote() -> None:
    kept = reservation("r", amounts={"cpu": "1", "koordinator.sh/gpu": "100"}, node="a")
    device = {
        "gpu": [{"minor": 3, "resources": {CORE: "100", RATIO: "100"}}],
    }
    kept["metadata"]["annotations"] = {f"{KEY}device-allocated": json.dumps(device)}
    rest = holding("rest", [0, 1, 2, 4, 5, 6, 7], "0-3", {})
    for amounts in ({CORE: "100", RATIO: "100"}, {"koordinator.sh/gpu": "100"}):
        asked = {"cpu": "1", **amounts}
        pods = (pod("own", OWNER, amounts=asked), pod("other", amounts=asked, priority=1))
        machines = list(machine("a"))
        machines[0]["status"]["allocatable"]["koordinator.sh/gpu"] = "800"
        found = course(*machines, rest, kept, *pods)
        assert (found["default/own"].node, found["default/other"].node) == ("a", "")
        given = json.loads(found["default/own"].annotations[f"{KEY}device-allocated"])
        assert [each["minor"] for each in given["gpu"]] == [3]


# What a pod hears.


@pytest.mark.parametrize(
    ("affinity", "words"),
    [
        (None, "2 Reservation(s) for node reason that Insufficient cpu, "),
        ({}, "1 Reservation(s) is unschedulable, 1 Reservation(s) had untolerated taint {k: v}, "),
        ({"name": "r2"}, "1 Reservation(s) exactly matches the requested reservation name, "),
        ({"reservationSelector": {"x": "y"}}, "1 Reservation(s) didn't match affinity rules, 1 "),
    ],
)
def test_the_condition_says_why_reservations_do_not_serve(affinity: Any, words: str) -> None:
    tainted = [{"key": "k", "value": "v", "effect": "NoSchedule"}]
    kept = (
        reservation("r1", node="a", taints=tainted, allocatePolicy="Restricted"),
        reservation(
            "r2", node="a", unschedulable=bool(affinity == {}), allocatePolicy="Restricted"
        ),
        reservation("used", node="a", allocatePolicy="Restricted"),
        reservation("other", node="a", owners=[], allocatePolicy="Restricted"),
    )
    meta = {"annotations": {f"{KEY}reservation-affinity": json.dumps(affinity)}}
    asks = pod("p", OWNER, amounts={"cpu": "40"}, metadata=meta if affinity is not None else {})
    allocated = json.dumps({"name": "used", "uid": "used-uid"})
    user = pod(
        "u", nodeName="a", metadata={"annotations": {f"{KEY}reservation-allocated": allocated}}
    )
    why = course(node("a"), *kept, user, asks)["default/p"].why
    assert words in why and why.endswith("2 Reservation(s) matched owner total."), why


# Pods that are reservations themselves.


def box(**more: Any) -> Tree:
    annotations = {
        f"{KEY}reservation-owners": json.dumps([{"labelSelector": {"matchLabels": OWNER}}]),
        **more.pop("annotations", {}),
    }
    labels = {f"{KEY}operating-mode": "Reservation"}
    made = pod("box", labels, metadata={"annotations": annotations}, amounts={"cpu": "10"}, **more)
    made["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    return made


def test_a_pod_may_be_a_reservation() -> None:
    eight = {"amounts": {"cpu": "8"}}
    users = (
        pod("own", OWNER, **eight),
        pod("other", priority=1, preemptionPolicy="Never", **eight),
        pod("second", OWNER, **eight),
    )
    found = course(node("a"), box(nodeName="a"), *users)
    assert {key: each.node for key, each in found.items()} == {
        "default/own": "a",
        "default/other": "",
        "default/second": "",
    }
    allocated = found["default/own"].annotations[f"{KEY}reservation-allocated"]
    assert json.loads(allocated) == {"name": "box", "uid": "box"}
    taken = {f"{KEY}reservation-current-owner": '{"name": "x"}'}
    found = course(node("a"), box(nodeName="a", annotations=taken), users[0])
    assert found["default/own"].node == ""


def test_such_a_pod_serves_its_own_namespace_alone() -> None:
    made = box(nodeName="a")
    everybody = {f"{KEY}reservation-owners": "[{}]"}
    made["metadata"] |= {"namespace": "team", "annotations": everybody}
    eight: Tree = {"amounts": {"cpu": "8"}, "preemptionPolicy": "Never"}
    ignoring = {f"{KEY}reservation-ignored": "true"}
    pods = (pod("other", **eight), pod("ignoring", ignoring, **eight), pod("own", **eight))
    pods[2]["metadata"]["namespace"] = "team"
    found = course(node("a"), made, *pods)
    assert {key: bool(each.node) for key, each in found.items()} == {
        "default/other": False,
        "default/ignoring": False,
        "team/own": True,
    }


def test_such_a_pod_goes_where_policies_agree() -> None:
    kept = [reservation("r", node="a"), reservation("s", node="b", allocatePolicy="Aligned")]
    assert nodes_of(node("a", cpu="64"), node("b"), *kept, box()) == {"box": "b"}


def test_owners_see_a_reservation_while_it_is_not_theirs() -> None:
    """Sums of neighbours that were kept before it served them, or while it did, do not stay."""
    web = {"app": "web", **OWNER}
    world = World((built_in(),))
    held = reservation("r", web, node="a", pod_spec={"affinity": apart("web")})
    world.take_all((node("a"), pod("own", web, affinity=apart("web"))), "test")
    cls = world.waiting["default/own"].cls
    for closed in (True, False, True, False):
        held["spec"]["unschedulable"] = closed
        world.take_all((held,), "test")
        why = world.parts.first.evaluator.judge(cls).why.tolist()
        assert (why == [0]) is not closed


@pytest.mark.parametrize(
    ("node_of", "amounts"),
    [
        ((node("a", cpu="8"),), {"cpu": "4"}),
        (machine("a"), {"cpu": "1", CORE: "100", RATIO: "100"}),
    ],
    ids=["cpu", "gpu"],
)
def test_members_of_a_gang_use_a_reservation_each(
    node_of: tuple[Tree, ...], amounts: Mapping[str, str]
) -> None:
    key = "gang.scheduling.koordinator.sh/"
    said = {"annotations": {f"{key}name": "g", f"{key}min-available": "2"}}
    gang = [pod(f"p{i}", OWNER, metadata=said, amounts=amounts) for i in range(2)]
    kept = [
        reservation(
            f"r{i}",
            node="a",
            amounts=amounts,
            metadata={
                "annotations": {
                    f"{KEY}device-allocated": json.dumps(
                        {"gpu": [{"minor": i, "resources": {CORE: "100", RATIO: "100"}}]}
                    )
                }
            },
        )
        for i in range(8 if CORE in amounts else 2)
    ]
    found = course(*node_of, *kept, *gang)
    used = {
        json.loads(d.annotations[f"{KEY}reservation-allocated"])["name"] for d in found.values()
    }
    assert len(found) == len(used) == 2


def test_room_that_was_lent_is_taken_once() -> None:
    wants = pre_allocating({"cpu": "8"}, multiple=False)
    lender = pod("lender", OWNER, nodeName="a", amounts={"cpu": "4"})
    found = nodes_of(node("a", cpu="10"), lender, wants, pod("other", amounts={"cpu": "2"}))
    assert found == {"(reservation)/r": "a", "other": "a"}


def test_a_reservation_that_moved_keeps_nothing_where_it_was() -> None:
    world = World((built_in(),))
    world.take_all((node("a"), node("b"), reservation("r", node="a")), "test")
    world.take_all((reservation("r", node="b"),), "test")
    assert list(world.cluster.all(RESERVATIONS)) == ["b"]
    world.take_all((reservation("r"),), "test")
    assert not world.cluster.all(RESERVATIONS)
