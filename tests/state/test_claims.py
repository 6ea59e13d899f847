"""Labels that Kubernetes contradicts: what counts instead, and that it is shown."""

from __future__ import annotations

import json

import pytest

from koordlet.decision.facts import PodFacts
from koordlet.protocol import keys
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass
from koordlet.state.labels import Read, read_labels

QOS, CLASS, SUB = keys.QOS_CLASS.name, keys.PRIORITY_CLASS.name, keys.SUB_PRIORITY.name
SPEC = keys.EXTENDED_RESOURCE_SPEC.name
BATCH = {SPEC: json.dumps({"containers": {"c": {"requests": {"kubernetes.io/batch-cpu": "1000"}}}})}
BE, LS, LSE, LSR, SYSTEM = QoSClass.BE, QoSClass.LS, QoSClass.LSE, QoSClass.LSR, QoSClass.SYSTEM
PROD, MID, BATCH_CLASS = PriorityClass.PROD, PriorityClass.MID, PriorityClass.BATCH


def read(
    labels: dict[str, str],
    kube: str = "BestEffort",
    priority: int | None = None,
    annotations: dict[str, str] | None = None,
) -> Read:
    facts = PodFacts(
        "u",
        kube_qos=KubeQoS(kube),
        name="p",
        namespace="n",
        priority=priority,
        labels=labels,
        annotations=annotations or {},
    )
    return read_labels(facts, ())


@pytest.mark.parametrize(
    ("label", "kube", "expected", "told"),
    [
        ("LSE", "BestEffort", BE, True),
        ("LSR", "BestEffort", BE, True),
        ("LSE", "Burstable", LSE, False),
        ("LSR", "Guaranteed", LSR, False),
        ("LS", "BestEffort", LS, False),
        ("SYSTEM", "BestEffort", SYSTEM, False),
        ("BE", "Guaranteed", BE, False),
    ],
)
def test_whole_cpus_need_a_request(label: str, kube: str, expected: QoSClass, told: bool) -> None:
    found = read({QOS: label}, kube)
    assert found.raw_qos is expected
    assert [fault.path for fault in found.faults] == ([QOS] if told else [])


@pytest.mark.parametrize(
    ("labels", "kube", "priority", "annotations", "expected", "told"),
    [
        # A label alone makes no production out of best effort ...
        ({QOS: "BE", CLASS: "koord-prod"}, "BestEffort", None, {}, BATCH_CLASS, True),
        ({QOS: "BE", CLASS: "koord-prod"}, "Burstable", None, {}, BATCH_CLASS, True),
        ({CLASS: "koord-prod"}, "BestEffort", None, {}, BATCH_CLASS, True),
        ({QOS: "LS", CLASS: "koord-prod"}, "BestEffort", None, {}, BATCH_CLASS, True),
        ({CLASS: "koord-prod"}, "Burstable", None, BATCH, BATCH_CLASS, True),
        ({QOS: "BE", CLASS: "koord-prod"}, "BestEffort", 0, {}, BATCH_CLASS, True),
        ({QOS: "BE", CLASS: "koord-prod"}, "BestEffort", 2**31 - 1, {}, BATCH_CLASS, True),
        # ... but what admission has set stands.
        ({QOS: "BE", CLASS: "koord-prod"}, "BestEffort", 7100, {}, MID, True),
        ({QOS: "BE", CLASS: "koord-prod"}, "BestEffort", 9500, {}, PROD, False),
        ({QOS: "BE"}, "BestEffort", 9500, {}, PROD, False),
        # No contradiction: as in the reference.
        ({QOS: "LS", CLASS: "koord-prod"}, "Burstable", None, {}, PROD, False),
        ({QOS: "LS", CLASS: "koord-prod"}, "Burstable", 5000, {}, PROD, False),
        ({CLASS: "koord-prod"}, "Guaranteed", None, {}, PROD, False),
        ({QOS: "BE", CLASS: "koord-mid"}, "BestEffort", None, {}, MID, False),
        ({QOS: "BE"}, "BestEffort", None, {}, None, False),
        ({QOS: "BE"}, "BestEffort", 5500, {}, BATCH_CLASS, False),
    ],
)
def test_best_effort_is_no_production(
    labels: dict[str, str],
    kube: str,
    priority: int | None,
    annotations: dict[str, str],
    expected: PriorityClass | None,
    told: bool,
) -> None:
    found = read(labels, kube, priority, annotations)
    assert found.priority_class is expected
    assert [fault.path for fault in found.faults] == ([CLASS] if told else [])


@pytest.mark.parametrize(
    ("labels", "priority", "told"),
    [
        ({QOS: "BE", SUB: "2147483647"}, None, True),
        ({QOS: "BE", SUB: "6000"}, 5500, True),
        ({QOS: "BE", CLASS: "koord-prod", SUB: "9999"}, None, True),
        ({QOS: "BE", SUB: "5999"}, None, False),
        ({QOS: "BE", SUB: "-5"}, None, False),
        # Outside of all bands there is nothing to contradict.
        ({QOS: "BE", SUB: "4000"}, 120, False),
    ],
)
def test_a_sub_priority_above_the_band_is_told(
    labels: dict[str, str], priority: int | None, told: bool
) -> None:
    faults = [fault.path for fault in read(labels, priority=priority).faults]
    assert (SUB in faults) is told
