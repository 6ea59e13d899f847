"""Answers of each path, in two steps: what must be asked of the cluster first, and what is decided
from that without waiting."""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, Protocol

from koord_scheduler.admission.config_map import data_of, node_conflict, validate_config
from koord_scheduler.admission.others import (
    BindingRules,
    binding_refusal,
    check_object,
    mutate_node_status,
    mutate_reservation,
)
from koord_scheduler.admission.pod_mutation import Facts, mutate_pod, settle_pod
from koord_scheduler.admission.pod_validation import LabelRule, validate_pod
from koord_scheduler.admission.pods import labels_of
from koord_scheduler.admission.profiles import PriorityClassValue, Profile
from koord_scheduler.admission.quota_admission import (
    mutate_quota,
    validate_changed_quota,
    validate_deleted_quota,
    validate_new_quota,
)
from koord_scheduler.admission.quotas import QuotaProfile, Quotas, quota_from
from koord_scheduler.admission.words import Gates, Step, Tree
from koord_scheduler.webhook.review import ALLOWED, Answer, Request

_AUDIT_CHARACTERS = 1000


class World(Protocol):
    """What admission asks of the cluster. Methods that wait raise KubeError."""

    def profiles(self) -> tuple[Profile, ...]: ...
    def priority_classes(self) -> Mapping[str, PriorityClassValue]: ...
    def quotas(self) -> Quotas: ...
    def quota_profiles(self) -> tuple[QuotaProfile, ...]: ...
    def nodes(self) -> Mapping[str, Mapping[str, str]]: ...
    def config(self) -> Mapping[str, str]: ...
    def label_rules(self) -> tuple[LabelRule, ...]: ...
    async def namespace_labels(self, name: str) -> Mapping[str, str]: ...
    async def pod(self, namespace: str, name: str) -> Tree | None: ...
    async def has_pods(self, quota: str, namespaces: tuple[str, ...]) -> bool: ...


class Settings(NamedTuple):
    gates: Gates = Gates()
    binding: BindingRules = BindingRules()
    config_namespace: str = "koordinator-system"
    config_name: str = "slo-controller-config"
    names_needed: bool = False
    """Whether node entries of the ConfigMap need names."""


class Ready(NamedTuple):
    """All that a decision needs is known. ``decide`` raises AdmissionError. ``long``: it may take
    long, however small the request is."""

    decide: Callable[[], Answer]
    long: bool = False


Handler = Callable[[Request, World, Settings], Awaitable[Ready]]
_ALLOWED = Ready(lambda: ALLOWED)


