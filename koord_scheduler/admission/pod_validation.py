"""What a pod must not say (docs/reference/protocol.md 6.3)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.admission.devices import device_refusal
from koord_scheduler.admission.pods import (
    annotations_of,
    check_pod,
    labels_of,
    raw_priority_class_of,
    raw_qos_of,
    requests_batch,
    requests_of,
)
from koord_scheduler.admission.quotas import (
    Quotas,
    amounts_in,
    exceeding,
    summed,
)
from koord_scheduler.admission.words import AdmissionError, Gates, Tree
from koordlet.protocol import keys
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.quota import (
    ADMISSION,
    BUILT_IN,
    CHILD_REQUEST,
    DEFAULT,
)
from koordlet.protocol.qos import PriorityClass, QoSClass, refused_combination
from koordlet.protocol.quantity import Quantity
from koordlet.protocol.resources import CPU

RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
_WHOLE_CPUS = frozenset({QoSClass.LSE, QoSClass.LSR})
_MOST_RULES_CHARACTERS = 256 << 10


class LabelRule(NamedTuple):
    """Labels that pods must have, outside some namespaces."""

    name: str
    required_labels: tuple[str, ...]
    namespaces: frozenset[str]


def validate_pod(
    pod: Tree,
    old: Tree | None,
    namespace: str,
    quotas: Quotas,
    gates: Gates,
    rules: Iterable[LabelRule] = (),
) -> None:
    """``old`` None: the pod is new. Raises AdmissionError with what is wrong: all problems of the
    first stage that finds any."""
    check_pod(pod)
    if old is not None:
        check_pod(old, "the pod as it was")
    if RESERVE_POD in annotations_of(pod):
        raise AdmissionError(f"annotation {RESERVE_POD} is for pods that stand for reservations")
    if problems := class_problems(pod, old, gates):
        raise AdmissionError("; ".join(problems))
    _membership(pod, old, namespace, quotas, gates)
    if gates.enable_quota_admission:
        _admission(pod, old, namespace, quotas, gates)
    if gates.validate_pod_device_resource and (why := device_refusal(pod)):
        raise AdmissionError(why)
    if gates.enable_pod_enhanced_validator:
        _required_labels(pod, namespace, rules)


def class_problems(pod: Tree, old: Tree | None, gates: Gates) -> list[str]:
    """Stage 2: classes that change or do not go together."""
    problems = []
    qos, priority = raw_qos_of(pod), raw_priority_class_of(pod)
    if old is not None:
        if (before := raw_qos_of(old)) is not qos:
            text = f"label {keys.QOS_CLASS.name} cannot change from {_word(before)} to {_word(qos)}"
            problems.append(text)
        if (was := raw_priority_class_of(old)) is not priority:
            problems.append(
                f"the priority class cannot change from {_word(was)} to {_word(priority)}"
            )
        key = keys.SUB_PRIORITY.name
        skipped = gates.colocation_profile_skip_validating_priority
        if not skipped and labels_of(old).get(key) != labels_of(pod).get(key):
            problems.append(f"label {key} cannot change")
    requests = requests_of(pod)
    cpu_milli = requests[CPU].milli if CPU in requests else 0
    # Each rule by itself, so that the author learns of all at once.
    found = (
        refused_combination(qos, priority, cpu_request_milli=1000),
        refused_combination(qos, PriorityClass.PROD, cpu_request_milli=cpu_milli)
        if qos in _WHOLE_CPUS
        else None,
        refused_combination(None, None, requests_batch=True)
        if qos is not QoSClass.BE and requests_batch(requests)
        else None,
    )
    return problems + [why for why in found if why]


def _word(cls: object) -> str:
    return str(cls) if cls is not None else "none"


def _membership(pod: Tree, old: Tree | None, namespace: str, quotas: Quotas, gates: Gates) -> None:
    """Stage 3."""
    key = keys.PREEMPTIBLE.name
    if old is not None and labels_of(old).get(key) != labels_of(pod).get(key):
        raise AdmissionError(f"label {key} cannot change")
    if gates.support_parent_quota_submit_pod:
        return
    name = quotas.name_for(pod, namespace, label_alone=gates.disable_default_quota)
    quota = quotas.by_name.get(name)
    if quota is not None and name != DEFAULT and quota.is_parent:
        raise AdmissionError(f"quota {name} has quotas below it; pods belong to one of those")


def _admission(pod: Tree, old: Tree | None, namespace: str, quotas: Quotas, gates: Gates) -> None:
    """Stage 4."""
    name = quotas.name_for(pod, namespace, label_alone=gates.disable_default_quota)
    if old is not None:
        before = quotas.name_for(old, namespace, label_alone=gates.disable_default_quota)
        if not gates.enable_quota_admission_on_update or before == name:
            return
    if not name or name in BUILT_IN:
        return
    found = [each for each in quotas.all if each.name == name]
    if len(found) != 1:
        raise AdmissionError(
            f"quota {name}: there must be one of this name, there are {len(found)}"
        )
    (quota,) = found
    limit = amounts_in(quota.annotations, ADMISSION) or quota.at_most
    asked = requests_of(pod, overhead=not gates.elastic_quota_ignore_pod_overhead)
    if gates.elastic_quota_evaluation_transform_pod:
        asked = replaced(pod, asked)
    asked = {name: each for name, each in asked.items() if name in quota.at_most and each.nano}
    before_amounts = amounts_in(quota.annotations, CHILD_REQUEST) or {}
    total = {name: each for name, each in summed((before_amounts, asked)).items() if name in asked}
    if why := exceeding(total, limit):
        raise AdmissionError(f"quota {quota.name} admits no more: {why}")


def replaced(pod: Tree, amounts: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """What a pod asks for under the names that its annotation gives to resources (2.2)."""
    text = annotations_of(pod).get(keys.REPLACE_RESOURCES.name, "")
    found = dict(amounts)
    for entry in text.split(",")[:64]:
        source, colon, target = (each.strip() for each in entry.partition(":"))
        if colon and ":" not in target and source in found:
            amount = found.pop(source)
            if target:
                found[target] = Quantity(amount.nano + found.get(target, Quantity(0)).nano)
    return found


def label_rules(data: Mapping[str, str]) -> tuple[LabelRule, ...]:
    """Of the ConfigMap ``pod-enhanced-validator-config``; none where it is not enabled. Raises
    ProtocolError."""

    class Rule(msgspec.Struct):
        name: str = ""
        required_labels: list[str] = msgspec.field(default_factory=list, name="requiredLabels")
        namespaces: list[str] = msgspec.field(default_factory=list, name="namespaceWhitelist")

    if data.get("enable", "").strip().lower() != "true":
        return ()
    text = data.get("rules", "[]")
    if len(text) > _MOST_RULES_CHARACTERS:
        raise ProtocolError(f"rules have more than {_MOST_RULES_CHARACTERS} characters")
    try:
        rules = msgspec.convert(json.loads(text), list[Rule])
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"rules: {error}") from None
    return tuple(
        LabelRule(each.name, tuple(each.required_labels), frozenset(each.namespaces))
        for each in rules
    )


def _required_labels(pod: Tree, namespace: str, rules: Iterable[LabelRule]) -> None:
    """Stage 6."""
    labels = labels_of(pod)
    if labels.get(keys.SKIP_ENHANCED_VALIDATION.name) == "true":
        return
    for rule in rules:
        if namespace in rule.namespaces:
            continue
        missing = [each for each in rule.required_labels if each not in labels]
        if missing:
            raise AdmissionError(f"rule {rule.name}: label {', '.join(missing)} is missing")
