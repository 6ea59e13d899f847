"""Bindings, Reservations, nodes, existing pods, required labels
(docs/reference/protocol.md 6.3-6.8)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.admission.others import (
    BindingRules,
    binding_refusal,
    mutate_node_status,
    mutate_reservation,
)
from koord_scheduler.admission.pod_validation import LabelRule, label_rules, validate_pod
from koord_scheduler.admission.quotas import Quotas
from koord_scheduler.admission.reconciling import falls_under, managed, reconciled
from koord_scheduler.admission.words import GATE_FIELDS, AdmissionError, Gates, gates_from
from koordlet.protocol.errors import ProtocolError
from tests.companion.admission.pods import container, pod
from tests.companion.admission.test_mutation import CLASSES, profile

BYPASS = "koordinator.sh/binding-admission-bypass"
RULES = BindingRules(users=("koord-scheduler",), namespaces=frozenset({"*"}))
BOUND: list[tuple[str, str, Any, BindingRules, bool]] = [
    ("alice", "ns", pod(), BindingRules(), True),
    ("system:serviceaccount:x:koord-scheduler", "ns", pod(), RULES, True),
    ("alice", "ns", pod(), RULES, False),
    ("alice", "kube-system", pod(), RULES, True),
    ("alice", "ns", None, RULES, True),
    ("alice", "ns", pod(labels={BYPASS: ""}), RULES, True),
    ("alice", "ns", pod(annotations={BYPASS: ""}), RULES, False),
    ("alice", "ns", pod(), BindingRules(users=("x",)), True),
    ("alice", "ns", pod(), BindingRules(users=("x",), namespaces=frozenset({"ns"})), False),
    ("alice", "other", pod(), BindingRules(users=("x",), namespaces=frozenset({"ns"})), True),
]


@pytest.mark.parametrize(("user", "namespace", "tree", "rules", "may"), BOUND)
def test_who_may_bind(user: str, namespace: str, tree: Any, rules: BindingRules, may: bool) -> None:
    assert (binding_refusal(user, namespace, tree, rules) == "") is may


def test_a_reservation_under_a_profile() -> None:
    tree = {
        "metadata": {"name": "r", "labels": {"app": "a"}},
        "spec": {"template": {"metadata": {"labels": {}}}, "owners": []},
    }
    found = profile(
        "p",
        namespaceSelector={"matchLabels": {"never": "asked"}},
        selector={"matchLabels": {"app": "a"}},
        qosClass="LS",
        labels={"l": "1"},
        priorityClassName="koord-mid",
        schedulerName="s",
        patch={"spec": {"ttl": "1h"}},
    )
    made, steps = mutate_reservation(tree, (found,), CLASSES, lambda: 0.0)
    assert made["metadata"]["labels"] == {"app": "a", "l": "1", "koordinator.sh/qosClass": "LS"}
    spec = made["spec"]["template"]["spec"]
    assert (spec["schedulerName"], spec["priority"]) == ("s", 7000)
    assert made["spec"]["ttl"] == "1h" and steps
    bare: dict[str, Any] = {"metadata": {"labels": {"app": "a"}}, "spec": {}}
    made, _ = mutate_reservation(bare, (found,), CLASSES, lambda: 0.0)
    assert made["spec"] == {"ttl": "1h"}


RATIO, RAW = (
    "node.koordinator.sh/resource-amplification-ratio",
    "node.koordinator.sh/raw-allocatable",
)


def node(allocatable: dict[str, str], **annotations: str | None) -> dict[str, Any]:
    keys = {"ratio": RATIO, "raw": RAW}
    given = {keys[k]: v for k, v in annotations.items() if v is not None}
    return {"metadata": {"name": "n", "annotations": given}, "status": {"allocatable": allocatable}}


FOUR = {"cpu": "4", "memory": "8Gi", "pods": "110"}
NODES: list[tuple[str, Any, Any, dict[str, str], dict[str, str] | None]] = [
    ("no ratio", node(FOUR), node(FOUR), FOUR, None),
    ("gone", node(FOUR, raw="{}"), node(FOUR, ratio="{}", raw="{}"), FOUR, None),
    ("empty", node(FOUR, ratio="", raw="{}"), node(FOUR), FOUR, None),
    (
        "first",
        node(FOUR, ratio='{"cpu":1.5,"memory":1.25}'),
        node(FOUR),
        {"cpu": "6", "memory": "10Gi", "pods": "110"},
        {"cpu": "4", "memory": "8Gi"},
    ),
    (
        "nothing new",
        node({"cpu": "6"}, ratio='{"cpu":1.5}', raw='{"cpu":"4"}'),
        node({"cpu": "6"}, ratio='{"cpu":1.5}', raw='{"cpu":"4"}'),
        {"cpu": "6"},
        {"cpu": "4"},
    ),
    (
        "another ratio",
        node({"cpu": "6"}, ratio='{"cpu":2}', raw='{"cpu":"4"}'),
        node({"cpu": "6"}, ratio='{"cpu":1.5}', raw='{"cpu":"4"}'),
        {"cpu": "8"},
        {"cpu": "4"},
    ),
    (
        "the node shrinks",
        node({"cpu": "3"}, ratio='{"cpu":1.5}', raw='{"cpu":"4"}'),
        node({"cpu": "6"}, ratio='{"cpu":1.5}', raw='{"cpu":"4"}'),
        {"cpu": "4500m"},
        {"cpu": "3"},
    ),
    (
        "not above 1",
        node(FOUR, ratio='{"cpu":1,"memory":0.5}'),
        node(FOUR),
        FOUR,
        {"cpu": "4", "memory": "8Gi"},
    ),
]


@pytest.mark.parametrize(("name", "new", "old", "allocatable", "raw"), NODES)
def test_amplification(name: str, new: Any, old: Any, allocatable: Any, raw: Any) -> None:
    made, _ = mutate_node_status(new, old)
    assert made["status"]["allocatable"] == allocatable
    text = made["metadata"]["annotations"].get(RAW)
    assert (json.loads(text) if text else None) == raw
    assert mutate_node_status(new, None) == (new, ())


@pytest.mark.parametrize("text", ["{", "[]", '{"cpu":"x"}', '{"cpu":1e999}', '{"cpu":1e308}'])
def test_a_ratio_that_cannot_be_read(text: str) -> None:
    with pytest.raises(AdmissionError, match=RATIO):
        mutate_node_status(node(FOUR, ratio=text), node(FOUR))


def test_which_profiles_concern_pods_that_exist() -> None:
    plain = profile("plain")
    marked = plain._replace(labels={"config.koordinator.sh/controller-managed": "true"})
    assert managed([plain, marked], by_default=False) == (marked,)
    assert managed([plain, marked], by_default=True) == (plain, marked)
    assert not falls_under(plain, {}, {})  # a selector that is missing matches nothing here
    both = profile("p", selector={}, namespaceSelector={})
    assert falls_under(both, {}, {})
    assert not falls_under(profile("p", selector={}), {}, {})


def test_what_a_pod_that_exists_gets() -> None:
    tree = pod(container(requests={"cpu": "1"}), labels={"s": "x"})
    found = profile(
        "p",
        labels={"a": "1"},
        labelSuffixes={"s": "-y"},
        schedulerName="other",
        priorityClassName="koord-batch",
    )
    made = reconciled(tree, found, Gates(), lambda: 0.0)
    assert made.pod is not None
    assert made.pod["metadata"]["labels"] == {"s": "x-y", "a": "1"}
    assert made.pod["spec"] == tree["spec"]
    # Again: nothing to do, and the suffix is not appended once more.
    assert reconciled(made.pod, found, Gates(), lambda: 0.0).pod is None
    # What the validating webhook would refuse is not tried.
    other = reconciled(tree, profile("p", qosClass="BE"), Gates(), lambda: 0.0)
    assert other.pod is None and "cannot change from none to BE" in other.why
    assert reconciled(tree, profile("p", probability=0), Gates(), lambda: 0.0).why == "not drawn"
    sub = profile("p", koordinatorPriority=7)
    assert reconciled(tree, sub, Gates(), lambda: 0.0).pod is None
    gates = Gates(colocation_profile_skip_validating_priority=True)
    assert reconciled(tree, sub, gates, lambda: 0.0).pod is not None


def test_labels_that_pods_must_have() -> None:
    text = json.dumps([{"name": "r", "requiredLabels": ["a", "b"], "namespaceWhitelist": ["free"]}])
    assert label_rules({"rules": text}) == ()
    assert label_rules({"enable": "false", "rules": text}) == ()
    rules = label_rules({"enable": " True ", "rules": text})
    assert rules == (LabelRule("r", ("a", "b"), frozenset({"free"})),)
    for bad in ("{", '[{"requiredLabels":1}]'):
        with pytest.raises(ProtocolError):
            label_rules({"enable": "true", "rules": bad})
    gates = Gates(enable_pod_enhanced_validator=True)

    def check(labels: dict[str, str], namespace: str = "ns") -> None:
        validate_pod(pod(labels=labels), None, namespace, Quotas(), gates, rules)

    with pytest.raises(AdmissionError, match="rule r: label b is missing"):
        check({"a": ""})
    check({"a": "", "b": "x"})
    check({}, "free")
    check({"pod.koordinator.sh/skip-enhanced-validation": "true"})
    validate_pod(pod(), None, "ns", Quotas(), Gates(), rules)


def test_gates_by_name() -> None:
    assert gates_from("") == Gates()
    made = gates_from("NodeMutatingWebhook=true, PodMutatingWebhook=false")
    assert made.node_mutating_webhook and not made.pod_mutating_webhook
    for name in GATE_FIELDS:
        assert getattr(gates_from(f"{name}=true"), GATE_FIELDS[name]) is True
    with pytest.raises(ValueError, match="Nope: no such gate"):
        gates_from("Nope=true")
    with pytest.raises(ValueError, match="must be true or false"):
        gates_from("MultiQuotaTree=1")
