"""The plan for traffic control: docs/reference/hooks.md 2.11."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Level, Subject
from koordlet.decision.traffic import MAJOR, BandwidthShare, Member, Rate, TrafficPlan
from koordlet.hooks.bandwidth import of_node
from koordlet.hooks.combine import combine
from koordlet.hooks.traffic import BE, HOOK, LS, SYSTEM, traffic
from koordlet.protocol.slo import NetworkQOS
from tests.hooks.build import network_slo, of_pod, supports
from tests.qos.build import app, node, pod, snapshot

KEY = "koordinator.sh/networkQOS"
MBIT = 1_000_000
LS_BE = network_slo(
    "tc",
    "1G",
    ls=NetworkQOS(True, egress_request=40, ingress_request="300M", egress_limit="900M"),
    be=NetworkQOS(True, egress_request=10, egress_limit=50, ingress_limit="200M"),
)
MARKED = supports(Resource.NET_CLS_CLASSID)


def machine(*pods, spec=LS_BE, features=MARKED):
    return snapshot(node(4, capabilities=features), pods=pods, spec=spec)


def plan_of(*pods, spec=LS_BE) -> TrafficPlan:
    found = traffic(machine(*pods, spec=spec))
    assert found is not None
    return found


def limited(
    uid: str, qos: str | None = "LS", kube: str = "Burstable", *, egress="", ingress="", **f
):
    text = json.dumps({"egressLimit": egress or None, "ingressLimit": ingress or None})
    return pod(uid, qos, kube, annotations={KEY: text}, **f)


def shares(plan: TrafficPlan) -> dict[int, BandwidthShare]:
    return {each.minor: each.share for each in plan.classes}


def test_classes_of_the_node() -> None:
    plan = plan_of()
    assert (plan.total_bps, plan.default_minor) == (1000 * MBIT, SYSTEM)
    assert [(each.name, each.minor, each.priority) for each in plan.classes] == [
        ("system", SYSTEM, 1),
        ("ls", LS, 2),
        ("be", BE, 3),
    ]
    assert [each.class_id for each in plan.classes] == [MAJOR << 16 | minor for minor in (2, 3, 4)]
    assert shares(plan) == {
        SYSTEM: BandwidthShare(Rate(500 * MBIT, 1000 * MBIT), Rate(700 * MBIT, 1000 * MBIT)),
        LS: BandwidthShare(Rate(400 * MBIT, 900 * MBIT), Rate(300 * MBIT, 1000 * MBIT)),
        BE: BandwidthShare(Rate(100 * MBIT, 500 * MBIT), Rate(0, 200 * MBIT)),
    }


def test_promises_above_the_link_count_in_proportion() -> None:
    """HTB would keep them all, and let more through than the link has. SYSTEM gets none."""
    spec = network_slo(
        "tc",
        "1G",
        ls=NetworkQOS(True, egress_request=90, ingress_request=60),
        be=NetworkQOS(True, egress_request=60, ingress_request=40),
    )
    found = shares(plan_of(spec=spec))
    assert {minor: found[minor].egress.min_bps // MBIT for minor in (SYSTEM, LS, BE)} == {
        SYSTEM: 0,
        LS: 600,
        BE: 400,
    }
    assert [found[minor].ingress.min_bps // MBIT for minor in (SYSTEM, LS, BE)] == [0, 600, 400]
    notes = combine((HOOK,), Subject(Level.NODE, ""), machine(spec=spec)).notes
    [told] = [note for _, note in notes if note.rule == "network-qos.promises"]
    assert "egressRequest of all classes together is 1500000000 bits/s" in told.text


@pytest.mark.parametrize("policy", ["tc", "terway-qos"])
def test_a_section_that_does_not_count_is_told(policy: str) -> None:
    asks = NetworkQOS(True, egress_request=10)
    found = of_node(machine(spec=network_slo(policy, "1G", lsr=asks, system=asks, ls=asks)))
    assert [problem.split(":")[0] for problem in found.problems] == [
        "resourceQOSStrategy.lsrClass.networkQOS",
        "resourceQOSStrategy.systemClass.networkQOS",
    ]


@pytest.mark.parametrize(
    "spec",
    [
        network_slo("terway-qos", "1G", ls=NetworkQOS(True, egress_request=40)),
        network_slo("tc", "0", ls=NetworkQOS(True, egress_request="40M")),
        network_slo("tc", "1G"),
        network_slo("tc", "1G", ls=NetworkQOS(False, egress_request=40)),
    ],
)
def test_no_plan_where_nothing_asks_for_one(spec) -> None:
    found = machine(pod("p"), spec=spec)
    assert traffic(found) is None
    assert not combine((HOOK,), Subject(Level.NODE, ""), found).settings


@pytest.mark.parametrize(
    ("qos", "kube", "minor"),
    [
        ("SYSTEM", "Burstable", SYSTEM),
        ("LSE", "Guaranteed", LS),
        ("LSR", "Guaranteed", LS),
        ("LS", "Burstable", LS),
        ("BE", "BestEffort", BE),
        (None, "BestEffort", None),
    ],
)
def test_the_class_of_a_pod(qos, kube, minor) -> None:
    found = pod("p", qos, kube, ips=("10.0.0.7", "fd00::7"), host_network=False)
    members = plan_of(found).members
    assert members == (() if minor is None else (Member(minor, found.cgroup, found.ips),))
    marks = combine((HOOK,), of_pod(found), machine(found)).settings
    assert [each.value for each in marks] == ([] if minor is None else [MAJOR << 16 | minor])


@pytest.mark.parametrize("features", [MARKED, {}])
def test_a_limit_that_cannot_be_held_is_told(features) -> None:
    """With net_cls and without."""
    notes = {}
    for name, found in {
        "negative": limited("p", egress="-5M", host_network=False),
        "host": limited("p", egress="5M", ingress="5M", host_network=True),
        "own": limited("p", egress="5M", ingress="5M", host_network=False),
    }.items():
        told = combine((HOOK,), of_pod(found), machine(found, features=features)).notes
        notes[name] = [note.rule for _, note in told]
    assert notes == {
        "negative": ["network-qos.ignored"],
        "host": ["network-qos.host-network"],
        "own": [],
    }


@pytest.mark.parametrize("host_network", [True, None])
def test_the_addresses_of_the_node_are_nobodys(host_network) -> None:
    found = pod("p", ips=("192.0.2.1",), host_network=host_network)
    assert plan_of(found).members == (Member(LS, found.cgroup),)


def test_applications_belong_to_their_class_by_cgroup() -> None:
    """Not those that are not there, without a class, or the whole machine."""
    apps = (
        app("web", "LS"),
        app("batch", "BE"),
        app("gone", "BE", present=False),
        app("plain", None),
        app("all", "BE", cgroup=""),
    )
    found = traffic(snapshot(node(4), apps=apps, spec=LS_BE))
    assert found is not None
    assert found.members == (Member(LS, apps[0].cgroup), Member(BE, apps[1].cgroup))


def test_a_limit_is_the_limit_in_both_directions() -> None:
    found = limited("p", "BE", "BestEffort", egress="80M", ingress="40M", name="a", namespace="n")
    plan = plan_of(found)
    [own] = plan.classes[3:]
    assert (own.name, own.priority, own.part_of) == ("pod n/a", 3, BE)
    assert own.share == BandwidthShare(Rate(0, 80 * MBIT), Rate(0, 40 * MBIT))
    assert [each.minor for each in plan.members] == [own.minor]
    [mark] = combine((HOOK,), of_pod(found), machine(found)).settings
    assert mark.value == own.class_id
    assert mark.resource is Resource.NET_CLS_CLASSID


def test_one_direction_alone_and_no_label() -> None:
    plan = plan_of(limited("p", None, "Burstable", egress="2G"), spec=network_slo("tc", "1G"))
    [own] = plan.classes[3:]
    assert own.share == BandwidthShare(Rate(0, 1000 * MBIT), Rate(0, 1000 * MBIT))
    assert (own.priority, own.part_of) == (2, LS)


def test_a_bad_annotation_leaves_the_pod_in_its_class() -> None:
    found = pod("p", annotations={KEY: "{"})
    assert [each.minor for each in plan_of(found).members] == [LS]
    combined = combine((HOOK,), of_pod(found), machine(found))
    assert [each.value for each in combined.settings] == [MAJOR << 16 | LS]
    assert [note.rule for _, note in combined.notes] == ["network-qos.ignored"]


def test_no_marks_where_the_host_has_no_place_for_them() -> None:
    found = limited("p", egress="80M")
    snap = machine(found, features={})
    assert not combine((HOOK,), of_pod(found), snap).settings
    notes = combine((HOOK,), Subject(Level.NODE, ""), snap).notes
    assert [note.rule for _, note in notes] == ["network-qos.classes"]
    assert (
        "4 traffic classes divide the link (1 of single pods; 1 pods and applications in all)"
        in notes[0][1].text
    )


def test_pods_that_meet_in_one_number_share_the_sum() -> None:
    uids: dict[int, str] = {}
    for number in range(2000):
        uid = f"u{number}"
        minor = plan_of(limited(uid, egress="1M")).members[0].minor
        if minor in uids:
            break
        uids[minor] = uid
    else:
        pytest.fail("no two of 2000 numbers are the same")
    pods = (limited(uids[minor], egress="80M"), limited(uid, "BE", "BestEffort", egress="20M"))
    plan = plan_of(*pods)
    [own] = plan.classes[3:]
    assert own.share.egress == Rate(0, 100 * MBIT)
    assert (own.priority, own.part_of) == (2, LS)
    notes = combine((HOOK,), Subject(Level.NODE, ""), machine(*pods)).notes
    assert "network-qos.shared-class" in {note.rule for _, note in notes}


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", None]),
            st.sampled_from(["", "1", "8M", "3G"]),
            st.sampled_from(["", "1", "8M", "3G"]),
            st.sampled_from(["", "Running", "Failed"]),
        ),
        max_size=8,
    )
)
def test_every_plan_holds_together(asked) -> None:
    pods = [
        limited(f"p{i}", qos, egress=egress, ingress=ingress, phase=phase)
        for i, (qos, egress, ingress, phase) in enumerate(asked)
    ]
    plan = plan_of(*pods)
    minors = [each.minor for each in plan.classes]
    assert len(minors) == len(set(minors))
    assert all(1 < minor < 1 << 16 for minor in minors)
    assert {member.minor for member in plan.members} <= set(minors)
    assert {each.part_of for each in plan.classes} <= {0, SYSTEM, LS, BE}
    for each in plan.classes:
        for rate in (each.share.egress, each.share.ingress):
            assert 0 <= rate.min_bps <= rate.max_bps <= plan.total_bps
    for found in pods:
        marks = combine((HOOK,), of_pod(found), machine(*pods)).settings
        members = [each for each in plan.members if each.cgroup == found.cgroup]
        if found.is_active:
            assert [each.value for each in marks] == [MAJOR << 16 | each.minor for each in members]
    assert msgspec.json.encode(plan) == msgspec.json.encode(plan_of(*pods))
