"""The root quota of a tree, made of the nodes that a profile selects
(docs/reference/central.md 11)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from koordlet.protocol.document import parse_json
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.quota import (
    IS_ROOT,
    PROFILE,
    RESOURCE_KEYS,
    TOTAL_RESOURCE,
    TREE_ID,
    UNSCHEDULABLE_RESOURCE,
    ElasticQuotaProfileSpec,
    ElasticQuotaSpec,
)
from koordlet.protocol.quantity import NANO, Format, Quantity
from koordlet.protocol.resources import CPU, MEMORY
from koordlet.protocol.selector import matches, selector_problems

CEILING = (2**63 - 1) // 2000
"""No quota of a tree's root has another maximum."""
MOST_KEYS = 64
_MILLI = NANO // 1000
_FNV_OFFSET, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3

Amounts = Mapping[str, Quantity]


class NodeShare(NamedTuple):
    """``usable``: ready, and not cordoned."""

    labels: Mapping[str, str]
    allocatable: Amounts
    usable: bool


class Profile(NamedTuple):
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: ElasticQuotaProfileSpec


class Quota(NamedTuple):
    """What an ElasticQuota holds as far as the profile decides it, or as it is."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: ElasticQuotaSpec


class Rendered(NamedTuple):
    """``problems`` says which parts of the profile were not understood and what holds instead;
    ``quota`` None: the profile cannot be used at all."""

    quota: Quota | None
    problems: tuple[str, ...]


def tree_id(namespace: str, name: str) -> str:
    """Of a profile that has none yet: FNV-1a of its name, 64 bits, decimal."""
    found = _FNV_OFFSET
    for byte in f"{namespace}/{name}".encode():
        found = ((found ^ byte) * _FNV_PRIME) & (2**64 - 1)
    return str(found)


def rendered(profile: Profile, nodes: Iterable[NodeShare], known: Quota | None) -> Rendered:
    """The quota of ``profile``. ``known``: the one that is there, of which it keeps labels and
    annotations that the profile does not decide."""
    spec = profile.spec
    problems = [str(each) for each in selector_problems(spec.node_selector, "spec.nodeSelector")]
    if not spec.quota_name:
        problems.append("spec.quotaName is empty: name the quota")
    if problems:
        return Rendered(None, tuple(problems))
    ratio = _ratio(spec.resource_ratio, problems)
    selected = [each for each in nodes if matches(spec.node_selector, each.labels)]
    total = _scaled(_sum(each.allocatable for each in selected), ratio)
    unusable = _scaled(_sum(each.allocatable for each in selected if not each.usable), ratio)
    keys = _keys(profile.annotations.get(RESOURCE_KEYS), problems)
    labels = {
        **(known.labels if known else {}),
        **(spec.quota_labels or {}),
        PROFILE: profile.name,
        TREE_ID: profile.labels.get(TREE_ID) or tree_id(profile.namespace, profile.name),
        IS_ROOT: "true",
    }
    annotations = {
        **(known.annotations if known else {}),
        TOTAL_RESOURCE: _json(total),
        UNSCHEDULABLE_RESOURCE: _json(unusable),
    }
    least = {key: str(total.get(key, Quantity(0))) for key in keys}
    quota = ElasticQuotaSpec(least, dict.fromkeys(keys, str(CEILING)))
    return Rendered(Quota(labels, annotations, quota), tuple(problems))


def _sum(lists: Iterable[Amounts]) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for each in lists:
        for name, amount in each.items():
            known = found.get(name)
            found[name] = Quantity(known.nano + amount.nano, known.format) if known else amount
    return found


def _scaled(amounts: Amounts, ratio: float) -> dict[str, Quantity]:
    """CPU in thousandths, everything else in whole units, both rounded down."""
    return {name: _times(name, amount, ratio) for name, amount in sorted(amounts.items())}


def _times(name: str, amount: Quantity, ratio: float) -> Quantity:
    if name == CPU:
        return Quantity(_part(amount.milli, ratio) * _MILLI)
    form = Format.BINARY if name == MEMORY else Format.DECIMAL
    return Quantity(_part(amount.value, ratio) * NANO, form)


def _part(value: int, ratio: float) -> int:
    # A float has no room for every integer of 63 bits.
    return value if ratio == 1.0 else int(value * ratio)


def _ratio(text: str | None, problems: list[str]) -> float:
    if text is None:
        return 1.0
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if 0 < ratio <= 1:
        return ratio
    problems.append(
        f"spec.resourceRatio {text[:32]!r} is no number above 0 and at most 1; all of it counts"
    )
    return 1.0


def _keys(text: str | None, problems: list[str]) -> list[str]:
    if text is None:
        return [CPU, MEMORY]
    try:
        tree = parse_json(text)
    except ProtocolError as error:
        tree, why = None, str(error)
    else:
        why = f"not a list of at most {MOST_KEYS} names of resources"
    if isinstance(tree, list) and len(tree) <= MOST_KEYS and all(_is_name(each) for each in tree):
        return list(dict.fromkeys(tree))
    problems.append(f"annotation {RESOURCE_KEYS}: {why}; {CPU} and {MEMORY} count")
    return [CPU, MEMORY]


def _is_name(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 316


def _json(amounts: Amounts) -> str:
    return msgspec.json.encode({name: str(amount) for name, amount in amounts.items()}).decode()
