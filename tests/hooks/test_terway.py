"""Files for terway-qos: docs/reference/hooks.md 2.10."""

from __future__ import annotations

import json

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Level, Subject
from koordlet.hooks.combine import combine
from koordlet.hooks.terway import HOOK
from koordlet.protocol.slo import NetworkQOS
from tests.hooks.build import network_slo, supports
from tests.qos.build import node, pod, snapshot

KEY = "koordinator.sh/networkQOS"
HERE = supports("terway")


def asked(spec, *pods, machine=HERE):
    combined = combine(
        (HOOK,),
        Subject(Level.NODE, ""),
        snapshot(node(4, capabilities=machine), pods=pods, spec=spec),
    )
    files = {s.resource: s.value for s in combined.settings}
    return files, [note.text for _, note in combined.notes]


def limits(text: str) -> dict[str, int]:
    return {key: int(value) for key, value in (line.split(" ") for line in text.splitlines())}


def test_bandwidth_in_bytes_whether_it_is_a_quantity_or_a_percentage() -> None:
    spec = network_slo(
        "terway-qos",
        "1G",
        ls=NetworkQOS(True, ingress_request=40, ingress_limit="800M", egress_request="400M"),
        be=NetworkQOS(True, ingress_limit=50, egress_request=10, egress_limit="0.5G"),
    )
    files, notes = asked(spec)
    assert notes == []
    assert files[Resource.TERWAY_GLOBAL] == (
        "hw_tx_bps_max 125000000\n"
        "hw_rx_bps_max 125000000\n"
        "offline_l1_tx_bps_min 50000000\n"
        "offline_l1_tx_bps_max 0\n"
        "offline_l1_rx_bps_min 50000000\n"
        "offline_l1_rx_bps_max 100000000\n"
        "offline_l2_tx_bps_min 12500000\n"
        "offline_l2_tx_bps_max 62500000\n"
        "offline_l2_rx_bps_min 0\n"
        "offline_l2_rx_bps_max 62500000\n"
    )
    assert files[Resource.TERWAY_PODS] == "{}"


def test_a_class_that_is_off_contributes_nothing() -> None:
    off = NetworkQOS(False, ingress_limit=50, egress_limit=50)
    files, _ = asked(network_slo("terway-qos", "1G", ls=off))
    assert set(limits(files[Resource.TERWAY_GLOBAL]).values()) == {0, 125_000_000}


@pytest.mark.parametrize(
    ("total", "limit", "written", "told"),
    [
        ("1G", "2G", 125_000_000, "is capped at totalNetworkBandwidth"),
        ("1G", "-1", 0, "negative"),
        ("-1", "8M", 1_000_000, "negative"),
        ("0", "8M", 1_000_000, ""),
        ("0", 50, 0, "not set"),
        (8_000_000, 100, 1_000_000, ""),
    ],
)
def test_what_makes_no_sense_is_told(total, limit, written, told) -> None:
    files, notes = asked(network_slo("terway-qos", total, be=NetworkQOS(True, egress_limit=limit)))
    assert limits(files[Resource.TERWAY_GLOBAL])["offline_l2_tx_bps_max"] == written
    assert len(notes) == bool(told)
    assert all(told in note for note in notes)


def test_a_request_is_never_above_its_limit() -> None:
    files, _ = asked(
        network_slo("terway-qos", "1G", be=NetworkQOS(True, egress_request=50, egress_limit=10))
    )
    found = limits(files[Resource.TERWAY_GLOBAL])
    assert found["offline_l2_tx_bps_min"] == found["offline_l2_tx_bps_max"] == 12_500_000


@pytest.mark.parametrize("spec", [network_slo("tc", "1G"), network_slo(None, "1G")])
def test_another_policy_wants_no_files(spec) -> None:
    assert asked(spec) == ({}, [])


def test_no_files_without_terway() -> None:
    assert asked(network_slo("terway-qos", "1G"), machine={}) == ({}, [])


def test_records_of_pods() -> None:
    pods = (
        pod("b", "LS", name="web", namespace="shop", annotations={KEY: '{"egressLimit":"80M"}'}),
        pod(
            "a", "BE", "BestEffort", annotations={KEY: '{"IngressLimit":"8M","EgressLimit":"16M"}'}
        ),
        pod("gone", "LS", phase="Succeeded"),
    )
    files, notes = asked(network_slo("terway-qos", "1G"), *pods)
    assert notes == []
    assert files[Resource.TERWAY_PODS] == (
        '{"a":{"podName":"","podNamespace":"","podUID":"a","prio":2,'
        '"cgroupDir":"/sys/fs/cgroup/net_cls/kubepods/besteffort/poda",'
        '"qosConfig":{"ingressBandwidth":1000000,"egressBandwidth":2000000}},'
        '"b":{"podName":"web","podNamespace":"shop","podUID":"b","prio":1,'
        '"cgroupDir":"/sys/fs/cgroup/net_cls/kubepods/burstable/podb",'
        '"qosConfig":{"ingressBandwidth":0,"egressBandwidth":10000000}}}'
    )
    assert asked(network_slo("terway-qos", "1G"), *reversed(pods))[0] == files


@pytest.mark.parametrize(
    ("qos", "kube", "priority"),
    [
        ("SYSTEM", "Burstable", 0),
        ("LSE", "Guaranteed", 1),
        ("LSR", "Guaranteed", 1),
        ("LS", "Burstable", 1),
        ("BE", "BestEffort", 2),
        (None, "Guaranteed", 1),
        (None, "Burstable", 1),
        (None, "BestEffort", 2),
    ],
)
def test_priorities(qos, kube, priority) -> None:
    files, _ = asked(network_slo("terway-qos", "1G"), pod("p", qos, kube))
    assert json.loads(files[Resource.TERWAY_PODS])["p"]["prio"] == priority


@pytest.mark.parametrize("text", ["{", '{"egressLimit":"fast"}', '{"egressLimit":"-8M"}'])
def test_a_bad_annotation_keeps_the_pod_in_the_file(text) -> None:
    files, notes = asked(
        network_slo("terway-qos", "1G"),
        pod("p", annotations={KEY: text}, name="web", namespace="shop"),
    )
    record = json.loads(files[Resource.TERWAY_PODS])["p"]
    assert record["qosConfig"] == {"ingressBandwidth": 0, "egressBandwidth": 0}
    [note] = notes
    assert note.startswith("pod shop/web: ")
    assert KEY in note
