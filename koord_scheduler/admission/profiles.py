"""Which profiles a pod falls under, and what they make of it
(docs/reference/protocol.md 6.2, step 1)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from koord_scheduler.admission.json_patch import json_patch
from koord_scheduler.admission.pods import labels_of, set_annotation, set_label
from koord_scheduler.admission.strategic_merge import strategic_merge
from koord_scheduler.admission.words import AdmissionError, Step, Tree
from koordlet.protocol import keys
from koordlet.protocol.objects.colocation_profile import ClusterColocationProfileSpec
from koordlet.protocol.selector import LabelSelector, matches, selector_problems

SKIP_UPDATE_RESOURCES = "config.koordinator.sh/skip-update-resources"
"""Annotation of a profile: resources of the pods stay what they are."""
CONTROLLER_MANAGED = "config.koordinator.sh/controller-managed"
"""Label of a profile: pods that exist already and wait for a node get it too."""

_PATCH_STEPS, _STEP_CHARACTERS = 20, 200
"""Of a patch, for whoever asks what it did."""

Draw = Callable[[], float]
"""A random number from 0 up to 1, without 1."""


class Profile(NamedTuple):
    name: str
    spec: ClusterColocationProfileSpec
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class PriorityClassValue(NamedTuple):
    """What a PriorityClass of Kubernetes stands for. ``policy`` empty: that of Kubernetes."""

    value: int
    policy: str = ""


class Match(NamedTuple):
    """``why`` says what kept a profile away, empty where it matches."""

    profile: Profile
    why: str = ""


def matching(
    profiles: Iterable[Profile],
    labels: Mapping[str, str],
    namespace_labels: Mapping[str, str],
    *,
    by_namespace: bool = True,
    missing_matches: bool = True,
) -> list[Match]:
    """Every profile by name, and whether it matches. ``missing_matches``: what a selector that is
    not there means.

    A selector that Kubernetes would refuse matches nothing: the other way round one mistyped word
    makes batch work of all pods of a cluster.
    """
    found = []
    for profile in sorted(profiles, key=lambda each: each.name):
        why = ""
        if by_namespace:
            why = _why_not(
                profile.spec.namespace_selector,
                namespace_labels,
                "namespaceSelector",
                missing_matches,
            )
        why = why or _why_not(profile.spec.selector, labels, "selector", missing_matches)
        found.append(Match(profile, why))
    return found


def _why_not(
    selector: LabelSelector | None, labels: Mapping[str, str], name: str, missing_matches: bool
) -> str:
    if selector is None:
        return "" if missing_matches else f"it has no {name}"
    wrong = next(selector_problems(selector, name), None)
    if wrong is not None:
        return f"its selector cannot be used: {wrong}"
    if matches(selector, labels):
        return ""
    for key, value in (selector.match_labels or {}).items():
        if labels.get(key) != value:
            has = f"is {labels[key]}" if key in labels else "is missing"
            return f"{name}: label {key} {has}, must be {value}"
    wanted = next(
        each
        for each in selector.match_expressions
        if not matches(LabelSelector(match_expressions=(each,)), labels)
    )
    values = f" [{', '.join(wanted.values)}]" if wanted.values else ""
    return f"{name}: {wanted.key} {wanted.operator}{values} does not hold"


def percent_of(profile: Profile) -> int:
    """Of the pods that match, how many in a hundred get the profile. Raises AdmissionError."""
    given = profile.spec.probability
    if given is None:
        return 100
    if isinstance(given, str):
        if re.fullmatch(r"[+-]?[0-9]{1,9}%", given, re.ASCII) is None:
            raise AdmissionError(
                f"profile {profile.name}: probability is {given[:64]!r}, must be a whole number"
                " or a text such as 30%",
                500,
            )
        given = int(given[:-1])
    return max(0, min(100, given))


def is_drawn(profile: Profile, draw: Draw) -> bool:
    """Raises AdmissionError."""
    percent = percent_of(profile)
    return percent == 100 or (percent > 0 and draw() * 100 < percent)


def skips_resources(profiles: Iterable[Profile]) -> bool:
    return any(SKIP_UPDATE_RESOURCES in each.annotations for each in profiles)


def apply_profile(
    pod: Tree,
    profile: Profile,
    priority_classes: Mapping[str, PriorityClassValue],
    steps: list[Step],
    *,
    holder: Tree | None = None,
    is_pod: bool = True,
    scheduling: bool = True,
) -> Tree:
    """``pod`` as the profile makes it; ``pod`` itself may be changed.

    ``holder``: what has scheduler and priority in its ``spec`` where that is not ``pod`` (the
    template of a Reservation). ``scheduling`` False leaves scheduler and priority as they are.
    Raises AdmissionError for a PriorityClass that is not there and for a patch that says nothing.
    """
    spec, by = profile.spec, f"profile {profile.name}"
    _metadata(pod, profile, by, steps)
    holder = pod if holder is None and is_pod else holder
    if scheduling and holder is not None and spec.scheduler_name:
        _set(holder["spec"], "schedulerName", spec.scheduler_name, by, steps)
    if spec.qos_class:
        _label(pod, keys.QOS_CLASS.name, spec.qos_class, by, steps)
    if scheduling and holder is not None and spec.priority_class_name:
        name = spec.priority_class_name
        cls = priority_classes.get(name)
        if cls is None:
            raise AdmissionError(f"{by}: there is no PriorityClass {name}", 500)
        _set(holder["spec"], "priorityClassName", name, by, steps)
        _set(holder["spec"], "priority", cls.value, by, steps)
        _set(holder["spec"], "preemptionPolicy", cls.policy or "PreemptLowerPriority", by, steps)
    if spec.koordinator_priority is not None:
        _label(pod, keys.SUB_PRIORITY.name, str(spec.koordinator_priority), by, steps)
    if spec.patch:
        before = pod
        pod = strategic_merge(pod, spec.patch, f"{by}: patch")
        _patched(before, pod, by, steps)
    return pod


def _patched(before: Tree, after: Tree, by: str, steps: list[Step]) -> None:
    changes = json_patch(before, after)
    for each in changes[:_PATCH_STEPS]:
        value = str(each["value"])[:_STEP_CHARACTERS] if "value" in each else None
        steps.append(Step(by, f"patch: {each['op']} {each['path']}", None, value))
    if len(changes) > _PATCH_STEPS:
        steps.append(Step(by, "patch", None, f"and {len(changes) - _PATCH_STEPS} more"))


def _metadata(pod: Tree, profile: Profile, by: str, steps: list[Step]) -> None:
    spec = profile.spec
    for key, value in sorted((spec.labels or {}).items()):
        _label(pod, key, value, by, steps)
    for key, value in sorted((spec.annotations or {}).items()):
        _annotation(pod, key, value, by, steps)
    for old, new in sorted((spec.label_keys_mapping or {}).items()):
        _label(pod, new, labels_of(pod).get(old, ""), by, steps)
    for old, new in sorted((spec.annotation_keys_mapping or {}).items()):
        given = (pod["metadata"].get("annotations") or {}).get(old, "")
        _annotation(pod, new, given, by, steps)
    for key, suffix in sorted((spec.label_suffixes or {}).items()):
        if key in labels_of(pod):
            _label(pod, key, labels_of(pod)[key] + suffix, by, steps)


def _label(pod: Tree, key: str, value: str, by: str, steps: list[Step]) -> None:
    before = labels_of(pod).get(key)
    if before != value:
        steps.append(Step(by, f"label {key}", before, value))
    set_label(pod, key, value)


def _annotation(pod: Tree, key: str, value: str, by: str, steps: list[Step]) -> None:
    before = (pod["metadata"].get("annotations") or {}).get(key)
    if before != value:
        steps.append(Step(by, f"annotation {key}", before, value))
    set_annotation(pod, key, value)


def _set(spec: Tree, field: str, value: str | int, by: str, steps: list[Step]) -> None:
    before = spec.get(field)
    if before != value:
        steps.append(Step(by, f"spec.{field}", None if before is None else str(before), str(value)))
    spec[field] = value
