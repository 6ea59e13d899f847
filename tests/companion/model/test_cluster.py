"""The cluster as arrays: counting, reservations, trials, late nodes and resources."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import CPU, MEMORY, MOST_AMOUNT, PODS
from koord_scheduler.model.cluster.nodes import Node, Slot
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass

NUMBER: Slot[int] = Slot("number")
CLASSES = [
    PodClass(number=1, namespace="a", requests={"cpu": 1000, "memory": 10}),
    PodClass(number=2, namespace="a", requests={"cpu": 500, "example.com/gpu": 2}),
    PodClass(number=3, namespace="a", requests={"cpu": MOST_AMOUNT * 4}),
]


def node(name: str, **allocatable: int) -> Node:
    return Node(name=name, allocatable=allocatable or {"cpu": 8000, "memory": 100, "pods": 10})


def pod(name: str, cls: int = 0, holds: str = "", uid: str = "") -> Pod:
    return Pod(key=f"a/{name}", uid=uid or name, cls=CLASSES[cls], holds=holds)


def test_a_claim_counts_on_its_node_and_leaves_no_trace() -> None:
    cluster = Cluster()
    cluster.set_node(node("n1"))
    cluster.add(Claim(pod("p"), "n1"))
    assert cluster.requested[0, [CPU, MEMORY, PODS]].tolist() == [1000, 10, 1]
    assert cluster.classes == {1: {0: 1}}
    assert cluster.remove("a/p") is not None
    assert not cluster.requested.any()
    assert (cluster.classes, cluster.class_of) == ({}, {})
    assert cluster.remove("a/p") is None


def test_pods_count_when_their_node_and_its_resources_come_later() -> None:
    cluster = Cluster()
    cluster.add(Claim(pod("p", 1), "n1"))
    cluster.set_node(node("n2"))
    cluster.set_node(node("n1"))
    row = cluster.row["n1"]
    assert cluster.requested[row, CPU] == 500
    cluster.set_node(node("n1", **{"cpu": 8000, "example.com/gpu": 8}))
    assert cluster.requested[row, cluster.columns.index["example.com/gpu"]] == 2
    assert cluster.classes == {2: {row: 1}}


def test_a_huge_request_is_clipped_and_taken_away_again() -> None:
    cluster = Cluster()
    cluster.set_node(node("n1"))
    for i in range(100):
        cluster.add(Claim(pod(str(i), 2), "n1"))
    assert cluster.requested[0, CPU] == 100 * MOST_AMOUNT
    for i in range(100):
        cluster.remove(f"a/{i}")
    assert not cluster.requested.any()


def test_users_of_a_reservation_take_what_its_reserve_pod_holds() -> None:
    cluster = Cluster()
    cluster.set_node(node("n1"))
    cluster.add(Claim(pod("reserve", holds="r", uid="r"), "n1"))
    assert cluster.requested[0, [CPU, PODS]].tolist() == [1000, 1]
    cluster.add(Claim(pod("user", 1), "n1", reservation="r"))
    assert cluster.requested[0, [CPU, MEMORY, PODS]].tolist() == [1000, 10, 1]
    assert cluster.left_of("r", "n1") == {"cpu": 500, "memory": 10, "pods": 0}
    cluster.add(Claim(pod("elsewhere", 1), "n2", reservation="r"))
    assert cluster.users_of("r", "n1") == {"a/user"}
    cluster.remove("a/reserve")
    assert cluster.requested[0, [CPU, PODS]].tolist() == [500, 1]
    cluster.remove("a/user")
    assert not cluster.requested.any()
    assert cluster.users_of("r", "n1") == frozenset()


def test_a_trial_leaves_nothing() -> None:
    cluster = Cluster()
    cluster.set_node(node("n1"))
    cluster.add(Claim(pod("old"), "n1"))
    cluster.put(NUMBER, "n1", 1)
    before = cluster.requested.copy()
    with cluster.trial():
        cluster.remove("a/old")
        with cluster.trial():
            cluster.add(Claim(pod("new", 1), "n1"))
            cluster.put(NUMBER, "n1", 2)
        assert cluster.get(NUMBER, 0) == 1
        cluster.add(Claim(pod("newer", 1), "n1"))
    assert (cluster.requested == before).all()
    assert list(cluster.claims) == ["a/old"]


def test_changed_rows_are_told_once_however_many_there_were() -> None:
    cluster = Cluster()
    assert not len(cluster.since(-1))
    for i in range(200):
        cluster.set_node(node(f"n{i}"))
    version = cluster.version
    assert cluster.since(-1).tolist() == list(range(200))
    assert not len(cluster.since(version))
    cluster.touch(5)
    cluster.add(Claim(pod("p"), "n2"))
    cluster.remove("a/p")
    assert cluster.since(version).tolist() == [2, 5]
    for row in [*range(190, 10, -1), *[0] * 70_000]:
        cluster.touch(row)
    assert cluster.since(version).tolist() == [0, 2, 5, *range(11, 191)]
    assert cluster.since(cluster.version - 1).tolist() == [0]
    cluster.remove_node("n7")
    assert cluster.since(version + 1_000).tolist() == [0, 7]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "hold", "use", "remove", "node", "gone", "trial"]),
        st.integers(0, 5),
        st.integers(0, 2),
        st.sampled_from(["n1", "n2", "n3"]),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_what_is_requested_is_the_sum_of_claims(steps: list[tuple[str, int, int, str]]) -> None:
    cluster = Cluster()
    for what, number, cls, where in steps:
        _step(cluster, what, number, cls, where)
        for name, row in cluster.row.items():
            left: np.ndarray = np.zeros(len(cluster.columns), np.int64)
            for claim in cluster.claims_on(row).values():
                if claim.pod.holds:
                    left += cluster.columns.vector(cluster.left_of(claim.holds, name))
                else:
                    left += cluster.vector(claim.pod.cls)
            assert (cluster.requested[row] == left).all(), name
            there = Counter(claim.pod.cls.number for claim in cluster.claims_on(row).values())
            assert there == {
                n: counts[row] for n, counts in cluster.classes.items() if row in counts
            }
        dead = ~cluster.alive
        assert not cluster.requested[dead].any()


def _step(cluster: Cluster, what: str, number: int, cls: int, where: str) -> None:
    match what:
        case "add":
            cluster.add(Claim(pod(str(number), cls), where))
        case "hold":
            cluster.add(Claim(pod(f"hold{number}", cls, holds="r", uid=f"r{number}"), where))
        case "use":
            cluster.add(Claim(pod(str(number), cls), where, reservation=f"r{cls}"))
        case "remove":
            cluster.remove(f"a/{number}")
            cluster.remove(f"a/hold{cls}")
        case "node":
            extra = {"example.com/gpu": 4} if number == 3 else {}
            cluster.set_node(node(where, cpu=1000, pods=5, **extra))
        case "gone":
            cluster.remove_node(where)
        case "trial":
            before = cluster.requested.copy()
            claims = dict(cluster.claims)
            with cluster.trial():
                for each in range(3):
                    _step(cluster, "add", each, cls, where)
                    _step(cluster, "use", each + 1, cls, where)
                    _step(cluster, "remove", number, cls, where)
            assert (cluster.requested == before).all()
            assert cluster.claims == claims
