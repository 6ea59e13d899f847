"""Filtering, nomination and scores: tables F and S of docs/reference/central.md 7."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import CPU
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, REASONS, Refusal
from koord_scheduler.place import fit
from koord_scheduler.place.grants import Loan
from koord_scheduler.place.reservation.plugin import ReservationPlugin, make
from koord_scheduler.place.reservation.preallocation import by_priority, hand_over
from koord_scheduler.place.reservation.reservation import (
    AFFINITY,
    IGNORED,
    NO_POLICY,
    RESERVATION_NAME,
    RESERVATIONS,
    RESERVE_POD,
    WAITING,
    PreAllocation,
    Reservation,
    ReservationGrant,
)
from koordlet.protocol.objects.reservation import ReservationOwner
from koordlet.protocol.selector import LabelSelector
from tests.companion.place.build import GI, cls, cluster, node, pod, put, reasons, scores

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
EVERYBODY = (ReservationOwner(),)
NOBODY_REFUSES = np.zeros(8, np.int16)


def reservation(name: str, keeps: dict[str, int], **more: Any) -> Reservation:
    policy = more.get("policy", "")
    holder = Pod(
        key=f"(reservation)/{name}",
        uid=name,
        holds=name,
        node=more.get("node", "n1"),
        cls=cls(
            requests={k: v for k, v in keeps.items() if k != "pods"},
            priority=9999,
            annotations={RESERVE_POD: policy or NO_POLICY, RESERVATION_NAME: name},
        ),
    )
    values: dict[str, Any] = {
        "name": name,
        "uid": name,
        "pod": holder,
        "owners": EVERYBODY,
        "node": "n1",
        "phase": "Available",
        "allocatable": keeps,
        "restricted": frozenset(keeps),
        **more,
    }
    return Reservation(**values)


def reserve(where: Cluster, *found: Reservation) -> None:
    by_node: dict[str, dict[str, Reservation]] = {}
    for each in found:
        where.add(Claim(each.pod, each.node))
        by_node.setdefault(each.node, {})[each.name] = each
    for name, there in by_node.items():
        where.put(RESERVATIONS, name, there)


def asking(
    cpu: int = 0, memory: int = 0, affinity: dict[str, Any] | None = None, **more: int
) -> PodClass:
    amounts = {"cpu": cpu, "memory": memory, **more}
    annotations = {AFFINITY: json.dumps(affinity)} if affinity is not None else {}
    return cls(requests={k: v for k, v in amounts.items() if v}, annotations=annotations)


def occupied(cpu: int, memory: int = 24 * GI, **extra: int) -> Cluster:
    """A node of 32 CPUs and 32 GiB where this is requested, reservations included."""
    where = cluster(node(cpu=32_000, memory=32 * GI, extra=extra))
    put(where, "n1", cls(requests={"cpu": cpu, "memory": memory}))
    return where


def verdict(plugin: ReservationPlugin, where: Cluster, of: PodClass) -> str:
    """Of fit with its credit and of reservations together."""
    resources = fit.make({})
    resources.connect({"Reservation": plugin})  # type: ignore[dict-item]
    return reasons(plugin, where, of)[0] or reasons(resources, where, of)[0]


def test_f1_and_f2_aligned_needs_room_on_the_node() -> None:
    where = occupied(24_000, 16 * GI)
    reserve(where, reservation("r", {"cpu": 6000, "memory": 8 * GI}, policy="Aligned"))
    of = asking(8000, 8 * GI, affinity={})
    assert verdict(make({}), where, of) == ""
    where = occupied(26_000, 16 * GI)
    reserve(where, reservation("r", {"cpu": 6000, "memory": 8 * GI}, policy="Aligned"))
    assert verdict(make({}), where, of) == "Insufficient cpu by node"


def test_f3_and_f4_restricted_gives_what_it_has() -> None:
    where = occupied(24_000, 16 * GI)
    kept = reservation(
        "r", {"cpu": 6000, "memory": 8 * GI}, policy="Restricted", restricted=frozenset({"cpu"})
    )
    reserve(where, kept)
    assert verdict(make({}), where, asking(6000, 8 * GI, affinity={})) == ""
    text = "Reservation(s) Insufficient cpu"
    assert verdict(make({}), where, asking(8000, 8 * GI, affinity={})) == text
    by_name = asking(8000, 8 * GI, affinity={"name": "r"})
    assert verdict(make({}), where, by_name) == f"{text}, requested: 8000, used: 0, capacity: 6000"


def test_f5_pods_count_where_the_reservation_counts_them() -> None:
    where = occupied(20_000, 16 * GI)
    kept = reservation(
        "r",
        {"cpu": 7000, "pods": 2},
        policy="Restricted",
        allocate_once=False,
        reserved={"cpu": 1000},
    )
    kept = msgspec.structs.replace(
        kept,
        pod=msgspec.structs.replace(
            kept.pod,
            cls=cls(requests={"cpu": 7000, "pods": 2}, annotations=kept.pod.cls.annotations),
        ),
    )
    reserve(where, kept)
    for _ in range(2):
        put(where, "n1", cls(requests={"cpu": 1000}), reservation="r")
    assert verdict(make({}), where, asking(3000, affinity={})) == "Reservation(s) Too many pods"


def test_f6_and_f7_names_that_it_does_not_keep() -> None:
    where = cluster(
        node(cpu=32_000, memory=32 * GI, extra={BATCH_CPU: 7500, BATCH_MEMORY: 10 * GI})
    )
    put(where, "n1", cls(requests={BATCH_CPU: 1500, BATCH_MEMORY: 2 * GI}))
    reserve(where, reservation("r", {"cpu": 6000}, policy="Restricted"))
    six = asking(affinity={}, **{BATCH_CPU: 6000, BATCH_MEMORY: 8 * GI})
    assert verdict(make({}), where, six) == ""
    text = f"Insufficient {BATCH_CPU}"
    for affinity in ({}, None):
        eight = asking(affinity=affinity, **{BATCH_CPU: 8000, BATCH_MEMORY: 8 * GI})
        assert verdict(make({}), where, eight).startswith(text)


def test_a_pod_that_needs_a_reservation_goes_nowhere_else() -> None:
    where = cluster(node("n1"), node("n2"))
    of = asking(1000, affinity={})
    text = "node(s) no reservations match reservation affinity"
    assert reasons(make({}), where, of) == [text, text]
    reserve(where, reservation("r", {"cpu": 2000}, node="n2"))
    assert reasons(make({}), where, of) == [text, ""]
    assert not make({}).applies(cluster(node()), asking(1000))


def test_what_is_kept_is_free_for_its_owners_alone() -> None:
    where = cluster(node(cpu=4000))
    team = (ReservationOwner(label_selector=LabelSelector(match_labels={"team": "a"})),)
    reserve(where, reservation("r", {"cpu": 3000}, owners=team))
    resources, plugin = fit.make({}), make({})
    resources.connect({"Reservation": plugin})  # type: ignore[dict-item]
    theirs = cls(labels={"team": "a"}, requests={"cpu": 4000})
    assert reasons(resources, where, theirs) == [""]
    assert reasons(resources, where, cls(requests={"cpu": 2000})) == ["Insufficient cpu"]


def uses(name: str) -> ReservationGrant:
    key = f"(reservation)/{name}"
    return ReservationGrant(name, name, loan=Loan(frozenset({key}), name))


def grant(plugin: ReservationPlugin, where: Cluster, of: PodClass) -> Any:
    return plugin.allocate(where, pod("p", of), 0, {})


FOUR, TWO = {"cpu": 4000, "memory": 8 * GI}, {"cpu": 2000, "memory": 4 * GI}


def with_reservations(*found: Reservation) -> Cluster:
    where = cluster(node(cpu=32_000, memory=64 * GI))
    reserve(where, *found)
    return where


def test_s1_to_s4_scores_and_nomination() -> None:
    of, plugin = asking(2000, 4 * GI), make({})
    where = with_reservations(reservation("r", FOUR))
    assert scores(plugin, where, of) == [50]
    where = with_reservations(reservation("r", TWO, allocate_once=False))
    put(where, "n1", cls(requests={"cpu": 2000, "memory": 3 * GI}), reservation="r")
    assert scores(plugin, where, of) == [0]
    where = with_reservations(reservation("four", FOUR), reservation("two", TWO))
    assert scores(plugin, where, of) == [100]
    assert grant(plugin, where, of) == uses("two")
    where = with_reservations(
        reservation("four", FOUR), reservation("two", TWO, allocate_once=False)
    )
    put(where, "n1", cls(requests={"cpu": 2000, "memory": 4 * GI}), reservation="two")
    assert grant(plugin, where, of) == uses("four")


def test_s5_the_one_with_an_order_comes_first() -> None:
    of, plugin = asking(2000, 4 * GI), make({})
    where = with_reservations(reservation("a", TWO), reservation("b", TWO, order=100))
    assert grant(plugin, where, of) == uses("b")
    assert scores(plugin, where, of) == [1000]


def test_a_grant_is_written_and_recognised() -> None:
    plugin = make({})
    written = plugin.annotations(pod("p"), ReservationGrant("r", "u"))
    assert plugin.recognise(pod("p", annotations=written)) == ReservationGrant("r", "u")
    assert plugin.recognise(pod("p")) is None
    broken = {"scheduling.koordinator.sh/reservation-allocated": "{"}
    assert plugin.recognise(pod("p", annotations=broken)) is None


def test_a_claim_of_its_user_takes_it_from_the_reservation() -> None:
    of, plugin = asking(2000, 4 * GI), make({})
    where = with_reservations(reservation("r", TWO))
    before = int(where.requested[0, CPU])
    found = grant(plugin, where, of)
    put(where, "n1", of, reservation=found.reservation)
    assert where.requested[0, CPU] == before
    assert grant(plugin, where, asking(2000, 4 * GI)) is None
    needy = asking(2000, 4 * GI, affinity={})
    refused = grant(plugin, where, needy)
    assert isinstance(refused, Refusal)
    assert REASONS[refused.why].unresolvable


def test_policies_that_do_not_share_a_node() -> None:
    where = with_reservations(reservation("r", TWO, policy="Restricted"))
    conflict = "node(s) reservation allocate policy conflict"
    for policy, expected in ((NO_POLICY, conflict), ("Aligned", ""), ("Restricted", "")):
        assert reasons(make({}), where, cls(annotations={RESERVE_POD: policy})) == [expected]


def test_a_template_may_name_its_node() -> None:
    where = cluster(node("n1"), node("n2"))
    named = {RESERVE_POD: NO_POLICY, "scheduling.koordinator.sh/reservation-node": "n2"}
    assert [not text for text in reasons(make({}), where, cls(annotations=named))] == [False, True]


@pytest.mark.parametrize(("multiple", "keys"), [(False, ["ns/big"]), (True, ["ns/big"])])
def test_room_of_running_pods_is_taken_over(multiple: bool, keys: list[str]) -> None:
    where = cluster(node(cpu=8000, memory=64 * GI))
    labels = {"team": "a"}
    put(where, "n1", cls(requests={"cpu": 6000}, labels=labels), "big")
    put(where, "n1", cls(requests={"cpu": 1000}, labels=labels), "small")
    for key in ("ns/big", "ns/small"):
        claim = where.claims[key]
        running = msgspec.structs.replace(claim.pod, phase="Running")
        where.add(msgspec.structs.replace(claim, pod=running))
    team = (ReservationOwner(label_selector=LabelSelector(match_labels=labels)),)
    waiting = reservation(
        "r",
        {"cpu": 7000},
        policy="Restricted",
        owners=team,
        node="",
        phase="Pending",
        pre_allocation=PreAllocation(multiple=multiple),
    )
    where.put(WAITING, "r", waiting)
    plugin, resources = make({}), fit.make({})
    resources.connect({"Reservation": plugin})  # type: ignore[dict-item]
    assert reasons(resources, where, waiting.pod.cls) == [""]
    found = plugin.allocate(where, waiting.pod, 0, {})
    assert isinstance(found, ReservationGrant)
    assert list(found.pre_allocated) == keys
    where.add(Claim(waiting.pod, "n1"))
    hand_over(where, "r", found.pre_allocated)
    assert where.requested[0, CPU] == 8000
    assert where.users_of("r", "n1") == set(keys)


def test_reports_count_what_keeps_pods_from_reservations() -> None:
    where = with_reservations(
        reservation("a", TWO, unschedulable=True),
        reservation("b", TWO),
        reservation("c", TWO, owners=()),
    )
    assert make({}).report(where, asking(1000), NOBODY_REFUSES) == (
        "1 Reservation(s) is unschedulable",
        "2 Reservation(s) matched owner total",
    )


def test_matches_follow_what_changes() -> None:
    plugin, of = make({}), asking(2000, 4 * GI)
    where = with_reservations(reservation("r", TWO))
    assert plugin.applies(where, of)
    where.put(RESERVATIONS, "n1", None)
    where.remove("(reservation)/r")
    assert not plugin.applies(where, of)
    reserve(where, reservation("s", TWO))
    assert grant(plugin, where, of) == uses("s")
    assert plugin.judge(where, of, where.rows()).why[0] == FITS


def test_an_odd_priority_of_a_pod_that_may_give_its_room_counts_as_none() -> None:
    key = "pod.koordinator.sh/pre-allocatable-priority"
    said = {"odd": "--5", "high": "7", "low": "-7"}
    claims = [Claim(pod(name, annotations={key: text}), "n1") for name, text in said.items()]
    assert [claim.pod.uid for claim in by_priority(claims, key)] == ["high", "odd", "low"]


def test_the_smallest_order_counts_among_those_that_serve_the_pod() -> None:
    where = cluster(node("n1", cpu=8000), node("n2", cpu=8000))
    first = reservation("first", {"cpu": 2000}, order=1, policy="Restricted")
    second = reservation("second", {"cpu": 4000}, order=2, node="n2", policy="Restricted")
    reserve(where, first, second)
    assert scores(make({}), where, asking(3000)) == [0, 1000]
    assert scores(make({}), where, asking(1000))[0] == 1000


def test_a_pod_uses_no_reservation_that_keeps_nothing_for_it() -> None:
    where = occupied(0, 0, **{BATCH_CPU: 7500})
    reserve(where, reservation("r", {"cpu": 6000}))
    plugin, other = make({}), pod("other", asking(0, 0, **{BATCH_CPU: 1000}))
    assert plugin.judge(where, other.cls, where.rows()).score.tolist() == [0]  # type: ignore[union-attr]
    assert plugin.allocate(where, other, 0, {}) is None
    named = pod("named", asking(0, 0, {"name": "r"}, **{BATCH_CPU: 1000}))
    assert plugin.allocate(where, named, 0, {}) == uses("r")


def test_who_ignores_reservations_finds_what_all_of_them_keep() -> None:
    where = occupied(20_000, 0)
    nobody = (ReservationOwner(label_selector=LabelSelector(match_labels={"no": "body"})),)
    reserve(where, *(reservation(name, {"cpu": 6000}, owners=nobody) for name in ("a", "b")))
    ignoring = cls(requests={"cpu": 11_000}, labels={IGNORED: "true"})
    plugin = make({})
    assert verdict(plugin, where, ignoring) == ""
    kept = Loan(frozenset({"(reservation)/a", "(reservation)/b"}))
    assert plugin.allocate(where, pod("p", ignoring), 0, {}) == ReservationGrant(loan=kept)
    assert plugin.annotations(pod("p", ignoring), ReservationGrant(loan=kept)) == {}
    assert "cpu" in verdict(plugin, where, msgspec.structs.replace(ignoring, number=999, labels={}))
    more = cls(requests={"cpu": 13_000}, labels={IGNORED: "true"})
    assert "Insufficient cpu" in verdict(plugin, where, more)


def test_a_node_tells_what_it_keeps_and_for_whom() -> None:
    kept = reservation("r", {"cpu": 4000, "memory": GI}, allocate_once=False, reserved={"cpu": 500})
    where = with_reservations(kept)
    put(where, "n1", cls(requests={"cpu": 1000, "x": 1}), "user", reservation="r")
    answer = make({}).services["nodeReservations/{node}"]
    (found,) = answer(where, {"node": "n1"})["items"]
    assert found["allocatable"] == {"cpu": "4", "memory": "1Gi"}
    assert (found["allocated"], found["reserved"]) == ({"cpu": "1"}, {"cpu": "500m"})
    assert found["availableResource"] == {"cpu": "2500m", "memory": "1Gi"}
    assert found["assignedPods"] == [{"namespace": "ns", "name": "user", "uid": "user"}]
    assert answer(where, {"node": "n2"}) == {"items": []}
