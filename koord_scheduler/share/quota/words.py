"""Quotas as the scheduler counts them, read from labels, annotations and spec of an ElasticQuota
(docs/reference/central.md 4.1, 4.2).

CPU is in milli-cores, everything else in whole units. Amounts are integers without bound: a quota
of a whole tree has a maximum near that of 64 bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from koord_scheduler.model.amounts import Text, amount_of
from koord_scheduler.model.cluster.arguments import Args, ArgumentError
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.quota import (
    ALLOW_LENT,
    IGNORE_DEFAULT_TREE,
    IS_PARENT,
    IS_ROOT,
    NAMESPACES,
    PARENT,
    ROOT,
    SHARED_WEIGHT,
    TOTAL_RESOURCE,
    TREE_ID,
    UNSCHEDULABLE_RESOURCE,
)
from koordlet.protocol.quantity import NANO, Format, Quantity, parse_quantity
from koordlet.protocol.resources import CPU, MEMORY

NAME = "ElasticQuota"
Amounts = Mapping[str, int]
NOTHING: Amounts = {}
_MOST_CHARACTERS = 64 << 10
"""Of an annotation of a quota: thousands of namespaces."""
_MOST_RESOURCES = 64
_List = dict[str, str | int | float]
_FIFTH: _List = dict.fromkeys((CPU, MEMORY), str((2**63 - 1) // 5))
_lists = msgspec.json.Decoder(_List)
_names = msgspec.json.Decoder(list[str])


class ElasticQuotaArgs(Args, frozen=True):
    """Spec/central.md 4.1."""

    delay_evict_time: str = "120s"
    revoke_pod_interval: str = "1s"
    default_quota_group_max: _List = msgspec.field(default_factory=lambda: dict(_FIFTH))
    system_quota_group_max: _List = msgspec.field(default_factory=lambda: dict(_FIFTH))
    quota_group_namespace: str = "koordinator-system"
    monitor_all_quotas: bool = False
    enable_check_parent_quota: bool = False
    enable_runtime_quota: bool = True
    enable_min_quota_scale: bool = True
    disable_default_quota_preemption: bool = True
    enable_queue_hint: bool = False
    quota_snapshot_update_interval: str = "120s"
    hook_plugins: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        for name in ("delay_evict_time", "revoke_pod_interval", "quota_snapshot_update_interval"):
            try:
                parse_duration(getattr(self, name))
            except ProtocolError as error:
                raise ValueError(f"{name}: {error}") from None
        for name in ("default_quota_group_max", "system_quota_group_max"):
            for resource, text in getattr(self, name).items():
                if parse_quantity(text).milli < 0:
                    raise ValueError(f"{name}.{resource}: {text} must be at least 0")
        if self.hook_plugins:
            raise ValueError("hookPlugins: there are none here; leave it out")

    @property
    def delay_evict_s(self) -> float:
        return parse_duration(self.delay_evict_time)

    @property
    def revoke_pod_interval_s(self) -> float:
        return parse_duration(self.revoke_pod_interval)


@dataclass(frozen=True)
class QuotaGates:
    """Feature gates with their defaults (docs/reference/central.md 4.1)."""

    multi_quota_tree: bool = False
    ignore_pod_overhead: bool = False
    ignore_terminating_pod: bool = False
    immediate_ignore_terminating_pod: bool = False
    guarantee_usage: bool = False
    disable_default_quota: bool = False
    support_parent_quota_submit_pod: bool = False


GATE_FIELDS: Mapping[str, str] = {
    "MultiQuotaTree": "multi_quota_tree",
    "ElasticQuotaIgnorePodOverhead": "ignore_pod_overhead",
    "ElasticQuotaIgnoreTerminatingPod": "ignore_terminating_pod",
    "ElasticQuotaImmediateIgnoreTerminatingPod": "immediate_ignore_terminating_pod",
    "ElasticQuotaGuaranteeUsage": "guarantee_usage",
    "DisableDefaultQuota": "disable_default_quota",
    "SupportParentQuotaSubmitPod": "support_parent_quota_submit_pod",
}


def quota_gates(switched: Mapping[str, bool]) -> QuotaGates:
    """Of gates by the names that the flag has; those of others are passed over."""
    return QuotaGates(
        **{GATE_FIELDS[name]: on for name, on in switched.items() if name in GATE_FIELDS}
    )


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """One ElasticQuota, as far as a person or a profile decides it: figures that the scheduler
    writes to it are not part of it, so that they change nothing here.

    ``weight`` has a value for each resource of ``max``. ``total``: of the nodes of a tree, on its
    root; ``unschedulable``: the part of it that is on nodes which take no pods. ``scalable``: its
    ``min`` shrinks where the parent has too little (4.5).
    """

    name: str
    namespace: str = ""
    parent: str = ROOT
    is_parent: bool = False
    lends: bool = True
    tree: str = ""
    is_root: bool = False
    ignores_default_tree: bool = False
    min: Amounts = {}
    max: Amounts = {}
    weight: Amounts = {}
    total: Amounts = {}
    unschedulable: Amounts = {}
    namespaces: tuple[str, ...] = ()
    scalable: bool = True


def read_quota(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    least: Mapping[str, Text],
    most: Mapping[str, Text],
) -> Quota:
    """``least`` and ``most``: ``spec.min`` and ``spec.max``. What cannot be read counts as absent:
    admission has refused it already, where it is switched on."""
    top = amounts_of(most)
    weight = _list(annotations, SHARED_WEIGHT)
    if not any(each > 0 for each in weight.values()) or any(v < 0 for v in weight.values()):
        weight = {}
    return Quota(
        name=name,
        namespace=namespace,
        parent=labels.get(PARENT) or ROOT,
        is_parent=labels.get(IS_PARENT) == "true",
        lends=labels.get(ALLOW_LENT) != "false",
        tree=labels.get(TREE_ID, ""),
        is_root=labels.get(IS_ROOT) == "true",
        ignores_default_tree=labels.get(IGNORE_DEFAULT_TREE) == "true",
        min=amounts_of(least),
        max=top,
        weight={key: weight.get(key, value) for key, value in top.items()},
        total=_list(annotations, TOTAL_RESOURCE),
        unschedulable=_list(annotations, UNSCHEDULABLE_RESOURCE),
        namespaces=_namespaces(annotations.get(NAMESPACES)),
    )


def amounts_of(given: Mapping[str, Text]) -> dict[str, int]:
    """Negative ones are 0, and what is no quantity is left out."""
    found: dict[str, int] = {}
    for name, text in given.items():
        amount = amount_of(text, name)
        if amount is not None and len(found) < _MOST_RESOURCES:
            found[name] = max(amount, 0)
    return found


def quantity_of(name: str, amount: int) -> str:
    """As a quantity of Kubernetes."""
    if name == CPU:
        return str(Quantity(amount * (NANO // 1000)))
    binary = name == MEMORY or name.endswith(("-memory", "-storage"))
    return str(Quantity(amount * NANO, Format.BINARY if binary else Format.DECIMAL))


def quantities_of(amounts: Amounts) -> dict[str, str]:
    return {name: quantity_of(name, amount) for name, amount in sorted(amounts.items())}


def in_words(amounts: Amounts) -> str:
    return ", ".join(f"{name} {text}" for name, text in quantities_of(amounts).items()) or "nothing"


# Arithmetic of lists of resources (docs/reference/central.md 0.1).


def masked(amounts: Amounts, names: Iterable[str]) -> dict[str, int]:
    return {name: amounts[name] for name in names if name in amounts}


def added(one: Amounts, other: Amounts, times: int = 1) -> dict[str, int]:
    """The union of the names."""
    found = dict(one)
    for name, amount in other.items():
        found[name] = found.get(name, 0) + times * amount
    return found


def largest(one: Amounts, other: Amounts) -> dict[str, int]:
    """The union of the names."""
    found = dict(one)
    for name, amount in other.items():
        if amount > found.get(name, amount - 1):
            found[name] = amount
    return found


def capped(amounts: Amounts, most: Amounts) -> dict[str, int]:
    """Names that ``most`` lacks are without limit."""
    return {name: min(amount, most.get(name, amount)) for name, amount in amounts.items()}


def exceeding(amounts: Amounts, limit: Amounts) -> list[str]:
    """Names of which there is more than ``limit`` has. Only names of both count."""
    return sorted(
        name for name, amount in amounts.items() if name in limit and amount > limit[name]
    )


def _list(annotations: Mapping[str, str], key: str) -> dict[str, int]:
    text = annotations.get(key, "")
    if not text or len(text) > _MOST_CHARACTERS:
        return {}
    try:
        given = _lists.decode(text)
    except UNREADABLE:
        return {}
    found = {name: amount_of(each, name) for name, each in given.items()}
    return {name: amount for name, amount in found.items() if amount is not None}


def _namespaces(text: str | None) -> tuple[str, ...]:
    if not text or len(text) > _MOST_CHARACTERS:
        return ()
    try:
        return tuple(dict.fromkeys(_names.decode(text)))
    except UNREADABLE:
        return ()


def built_in_amounts(given: Mapping[str, Text], where: str) -> dict[str, int]:
    """Of an argument. Raises ArgumentError."""
    found = amounts_of(given)
    if missing := given.keys() - found.keys():
        raise ArgumentError(f"{NAME}: {where}: {min(missing)} is no quantity")
    return found
