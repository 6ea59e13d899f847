"""What admission watches and writes, and where it is."""

from __future__ import annotations

from typing import Any

import msgspec

from koord_scheduler.admission.profiles import PriorityClassValue, Profile
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.colocation_profile import ClusterColocationProfileSpec


class ColocationProfile(Object, frozen=True):
    spec: ClusterColocationProfileSpec = ClusterColocationProfileSpec()

    @property
    def profile(self) -> Profile:
        meta = self.metadata
        return Profile(meta.name, self.spec, meta.labels, meta.annotations)


class PriorityClass(Object, frozen=True):
    value: int = 0
    preemption_policy: str = ""

    @property
    def facts(self) -> PriorityClassValue:
        return PriorityClassValue(self.value, self.preemption_policy)


class Secret(Object, frozen=True):
    data: dict[str, str] = msgspec.field(default_factory=dict)


class Configuration(Object, frozen=True):
    """Of webhooks."""

    webhooks: list[dict[str, Any]] = msgspec.field(default_factory=list)


PROFILES = Kind(
    "config.koordinator.sh",
    "v1alpha1",
    "ClusterColocationProfile",
    "clustercolocationprofiles",
    False,
    ColocationProfile,
)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", False, Object)
PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, PriorityClass
)
SECRETS = Kind("", "v1", "Secret", "secrets", True, Secret)
_ADMISSION = ("admissionregistration.k8s.io", "v1")
MUTATING = Kind(
    *_ADMISSION,
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
    False,
    Configuration,
)
VALIDATING = Kind(
    *_ADMISSION,
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
    False,
    Configuration,
)
