"""The API server as a switch sees it, at one instant."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from koord_scheduler.cli.switching.names import (
    AGENT,
    APPS,
    CERTIFICATES,
    LEASES,
    MANAGER,
    NAMESPACE,
    OUR_LABEL,
    OURS,
    PARKED,
    PARKED_VALUE,
    RECORD,
    SERVICE,
    THEIR_LABEL,
)
from koord_scheduler.kube.trees import Ref, Tree, read, read_list
from koordlet.kube.client import Client

APP_OF = {role: app for app, role in APPS.items()}
MUTATING = "koordinator-mutating-webhook-configuration"
VALIDATING = "koordinator-validating-webhook-configuration"
_ADMISSION = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True)
class Look:
    """``theirs`` and ``ours``: workloads by role. ``pods``: of both, in the namespace. ``holders``:
    of the leases, by role. ``record``: objects of theirs as they were, by role. ``service``,
    ``slices``: where the API server finds webhooks. ``parked``: nodes that wait for the change.
    ``found``: other objects that were asked for."""

    theirs: Mapping[str, Tree] = field(default_factory=dict)
    ours: Mapping[str, Tree] = field(default_factory=dict)
    pods: tuple[Tree, ...] = ()
    holders: Mapping[str, str] = field(default_factory=dict)
    record: Mapping[str, Tree] | None = None
    service: Tree | None = None
    slices: tuple[Tree, ...] = ()
    secret: Tree | None = None
    webhooks: tuple[Tree, ...] = ()
    parked: frozenset[str] = frozenset()
    found: Mapping[Ref, Tree] = field(default_factory=dict)
    elsewhere: tuple[str, ...] = ()
    """Workloads of theirs in other namespaces."""
    doubled: tuple[str, ...] = ()
    """Names of further workloads of a role."""

    def pods_of(self, key: str, value: str) -> list[Tree]:
        return [e for e in self.pods if (e["metadata"].get("labels") or {}).get(key) == value]

    def their_pods(self, role: str) -> list[Tree]:
        return self.pods_of(THEIR_LABEL, APP_OF[role])

    def our_pods(self, role: str) -> list[Tree]:
        return self.pods_of(OUR_LABEL, APP_OF[role])


def place(kind: str, name: str) -> Ref:
    """A namespaced object of the switch."""
    version = {
        "Deployment": "apps/v1",
        "DaemonSet": "apps/v1",
        "Lease": "coordination.k8s.io/v1",
        "EndpointSlice": "discovery.k8s.io/v1",
    }.get(kind, "v1")
    return Ref(version, kind, name, NAMESPACE)


def workload(role: str, name: str) -> Ref:
    return place("DaemonSet" if role == AGENT else "Deployment", name)


def service_of(seen: Look) -> str:
    """Name of the Service that webhooks of the API server call."""
    for client in clients_of(seen):
        service = client.get("service") or {}
        if service.get("namespace", NAMESPACE) == NAMESPACE and service.get("name"):
            return str(service["name"])
    return SERVICE


def clients_of(seen: Look) -> list[Tree]:
    """Where the API server asks, of each webhook."""
    hooks = [hook for each in seen.webhooks for hook in each.get("webhooks") or ()]
    return [hook.get("clientConfig") or {} for hook in hooks]


async def look(client: Client, roles: Iterable[str], others: Iterable[Ref] = ()) -> Look:
    """Raises KubeError."""
    theirs: dict[str, Tree] = {}
    ours: dict[str, Tree] = {}
    elsewhere, doubled = [], []
    wanted = tuple(roles)
    for kind in ("DaemonSet", "Deployment"):
        everywhere = Ref("apps/v1", kind, "", "")
        for each in await read_list(client, everywhere, THEIR_LABEL):
            role = APPS.get(_app(each), "")
            if (kind == "DaemonSet") is not (role == AGENT) or role not in wanted:
                continue
            each["kind"], each["apiVersion"] = kind, "apps/v1"
            if each["metadata"]["namespace"] != NAMESPACE:
                elsewhere.append(f"{each['metadata']['namespace']}/{each['metadata']['name']}")
            elif role in theirs:
                doubled.append(f"{kind} {each['metadata']['name']}")
            else:
                theirs[role] = each
    holders, pods = {}, []
    for role in wanted:
        found = await read(client, workload(role, OURS[role]))
        if found is not None:
            ours[role] = found
        for selector in (f"{THEIR_LABEL}={APP_OF[role]}", f"{OUR_LABEL}={APP_OF[role]}"):
            pods += await read_list(client, place("Pod", ""), selector)
        if role in LEASES:
            lease = await read(client, place("Lease", LEASES[role]))
            holders[role] = str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")
    extra: dict[str, Any] = {}
    if MANAGER in wanted:
        extra = await _admission(client)
    if AGENT in wanted:
        nodes = await read_list(client, Ref("v1", "Node", ""), f"{PARKED}={PARKED_VALUE}")
        extra["parked"] = frozenset(each["metadata"]["name"] for each in nodes)
    seen = {ref: await read(client, ref) for ref in others}
    return Look(
        theirs,
        ours,
        tuple(pods),
        holders,
        _record(await read(client, place("ConfigMap", RECORD))),
        found={ref: each for ref, each in seen.items() if each is not None},
        elsewhere=tuple(elsewhere),
        doubled=tuple(doubled),
        **extra,
    )


async def _admission(client: Client) -> dict[str, Any]:
    refs = (
        Ref(_ADMISSION, "MutatingWebhookConfiguration", MUTATING),
        Ref(_ADMISSION, "ValidatingWebhookConfiguration", VALIDATING),
    )
    webhooks = [await read(client, each) for each in refs]
    name = service_of(Look(webhooks=tuple(each for each in webhooks if each is not None)))
    of = f"kubernetes.io/service-name={name}"
    for each, ref in zip(webhooks, refs, strict=True):
        if each is not None:
            each["kind"], each["apiVersion"] = ref.kind, ref.api_version
    return {
        "service": await read(client, place("Service", name)),
        "slices": tuple(await read_list(client, place("EndpointSlice", ""), of)),
        "secret": await read(client, place("Secret", CERTIFICATES)),
        "webhooks": tuple(each for each in webhooks if each is not None),
    }


def _app(tree: Tree) -> str:
    template = tree["spec"]["template"]["metadata"].get("labels") or {}
    return str(template.get(THEIR_LABEL, ""))


def _record(tree: Tree | None) -> dict[str, Tree] | None:
    """None where there is no record. What a person has broken in it is as if it were not there."""
    if tree is None:
        return None
    found = {}
    for role, text in (tree.get("data") or {}).items():
        try:
            found[role] = json.loads(text)
        except (ValueError, RecursionError):
            continue
    return {role: each for role, each in found.items() if _is_record(each)}


def _is_record(tree: Any) -> bool:
    try:
        workload = tree["workload"]
        spec = workload["spec"]["template"]["spec"]
        named = f"{workload['kind']} {workload['metadata']['name']}"
        return bool(spec["containers"][0]) and named.startswith(("Deployment ", "DaemonSet "))
    except (KeyError, IndexError, TypeError):
        return False
