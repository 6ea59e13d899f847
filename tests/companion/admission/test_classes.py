"""Which classes go together
(docs/reference/protocol.md 1.4), and what must not change (6.3, stage 2)."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.admission.pod_validation import validate_pod
from koord_scheduler.admission.quotas import Quotas
from koord_scheduler.admission.words import AdmissionError, Gates
from tests.companion.admission.pods import container, pod

QOS, PRIORITY, SUB = (
    "koordinator.sh/qosClass",
    "koordinator.sh/priority-class",
    "koordinator.sh/priority",
)
VALUES = {"prod": 9500, "mid": 7500, "batch": 5500, "free": 3500, "none": 0}
ALL = set(VALUES)
ALLOWED = {
    "LSE": ALL,
    "LSR": {"prod"},
    "LS": ALL,
    "BE": {"mid", "batch", "free"},
    "SYSTEM": ALL,
    "": ALL,
    "LSX": ALL,  # an unknown value is no class
}


def refusal(new: Any, old: Any = None, gates: Gates = Gates()) -> str:  # noqa: B008
    try:
        validate_pod(new, old, "ns", Quotas(), gates)
    except AdmissionError as error:
        assert error.code == 400
        return error.message
    return ""


@pytest.mark.parametrize("priority", VALUES)
@pytest.mark.parametrize("qos", ALLOWED)
def test_the_table(qos: str, priority: str) -> None:
    labels = {QOS: qos} if qos else {}
    by_value = pod(container(requests={"cpu": "2"}), labels=labels, priority=VALUES[priority])
    by_label = pod(
        container(requests={"cpu": "2"}),
        labels={**labels, PRIORITY: f"koord-{priority}"},
        priority=123,
    )
    for made in (by_value, by_label):
        why = refusal(made)
        assert (why == "") == (priority in ALLOWED[qos]), why
        if why:
            word = "none" if priority == "none" else f"koord-{priority}"
            assert why == f"QoS class {qos} does not go with priority class {word}"


@pytest.mark.parametrize("qos", ["LSE", "LSR"])
@pytest.mark.parametrize(
    ("containers", "good"),
    [
        (["1"], True),
        (["500m", "1500m"], True),
        (["1500m"], False),
        (["0"], False),
        ([], False),
        (["999.5m"], True),  # rounded up to milli-cores
    ],
)
def test_whole_cpus(qos: str, containers: list[str], good: bool) -> None:
    made = pod(
        *(container(f"c{i}", {"cpu": each}) for i, each in enumerate(containers)),
        labels={QOS: qos},
        priority=9500,
    )
    why = refusal(made)
    assert (why == "") == good, why
    assert good or "whole CPUs" in why


def test_init_containers_and_overhead_count() -> None:
    labels = {QOS: "LSR"}
    more = pod(
        container(requests={"cpu": "1"}),
        labels=labels,
        priority=9000,
        initContainers=[container("i", {"cpu": "1500m"})],
    )
    assert "1500m" in refusal(more)
    side = container("s", {"cpu": "500m"}) | {"restartPolicy": "Always"}
    both = pod(
        container(requests={"cpu": "1500m"}), labels=labels, priority=9000, initContainers=[side]
    )
    assert refusal(both) == ""
    over = pod(
        container(requests={"cpu": "1"}), labels=labels, priority=9000, overhead={"cpu": "10m"}
    )
    assert "1010m" in refusal(over)


@pytest.mark.parametrize("qos", ["", "LS", "LSR", "SYSTEM"])
@pytest.mark.parametrize("name", ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"])
def test_batch_resources_are_for_best_effort(qos: str, name: str) -> None:
    labels = {QOS: qos} if qos else {}
    assert "batch resources need the QoS label BE" in refusal(
        pod(container(requests={name: "1"}), labels=labels, priority=9000)
    )
    assert (
        refusal(pod(container(requests={name: "0", "cpu": "1"}), labels=labels, priority=9000))
        == ""
    )
    init = pod(labels={}, initContainers=[container("i", {name: "1"})])
    assert "need the QoS label BE" in refusal(init)
    good = pod(container(requests={name: "1"}), labels={QOS: "BE"}, priority=5000)
    assert refusal(good) == ""


def test_all_problems_are_told_at_once() -> None:
    made = pod(
        container(requests={"cpu": "1500m", "kubernetes.io/batch-cpu": "1"}), labels={QOS: "LSR"}
    )
    why = refusal(made)
    for part in ("does not go with priority class none", "whole CPUs", "QoS label BE"):
        assert part in why


CHANGES: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({QOS: "LS"}, {QOS: "SYSTEM"}, "cannot change from LS to SYSTEM"),
    ({QOS: "LS"}, {}, "cannot change from LS to none"),
    ({}, {QOS: "LS"}, "cannot change from none to LS"),
    ({QOS: "x"}, {QOS: "y"}, ""),  # none before, none after
    ({PRIORITY: "koord-prod"}, {PRIORITY: "koord-mid"}, "from koord-prod to koord-mid"),
    ({PRIORITY: "koord-prod"}, {}, "from koord-prod to none"),
    ({SUB: "1"}, {SUB: "2"}, f"label {SUB} cannot change"),
    ({}, {SUB: "2"}, f"label {SUB} cannot change"),
    ({"quota.scheduling.koordinator.sh/preemptible": "false"}, {}, "cannot change"),
    ({"a": "b"}, {"c": "d"}, ""),
]


@pytest.mark.parametrize(("before", "after", "why"), CHANGES)
def test_what_an_update_may_change(before: Any, after: Any, why: str) -> None:
    new, old = pod(labels=dict(after)), pod(labels=dict(before))
    assert why in refusal(new, old) and bool(refusal(new, old)) == bool(why)
    gates = Gates(colocation_profile_skip_validating_priority=True)
    assert bool(refusal(new, old, gates)) == (bool(why) and SUB not in why)


def test_pods_that_stand_for_reservations_are_not_for_users() -> None:
    key = "scheduling.koordinator.sh/reserve-pod"
    assert key in refusal(pod(annotations={key: "true"}))
