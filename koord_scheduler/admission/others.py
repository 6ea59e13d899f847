"""Admission of bindings, of Reservations and of nodes
(docs/reference/protocol.md 6.4, 6.5, 6.8)."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from koord_scheduler.admission.pods import annotations_of, labels_of, set_annotation
from koord_scheduler.admission.profiles import (
    Draw,
    PriorityClassValue,
    Profile,
    apply_profile,
    is_drawn,
    matching,
)
from koord_scheduler.admission.words import AdmissionError, Step, Tree
from koordlet.protocol import keys
from koordlet.protocol.quantity import NANO, Quantity, parse_quantity
from koordlet.protocol.resources import CPU, MEMORY

AMPLIFICATION_RATIO = "node.koordinator.sh/resource-amplification-ratio"
_AMPLIFIED = (CPU, MEMORY)
_MOST_MILLI = 1000 * (2**63 - 1)
"""Kubernetes counts whole units in 64 bits."""


class _Named(msgspec.Struct, frozen=True):
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Status(msgspec.Struct, frozen=True):
    allocatable: dict[str, str | int | float] | None = None


class _Meta(msgspec.Struct, frozen=True):
    metadata: _Named
    spec: dict[str, Any] | None = None
    status: _Status | None = None


def check_object(tree: Any, what: str) -> None:
    """Raises AdmissionError where metadata, spec or allocatable are of another type."""
    try:
        msgspec.convert(tree, _Meta)
    except msgspec.ValidationError as error:
        raise AdmissionError(f"the {what} cannot be read: {error}") from None


@dataclass(frozen=True)
class BindingRules:
    """Who may bind pods to nodes. ``users``: parts of user names; empty: everybody.
    ``namespaces``: where it is enforced, ``*`` everywhere."""

    users: tuple[str, ...] = ()
    namespaces: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset({"kube-system"})
    bypass_labels: frozenset[str] = frozenset({keys.BINDING_ADMISSION_BYPASS.name})
    bypass_annotations: frozenset[str] = frozenset()
    dry_run: bool = False


def binding_refusal(user: str, namespace: str, pod: Tree | None, rules: BindingRules) -> str:
    """Why ``user`` may not bind the pod; empty where it may. ``pod`` None: it cannot be read."""
    if not rules.users or any(part in user for part in rules.users):
        return ""
    enforced = "*" in rules.namespaces or namespace in rules.namespaces
    if namespace in rules.excluded or not enforced or pod is None:
        return ""
    bypassed = rules.bypass_labels & labels_of(pod).keys()
    if bypassed or rules.bypass_annotations & annotations_of(pod).keys():
        return ""
    return f"user {user} may not bind pods of namespace {namespace}"


def mutate_reservation(
    tree: Tree,
    profiles: tuple[Profile, ...],
    priority_classes: Mapping[str, PriorityClassValue],
    draw: Draw,
) -> tuple[Tree, tuple[Step, ...]]:
    """A new Reservation as the profiles make it: labels and annotations are its own, scheduler and
    priority those of its template. Raises AdmissionError."""
    check_object(tree, "Reservation")
    tree = copy.deepcopy(tree)
    steps: list[Step] = []
    for match in matching(profiles, labels_of(tree), {}, by_namespace=False):
        if match.why or not is_drawn(match.profile, draw):
            continue
        template = (tree.get("spec") or {}).get("template")
        if isinstance(template, dict) and not isinstance(template.get("spec"), dict):
            template["spec"] = {}
        holder = template if isinstance(template, dict) else None
        tree = apply_profile(
            tree, match.profile, priority_classes, steps, holder=holder, is_pod=False
        )
        check_object(tree, "Reservation with its patch")
    return tree, tuple(steps)


def mutate_node_status(node: Tree, old: Tree | None) -> tuple[Tree, tuple[Step, ...]]:
    """A node's allocatable, multiplied as its annotation asks; what it was before stands in another
    annotation. ``old`` None: the node is new, and nothing is changed. Raises AdmissionError."""
    check_object(node, "node")
    if old is None:
        return node, ()
    check_object(old, "node as it was")
    node = copy.deepcopy(node)
    steps: list[Step] = []
    raw_key = keys.RAW_ALLOCATABLE.name
    text = annotations_of(node).get(AMPLIFICATION_RATIO)
    if not text:
        before = annotations_of(node).pop(raw_key, None)
        if before is not None:
            steps.append(Step("amplification", f"annotation {raw_key}", before, None))
        return node, tuple(steps)
    ratios = _ratios(text)
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    before_allocatable = (old.get("status") or {}).get("allocatable") or {}
    raw_text = annotations_of(node).get(raw_key)
    changed = any(
        _amount(allocatable, name) != _amount(before_allocatable, name) for name in _AMPLIFIED
    )
    if not raw_text or changed:
        raw: dict[str, str | int | float] = {
            name: str(allocatable[name]) for name in _AMPLIFIED if name in allocatable
        }
        after = json.dumps(raw, sort_keys=True, separators=(",", ":"))
        if after != raw_text:
            set_annotation(node, raw_key, after)
            steps.append(Step("amplification", f"annotation {raw_key}", raw_text, after))
    else:
        raw = _raw(raw_text)
    for name in _AMPLIFIED:
        ratio = ratios.get(name, 0.0)
        given = _amount(raw, name)
        if ratio <= 1 or given is None:
            continue
        milli = given.milli * ratio
        if milli > _MOST_MILLI:
            raise AdmissionError(
                f"annotation {AMPLIFICATION_RATIO}: {name}: {ratio:g} times {given} is more than a"
                " node can offer"
            )
        amplified = str(Quantity(int(milli) * (NANO // 1000), given.format))
        if allocatable.get(name) != amplified:
            steps.append(
                Step("amplification", f"allocatable {name}", str(allocatable.get(name)), amplified)
            )
            allocatable[name] = amplified
    return node, tuple(steps)


def _ratios(text: str) -> dict[str, float]:
    try:
        return msgspec.json.decode(text, type=dict[str, float])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AdmissionError(f"annotation {AMPLIFICATION_RATIO}: {error}") from None


def _raw(text: str) -> dict[str, str | int | float]:
    try:
        return msgspec.json.decode(text, type=dict[str, str | int | float])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AdmissionError(f"annotation {keys.RAW_ALLOCATABLE.name}: {error}") from None


def _amount(amounts: Mapping[str, Any], name: str) -> Quantity | None:
    value = amounts.get(name)
    if value is None:
        return None
    try:
        return parse_quantity(value)
    except (ValueError, TypeError) as error:
        raise AdmissionError(f"{name}: {error}") from None
