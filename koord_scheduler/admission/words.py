"""The words of this room: trees of objects, what a step changed, and refusals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

Tree = dict[str, Any]
"""An object as the API server sends it. Admission changes a copy of it, so that fields which nobody
here knows stay as they are."""


class AdmissionError(Exception):
    """The request cannot be allowed. ``code`` is that of the answer: 400 where the object is at
    fault, 500 where something of the cluster is (a profile, a class that is missing)."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class Step(NamedTuple):
    """One change, for whoever asks why. ``by`` names the profile or the rule."""

    by: str
    where: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Gates:
    """Feature gates of a process with their defaults (docs/reference/protocol.md 6.1, central.md
    4.1). Some count in the scheduler alone, or there too."""

    pod_mutating_webhook: bool = True
    pod_validating_webhook: bool = True
    binding_admission_webhook: bool = False
    reservation_mutating_webhook: bool = False
    elastic_mutating_webhook: bool = True
    elastic_validating_webhook: bool = True
    node_mutating_webhook: bool = False
    node_validating_webhook: bool = False
    config_map_validating_webhook: bool = False
    colocation_profile_controller: bool = False
    colocation_profile_skip_mutating_resources: bool = False
    colocation_profile_skip_validating_priority: bool = False
    multi_quota_tree: bool = False
    disable_extended_resource_spec: bool = False
    disable_device_resource_spec: bool = False
    validate_pod_device_resource: bool = False
    enable_pod_enhanced_validator: bool = False
    enable_quota_admission: bool = False
    enable_quota_admission_on_update: bool = False
    elastic_quota_guarantee_usage: bool = False
    elastic_quota_enable_update_resource_key: bool = False
    elastic_quota_evaluation_transform_pod: bool = False
    elastic_quota_ignore_pod_overhead: bool = False
    elastic_quota_ignore_terminating_pod: bool = False
    elastic_quota_immediate_ignore_terminating_pod: bool = False
    disable_default_quota: bool = False
    support_parent_quota_submit_pod: bool = False


def gate_name(field: str) -> str:
    """``node_mutating_webhook`` -> ``NodeMutatingWebhook``, as the flag spells it."""
    return "".join(part.capitalize() for part in field.split("_"))


GATE_FIELDS: dict[str, str] = {gate_name(each.name): each.name for each in fields(Gates)}


def switched(text: str, known: Iterable[str]) -> dict[str, bool]:
    """Read ``NodeMutatingWebhook=true,MultiQuotaTree=false``. Raises ValueError for what is not
    ``known``."""
    names = sorted(known)
    given: dict[str, bool] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, _, value = pair.partition("=")
        if name not in names:
            raise ValueError(f"{name}: no such gate; there are {', '.join(names)}")
        if value not in ("true", "false"):
            raise ValueError(f"{name}: must be true or false, is {value!r}")
        given[name] = value == "true"
    return given


def gates_from(text: str) -> Gates:
    """Raises ValueError."""
    return Gates(**{GATE_FIELDS[name]: on for name, on in switched(text, GATE_FIELDS).items()})
