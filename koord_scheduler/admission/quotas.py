"""ElasticQuotas as admission sees them: a forest by name, and which quota a pod is charged to
(docs/reference/protocol.md 2.9)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.admission.pods import annotations_of, labels_of
from koord_scheduler.admission.words import AdmissionError, Tree
from koordlet.protocol import keys
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.quota import (
    ALLOW_FORCE_UPDATE,
    DEFAULT,
    IS_PARENT,
    IS_ROOT,
    NAMESPACES,
    PARENT,
    ROOT,
    TREE_ID,
)
from koordlet.protocol.quantity import Quantity, parse_quantity
from koordlet.protocol.selector import LabelSelector

Amounts = Mapping[str, Quantity]
_MOST_CHARACTERS = 64 << 10
"""Of an annotation of a quota: thousands of namespaces."""


class _Metadata(msgspec.Struct, frozen=True):
    name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


_List = dict[str, str | int | float]


class _Spec(msgspec.Struct, frozen=True):
    min: _List | None = None
    max: _List | None = None


class _Status(msgspec.Struct, frozen=True):
    used: _List | None = None


class _Tree(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec | None = None
    status: _Status | None = None


@dataclass(frozen=True)
class Quota:
    """``at_least``, ``at_most``: ``spec.min`` and ``spec.max``."""

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    at_least: Amounts = field(default_factory=dict)
    at_most: Amounts = field(default_factory=dict)
    used: Amounts = field(default_factory=dict)

    @property
    def parent(self) -> str:
        """Its parent; the root alone has none."""
        return self.labels.get(PARENT) or ("" if self.name == ROOT else ROOT)

    @property
    def is_parent(self) -> bool:
        return self.labels.get(IS_PARENT) == "true"

    @property
    def is_root(self) -> bool:
        """Of a tree."""
        return self.labels.get(IS_ROOT) == "true"

    @property
    def tree_id(self) -> str:
        return self.labels.get(TREE_ID, "")

    @property
    def may_force(self) -> bool:
        return self.labels.get(ALLOW_FORCE_UPDATE) == "true"

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """Whose pods without a label are charged to it. What cannot be read is none."""
        try:
            return tuple(names_in(self.annotations, NAMESPACES))
        except AdmissionError:
            return ()


class QuotaProfile(NamedTuple):
    """``node_selector`` None: it has none."""

    name: str
    tree_id: str
    node_selector: LabelSelector | None


@dataclass(frozen=True)
class Quotas:
    """All of them. Names should be unique; where they are not, the first in order of namespace
    counts."""

    all: tuple[Quota, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Quota]:
        found: dict[str, Quota] = {}
        for quota in sorted(self.all, key=lambda each: (each.name, each.namespace)):
            found.setdefault(quota.name, quota)
        return found

    @cached_property
    def _by_namespace(self) -> dict[str, Quota]:
        found: dict[str, Quota] = {}
        for quota in self.by_name.values():
            for namespace in quota.namespaces:
                found.setdefault(namespace, quota)
        return found

    @cached_property
    def _children(self) -> dict[str, list[Quota]]:
        found: dict[str, list[Quota]] = {}
        for quota in self.by_name.values():
            found.setdefault(quota.parent, []).append(quota)
        return found

    def children(self, name: str) -> list[Quota]:
        return self._children.get(name, [])

    def of_namespace(self, namespace: str) -> Quota | None:
        """That which lists the namespace."""
        return self._by_namespace.get(namespace)

    def name_for(self, pod: Tree, namespace: str, *, label_alone: bool = False) -> str:
        """Of the quota that a pod is charged to. ``label_alone``: as gate DisableDefaultQuota has
        it; empty where the pod has no label."""
        label = labels_of(pod).get(keys.QUOTA_NAME.name, "")
        if label or label_alone:
            return label
        if any(each.name == namespace and each.namespace == namespace for each in self.all):
            return namespace
        listing = self.of_namespace(namespace)
        return listing.name if listing is not None else DEFAULT


def quota_from(tree: Any) -> Quota:
    """Raises AdmissionError for what cannot be read."""
    try:
        shape = msgspec.convert(tree, _Tree)
    except msgspec.ValidationError as error:
        raise AdmissionError(f"the quota cannot be read: {error}") from None
    meta = shape.metadata
    spec = shape.spec or _Spec()
    return Quota(
        meta.name or "",
        meta.namespace or "",
        labels_of(tree),
        annotations_of(tree),
        amounts(spec.min or {}, "spec.min"),
        amounts(spec.max or {}, "spec.max"),
        amounts((shape.status.used or {}) if shape.status else {}, "status.used"),
    )


def amounts(given: Mapping[str, str | int | float], where: str) -> dict[str, Quantity]:
    """Raises AdmissionError."""
    found = {}
    for name, value in given.items():
        try:
            found[name] = parse_quantity(value)
        except ProtocolError as error:
            raise AdmissionError(f"{where}.{name}: {error}") from None
    return found


def amounts_in(annotations: Mapping[str, str], key: str) -> dict[str, Quantity] | None:
    """Return None where the annotation is missing or empty. Raises AdmissionError."""
    given = _decoded(annotations, key, _List)
    return None if given is None else amounts(given, f"annotation {key}")


def names_in(annotations: Mapping[str, str], key: str) -> list[str]:
    """Of an annotation that lists them. Raises AdmissionError."""
    return _decoded(annotations, key, list[str]) or []


def _decoded(annotations: Mapping[str, str], key: str, shape: Any) -> Any:
    text = annotations.get(key)
    if not text:
        return None
    if len(text) > _MOST_CHARACTERS:
        raise AdmissionError(f"annotation {key}: more than {_MOST_CHARACTERS} characters")
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise AdmissionError(f"annotation {key}: {error}") from None


def summed(lists: Iterable[Amounts]) -> dict[str, Quantity]:
    total: dict[str, int] = {}
    for each in lists:
        for name, amount in each.items():
            total[name] = total.get(name, 0) + amount.nano
    return {name: Quantity(nano) for name, nano in total.items()}


def exceeding(amount: Amounts, limit: Amounts) -> str:
    """The first resource of which ``amount`` has more than ``limit``, in words; empty where there
    is none. What ``limit`` does not name is unlimited."""
    for name in sorted(amount.keys() & limit.keys()):
        if amount[name] > limit[name]:
            return f"{name}: {amount[name]} is more than {limit[name]}"
    return ""
