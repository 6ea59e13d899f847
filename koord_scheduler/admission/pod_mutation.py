"""What admission makes of a new pod (docs/reference/protocol.md 6.2)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from koord_scheduler.admission.devices import write_device_shares
from koord_scheduler.admission.pods import check_pod, labels_of
from koord_scheduler.admission.profiles import (
    Draw,
    Match,
    PriorityClassValue,
    Profile,
    apply_profile,
    is_drawn,
    matching,
    percent_of,
    skips_resources,
)
from koord_scheduler.admission.quotas import QuotaProfile, Quotas
from koord_scheduler.admission.translation import (
    drop_native_again,
    translate_resources,
    write_extended_resources,
)
from koord_scheduler.admission.words import AdmissionError, Gates, Step, Tree
from koordlet.protocol import keys
from koordlet.protocol.selector import LabelSelector, selector_problems


@dataclass(frozen=True)
class Facts:
    """What a decision about a pod needs of the cluster."""

    profiles: tuple[Profile, ...] = ()
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClassValue] = field(default_factory=dict)
    quotas: Quotas = field(default_factory=Quotas)
    quota_profiles: tuple[QuotaProfile, ...] = ()


class Mutation(NamedTuple):
    """``matches``: every profile, and what kept it away; ``left_out``: those that matched and were
    not drawn."""

    pod: Tree
    steps: tuple[Step, ...]
    matches: tuple[Match, ...]
    left_out: tuple[str, ...]


def mutate_pod(pod: Tree, namespace: str, facts: Facts, gates: Gates, draw: Draw) -> Mutation:
    """``pod`` as it shall be created; the one given stays as it is. Raises AdmissionError."""
    check_pod(pod)
    pod = copy.deepcopy(pod)
    steps: list[Step] = []
    matches = matching(facts.profiles, labels_of(pod), facts.namespace_labels)
    profiles = [each.profile for each in matches if not each.why]
    left_out = []
    for profile in profiles:
        if not is_drawn(profile, draw):
            left_out.append(profile.name)
            steps.append(
                Step(f"profile {profile.name}", "not drawn", None, f"{percent_of(profile)} %")
            )
            continue
        pod = apply_profile(pod, profile, facts.priority_classes, steps)
        if profile.spec.patch:
            _check_patched(pod, profile)
    skipped = gates.colocation_profile_skip_mutating_resources or skips_resources(profiles)
    if profiles and not skipped:
        translate_resources(pod, steps)
    if not gates.disable_extended_resource_spec:
        write_extended_resources(pod, steps)
    if gates.multi_quota_tree:
        _keep_in_tree(pod, namespace, facts, steps)
    if not gates.disable_device_resource_spec:
        write_device_shares(pod, steps)
    return Mutation(pod, tuple(steps), tuple(matches), tuple(left_out))


def settle_pod(pod: Tree, facts: Facts, gates: Gates) -> tuple[Tree, tuple[Step, ...]]:
    """``pod`` after others have changed it once more: what ``mutate_pod`` translated does not come
    back. It may be called any number of times. Raises AdmissionError."""
    check_pod(pod)
    matches = matching(facts.profiles, labels_of(pod), facts.namespace_labels)
    profiles = [each.profile for each in matches if not each.why]
    skipped = gates.colocation_profile_skip_mutating_resources or skips_resources(profiles)
    if not profiles or skipped:
        return pod, ()
    pod = copy.deepcopy(pod)
    steps: list[Step] = []
    drop_native_again(pod, steps)
    return pod, tuple(steps)


def _check_patched(pod: Tree, profile: Profile) -> None:
    try:
        check_pod(pod, f"the pod with the patch of profile {profile.name}")
    except AdmissionError as error:
        raise AdmissionError(error.message, 500) from None


def _keep_in_tree(pod: Tree, namespace: str, facts: Facts, steps: list[Step]) -> None:
    """On the nodes of the quota tree that the pod is charged to."""
    name = labels_of(pod).get(keys.QUOTA_NAME.name) or namespace
    quota = facts.quotas.by_name.get(name) or facts.quotas.of_namespace(name)
    if quota is None or not quota.tree_id:
        return
    profile = next(
        (
            each
            for each in sorted(facts.quota_profiles, key=lambda each: each.name)
            if each.tree_id == quota.tree_id
        ),
        None,
    )
    if profile is None or profile.node_selector is None:
        return
    wrong = next(selector_problems(profile.node_selector, "nodeSelector"), None)
    if wrong is not None:
        raise AdmissionError(f"ElasticQuotaProfile {profile.name}: {wrong}", 500)
    wanted = node_requirements(profile.node_selector)
    if not wanted:
        return
    affinity = _part(_part(pod["spec"], "affinity"), "nodeAffinity")
    required = _part(affinity, "requiredDuringSchedulingIgnoredDuringExecution")
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *wanted]}
        for term in terms
    ]
    where = f"node affinity of quota tree {quota.tree_id}"
    text = ", ".join(f"{each['key']} {each['operator']}" for each in wanted)
    steps.append(Step(f"ElasticQuotaProfile {profile.name}", where, None, text))


def node_requirements(selector: LabelSelector) -> list[dict[str, Any]]:
    """A label selector in the words of node affinity."""
    found: list[dict[str, Any]] = [
        {"key": key, "operator": "In", "values": [value]}
        for key, value in sorted((selector.match_labels or {}).items())
    ]
    for each in selector.match_expressions:
        values = {"values": list(each.values)} if each.values else {}
        found.append({"key": each.key, "operator": each.operator, **values})
    return found


def _part(tree: Tree, key: str) -> Tree:
    if not isinstance(tree.get(key), dict):
        tree[key] = {}
    part: Tree = tree[key]
    return part
