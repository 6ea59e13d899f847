"""Elastic quotas, and profiles that make the root of a tree of quotas out of nodes
(docs/reference/protocol.md 2.9, 4.8)."""

from __future__ import annotations

import msgspec

from koordlet.protocol.objects.node_metric import QuantityText
from koordlet.protocol.selector import LabelSelector
from koordlet.protocol.slo import Section

PREFIX = "quota.scheduling.koordinator.sh/"
PARENT = f"{PREFIX}parent"
IS_PARENT = f"{PREFIX}is-parent"
IS_ROOT = f"{PREFIX}is-root"
PROFILE = f"{PREFIX}profile"
TREE_ID = f"{PREFIX}tree-id"
IGNORE_DEFAULT_TREE = f"{PREFIX}ignore-default-tree"
ALLOW_LENT = f"{PREFIX}allow-lent-resource"
ALLOW_FORCE_UPDATE = f"{PREFIX}allow-force-update"
RESOURCE_KEYS = f"{PREFIX}resource-keys"
TOTAL_RESOURCE = f"{PREFIX}total-resource"
UNSCHEDULABLE_RESOURCE = f"{PREFIX}unschedulable-resource"
SHARED_WEIGHT = f"{PREFIX}shared-weight"
NAMESPACES = f"{PREFIX}namespaces"
ADMISSION = f"{PREFIX}admission"
STRICT_KEYS = f"{PREFIX}max-strict-check-resource-keys"
RUNTIME = f"{PREFIX}runtime"
REQUEST = f"{PREFIX}request"
CHILD_REQUEST = f"{PREFIX}child-request"
GUARANTEED = f"{PREFIX}guaranteed"
ALLOCATED = f"{PREFIX}allocated"
NON_PREEMPTIBLE_REQUEST = f"{PREFIX}non-preemptible-request"
NON_PREEMPTIBLE_USED = f"{PREFIX}non-preemptible-used"

ROOT = "koordinator-root-quota"
SYSTEM = "koordinator-system-quota"
DEFAULT = "koordinator-default-quota"
BUILT_IN = frozenset({ROOT, SYSTEM, DEFAULT})


class ElasticQuotaSpec(Section, frozen=True):
    """``min`` is guaranteed, ``max`` the ceiling."""

    min: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    """Amounts that are guaranteed to the group."""
    max: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    """Amounts that the group never exceeds."""


class ElasticQuotaStatus(Section, frozen=True):
    used: dict[str, QuantityText] = msgspec.field(default_factory=dict)
    """Amounts that pods of the group use."""


class ElasticQuotaProfileSpec(Section, frozen=True):
    """``quota_name``: the quota that is made, in the profile's namespace. ``resource_ratio``: the
    share of the nodes' allocatable that the quota gets, as text."""

    quota_name: str
    """Quota that is made, in this namespace."""
    node_selector: LabelSelector
    """Nodes that it is made of, by their labels."""
    quota_labels: dict[str, str] | None = None
    """Labels that the quota gets."""
    resource_ratio: str | None = None
    """Share of their allocatable that it gets: above 0, at most 1."""