async def _mutate_pod(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource or request.operation != "CREATE":
        return _ALLOWED
    facts = await _facts(request, world)

    def decide() -> Answer:
        pod = request.tree
        made = mutate_pod(pod, request.namespace, facts, settings.gates, random.random)
        return Answer(original=pod, changed=made.pod, audit=_audit(made.steps))

    return Ready(decide)


async def _settle_pod(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource or request.operation != "CREATE":
        return _ALLOWED
    facts = await _facts(request, world)

    def decide() -> Answer:
        pod = request.tree
        changed, steps = settle_pod(pod, facts, settings.gates)
        return Answer(original=pod, changed=changed, audit=_audit(steps))

    return Ready(decide)


async def _facts(request: Request, world: World) -> Facts:
    return Facts(
        profiles=world.profiles(),
        namespace_labels=await world.namespace_labels(request.namespace),
        priority_classes=world.priority_classes(),
        quotas=world.quotas(),
        quota_profiles=world.quota_profiles(),
    )


async def _validate_pod(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
        return _ALLOWED
    quotas, gates = world.quotas(), settings.gates
    rules = world.label_rules() if gates.enable_pod_enhanced_validator else ()

    def decide() -> Answer:
        old = request.old_tree if request.operation == "UPDATE" else None
        validate_pod(request.tree, old, request.namespace, quotas, gates, rules)
        return ALLOWED

    return Ready(decide)


async def _validate_binding(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource != "binding" or not settings.gates.binding_admission_webhook:
        return _ALLOWED
    user, namespace = request.user_info.username, request.namespace
    # The pod is asked for only where it can matter.
    if not binding_refusal(user, namespace, {"metadata": {}}, settings.binding):
        return _ALLOWED
    pod = await world.pod(namespace, request.name)
    why = binding_refusal(user, namespace, pod, settings.binding)
    if not why or settings.binding.dry_run:
        return _answer(ALLOWED if not why else Answer(warnings=(f"{why} (dry run)",)))
    return _answer(Answer(refusal=why, code=403))


async def _mutate_reservation(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource or request.operation != "CREATE":
        return _ALLOWED
    profiles, classes = world.profiles(), world.priority_classes()

    def decide() -> Answer:
        tree = request.tree
        changed, steps = mutate_reservation(tree, profiles, classes, random.random)
        return Answer(original=tree, changed=changed, audit=_audit(steps))

    return Ready(decide)


async def _mutate_quota(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource or request.operation != "CREATE":
        return _ALLOWED
    quotas = world.quotas()

    def decide() -> Answer:
        tree = request.tree
        changed, _ = mutate_quota(tree, quotas)
        return Answer(original=tree, changed=changed)

    return Ready(decide)


async def _validate_quota(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource:
        return _ALLOWED
    quotas, gates = world.quotas(), settings.gates

    def decide(has_pods: bool) -> Answer:
        old = request.old_tree
        if request.operation == "CREATE":
            validate_new_quota(request.tree, quotas, gates)
        elif request.operation == "UPDATE" and old is not None:
            validate_changed_quota(request.tree, old, quotas, gates, lambda _: has_pods)
        elif request.operation == "DELETE" and old is not None:
            validate_deleted_quota(old, quotas, lambda _: has_pods)
        return ALLOWED

    # No tree is kept while the API server is asked.
    asked = _asked_of_pods(request)
    has_pods = await world.has_pods(*asked) if asked is not None else False
    return Ready(functools.partial(decide, has_pods))


def _asked_of_pods(request: Request) -> tuple[str, tuple[str, ...]] | None:
    """Return of which quota and which namespaces it matters whether there are pods."""
    old = request.old_tree if request.operation in ("UPDATE", "DELETE") else None
    if old is None:
        return None
    before = quota_from(old)
    if request.operation == "DELETE":
        return before.name, ()
    if quota_from(request.tree).is_parent and not before.is_parent:
        # Pods without a label belong to the quota that has the name of their namespace.
        return before.name, (before.name, *before.namespaces)
    return None


async def _mutate_node_status(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource != "status" or request.operation != "UPDATE":
        return _ALLOWED

    def decide() -> Answer:
        node = request.tree
        changed, steps = mutate_node_status(node, request.old_tree)
        return Answer(original=node, changed=changed, audit=_audit(steps))

    return Ready(decide)


async def _validate_node(request: Request, world: World, settings: Settings) -> Ready:
    if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
        return _ALLOWED
    config = world.config()

    def decide() -> Answer:
        node, old = request.tree, request.old_tree
        check_object(node, "node")
        if old is not None:
            check_object(old, "node as it was")
            if labels_of(old) == labels_of(node):
                return ALLOWED
        why = node_conflict(labels_of(node), config)
        # A new node must not be kept away: it may be the only one. Its admin is told.
        if why and request.operation == "CREATE":
            return Answer(warnings=(why,))
        return Answer(refusal=why, code=400) if why else ALLOWED

    return Ready(decide, long=True)


async def _validate_config_map(request: Request, world: World, settings: Settings) -> Ready:
    place = (settings.config_namespace, settings.config_name)
    if request.operation not in ("CREATE", "UPDATE") or request.sub_resource:
        return _ALLOWED
    nodes = world.nodes()

    def decide() -> Answer:
        tree = request.tree
        name = request.name or str((tree.get("metadata") or {}).get("name", ""))
        if (request.namespace, name) != place:
            return ALLOWED
        old = request.old_tree
        verdict = validate_config(
            data_of(tree),
            None if old is None else data_of(old),
            nodes,
            names_needed=settings.names_needed,
        )
        return Answer(warnings=verdict.warnings)

    return Ready(decide, long=True)


HANDLERS: dict[str, Handler] = {
    "/mutate-pod": _mutate_pod,
    "/settle-pod": _settle_pod,
    "/validate-pod": _validate_pod,
    "/validate-pod-binding": _validate_binding,
    "/mutate-reservation": _mutate_reservation,
    "/mutate-scheduling-sigs-k8s-io-v1alpha1-elasticquota": _mutate_quota,
    "/validate-scheduling-sigs-k8s-io-v1alpha1-elasticquota": _validate_quota,
    "/mutate-node-status": _mutate_node_status,
    "/validate-node": _validate_node,
    "/validate-configmap": _validate_config_map,
}


def _audit(steps: tuple[Step, ...]) -> dict[str, str]:
    """Who changed it, for the audit log."""
    names = ", ".join(dict.fromkeys(each.by for each in steps))
    return {"changed-by": names[:_AUDIT_CHARACTERS]} if names else {}


def _answer(answer: Answer) -> Ready:
    return Ready(lambda: answer)
