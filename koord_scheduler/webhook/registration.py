"""Which requests the API server asks about, and the objects that tell it so
(docs/reference/protocol.md 6.1).

``WEBHOOKS`` is the one place where they are declared; the configurations, the routes of the server
and the documentation come from it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple

from koord_scheduler.admission.words import Gates
from koordlet.protocol.keys import PRIORITY_CLASS, QOS_CLASS
from koordlet.protocol.qos import PRIORITY_BANDS, PriorityClass

MUTATING_NAME = "koordinator-mutating-webhook-configuration"
VALIDATING_NAME = "koordinator-validating-webhook-configuration"
TIMEOUT_S = 10
_DOMAIN = "webhook.koordinator.sh"
_CONFIG_TYPE = "koordinator.sh/configmap-type"
_NO_CONTROL_PLANE = {"key": "control-plane", "operator": "DoesNotExist"}
_SYSTEM_NAME = "kubernetes.io/metadata.name"


class Webhook(NamedTuple):
    """``name`` is unique. ``gate``: the field of Gates that switches it on. ``resources`` may name
    subresources. ``ignores``: a request goes through where nobody answers. ``labelled``: only
    objects with this label. ``only_if``: where this expression (CEL) holds. ``again``: asked once
    more where somebody has changed the object meanwhile."""

    name: str
    path: str
    gate: str
    mutates: bool
    group: str
    version: str
    resources: tuple[str, ...]
    operations: tuple[str, ...]
    ignores: bool = False
    not_control_plane: bool = False
    labelled: tuple[str, str] | None = None
    only_if: str = ""
    again: bool = False


_PODS = ("", "v1", ("pods",))
_QUOTAS = ("scheduling.sigs.k8s.io", "v1alpha1", ("elasticquotas",))
_QUOTA_PATH = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"
CREATE, UPDATE, DELETE = "CREATE", "UPDATE", "DELETE"
_LOWEST = PRIORITY_BANDS[PriorityClass.BATCH].low
_HIGHEST = PRIORITY_BANDS[PriorityClass.MID].high
_MAYBE_TRANSLATED = (
    f"has(object.metadata.labels) && ('{QOS_CLASS.name}' in object.metadata.labels"
    f" || '{PRIORITY_CLASS.name}' in object.metadata.labels)"
    f" || has(object.spec.priority)"
    f" && object.spec.priority >= {_LOWEST} && object.spec.priority <= {_HIGHEST}"
)
"""Pods that are batch or mid, and some others; the handler looks closer."""

WEBHOOKS: tuple[Webhook, ...] = (
    Webhook(
        "pod-create",
        "/mutate-pod",
        "pod_mutating_webhook",
        True,
        *_PODS,
        (CREATE,),
        not_control_plane=True,
    ),
    Webhook(
        "pod-settle",
        "/settle-pod",
        "pod_mutating_webhook",
        True,
        *_PODS,
        (CREATE,),
        not_control_plane=True,
        only_if=_MAYBE_TRANSLATED,
        again=True,
    ),
    Webhook(
        "pod-update",
        "/mutate-pod",
        "pod_mutating_webhook",
        True,
        *_PODS,
        (UPDATE,),
        not_control_plane=True,
        labelled=("pod.koordinator.sh/mutating-update", "true"),
    ),
    Webhook(
        "pod",
        "/validate-pod",
        "pod_validating_webhook",
        False,
        *_PODS,
        (CREATE, UPDATE),
        not_control_plane=True,
    ),
    Webhook(
        "pod-binding",
        "/validate-pod-binding",
        "binding_admission_webhook",
        False,
        "",
        "v1",
        ("pods/binding",),
        (CREATE,),
        ignores=True,
    ),
    Webhook(
        "reservation",
        "/mutate-reservation",
        "reservation_mutating_webhook",
        True,
        "scheduling.koordinator.sh",
        "v1alpha1",
        ("reservations",),
        (CREATE,),
    ),
    Webhook(
        "elasticquota",
        f"/mutate-{_QUOTA_PATH}",
        "elastic_mutating_webhook",
        True,
        *_QUOTAS,
        (CREATE,),
    ),
    Webhook(
        "elasticquota",
        f"/validate-{_QUOTA_PATH}",
        "elastic_validating_webhook",
        False,
        *_QUOTAS,
        (CREATE, UPDATE, DELETE),
    ),
    Webhook(
        "node-status",
        "/mutate-node-status",
        "node_mutating_webhook",
        True,
        "",
        "v1",
        ("nodes/status",),
        (CREATE, UPDATE),
        ignores=True,
    ),
    Webhook(
        "node",
        "/validate-node",
        "node_validating_webhook",
        False,
        "",
        "v1",
        ("nodes",),
        (CREATE, UPDATE),
        ignores=True,
    ),
    Webhook(
        "configmap",
        "/validate-configmap",
        "config_map_validating_webhook",
        False,
        "",
        "v1",
        ("configmaps",),
        (CREATE, UPDATE, DELETE),
        labelled=(_CONFIG_TYPE, "slo-controller-config"),
    ),
)


class Place(NamedTuple):
    """Where the API server finds the webhooks: at ``url`` where one is given, else at a Service of
    ``namespace``. ``ignores_all``: what nobody answers goes through, whatever it is."""

    namespace: str = "koordinator-system"
    service: str = "koordinator-webhook-service"
    service_port: int = 443
    url: str = ""
    ignores_all: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """That the certificate must have."""
        if self.url:
            host = self.url.removeprefix("https://").partition("/")[0]
            host = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
            return (host.removeprefix("[").removesuffix("]"),)
        within = f"{self.service}.{self.namespace}.svc"
        return (within, f"{within}.cluster.local", f"{self.service}.{self.namespace}")


def configuration(
    gates: Gates, place: Place, authorities: bytes, *, mutating: bool
) -> dict[str, Any]:
    """A MutatingWebhookConfiguration or a ValidatingWebhookConfiguration, with every field that the
    API server would fill in, so that it can be compared with what is there. ``authorities`` empty:
    somebody else says whom to trust."""
    chosen = [each for each in WEBHOOKS if each.mutates is mutating and getattr(gates, each.gate)]
    kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": MUTATING_NAME if mutating else VALIDATING_NAME},
        "webhooks": [_webhook(each, place, authorities) for each in chosen],
    }


def _webhook(each: Webhook, place: Place, authorities: bytes) -> dict[str, Any]:
    client: dict[str, Any] = {}
    if authorities:
        client["caBundle"] = base64.b64encode(authorities).decode()
    if place.url:
        client["url"] = place.url.rstrip("/") + each.path
    else:
        client["service"] = {
            "name": place.service,
            "namespace": place.namespace,
            "path": each.path,
            "port": place.service_port,
        }
    namespaces: dict[str, Any] = {}
    if each.not_control_plane:
        # Our own pods must start while nobody answers yet.
        own = {"key": _SYSTEM_NAME, "operator": "NotIn", "values": [place.namespace]}
        namespaces["matchExpressions"] = [_NO_CONTROL_PLANE, own]
    objects: dict[str, Any] = {}
    if each.labelled is not None:
        key, value = each.labelled
        objects["matchLabels"] = {key: value}
    found: dict[str, Any] = {
        "name": f"{each.name}.{'mutating' if each.mutates else 'validating'}.{_DOMAIN}",
        "clientConfig": client,
        "rules": [
            {
                "operations": list(each.operations),
                "apiGroups": [each.group],
                "apiVersions": [each.version],
                "resources": list(each.resources),
                "scope": "*",
            }
        ],
        "failurePolicy": "Ignore" if each.ignores or place.ignores_all else "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": namespaces,
        "objectSelector": objects,
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
        "admissionReviewVersions": ["v1"],
    }
    if each.only_if:
        found["matchConditions"] = [{"name": each.name, "expression": each.only_if}]
    if each.mutates:
        # A profile appends suffixes: a second call would append them again.
        found["reinvocationPolicy"] = "IfNeeded" if each.again else "Never"
    return found


def same(found: Iterable[dict[str, Any]], wanted: list[dict[str, Any]], *, trust: bool) -> bool:
    """Whether webhooks that are there say what they should. ``trust`` False: whom to trust is not
    compared, because somebody else writes it."""
    return [_compared(each, trust) for each in found] == [_compared(each, trust) for each in wanted]


def _compared(webhook: dict[str, Any], trust: bool) -> dict[str, Any]:
    if trust:
        return webhook
    client = {k: v for k, v in webhook.get("clientConfig", {}).items() if k != "caBundle"}
    return {**webhook, "clientConfig": client}
