"""What an ElasticQuota gets when it is made, and what it must not say
(docs/reference/protocol.md 6.7)."""

from __future__ import annotations

import copy
from collections.abc import Callable

import msgspec

from koord_scheduler.admission.pods import set_annotation, set_label
from koord_scheduler.admission.quotas import (
    Amounts,
    Quota,
    Quotas,
    amounts_in,
    names_in,
    quota_from,
    summed,
)
from koord_scheduler.admission.words import AdmissionError, Gates, Step, Tree
from koordlet.protocol.objects.quota import (
    BUILT_IN,
    GUARANTEED,
    NAMESPACES,
    PARENT,
    ROOT,
    SHARED_WEIGHT,
    STRICT_KEYS,
    SYSTEM,
    TREE_ID,
)
from koordlet.protocol.quantity import Quantity

_ZERO = Quantity(0)


def mutate_quota(tree: Tree, quotas: Quotas) -> tuple[Tree, tuple[Step, ...]]:
    """A new quota with its parent, its tree and its weight. Raises AdmissionError."""
    quota = quota_from(tree)
    steps: list[Step] = []
    if quota.name == ROOT:
        return tree, ()
    tree = copy.deepcopy(tree)
    if not quota.labels.get(PARENT):
        set_label(tree, PARENT, ROOT)
        steps.append(Step("quota defaults", f"label {PARENT}", quota.labels.get(PARENT), ROOT))
    if not quota.tree_id and quota.parent != ROOT:
        parent = quotas.by_name.get(quota.parent)
        if parent is None:
            raise AdmissionError(f"there is no parent quota {quota.parent}")
        if parent.tree_id:
            set_label(tree, TREE_ID, parent.tree_id)
            steps.append(Step("quota defaults", f"label {TREE_ID}", None, parent.tree_id))
    weight = amounts_in(quota.annotations, SHARED_WEIGHT)
    aligned = {name: (weight or {}).get(name, amount) for name, amount in quota.at_most.items()}
    if weight is None or weight.keys() != aligned.keys():
        text = msgspec.json.encode(
            {name: str(each) for name, each in aligned.items()}, order="sorted"
        ).decode()
        before = quota.annotations.get(SHARED_WEIGHT)
        set_annotation(tree, SHARED_WEIGHT, text)
        steps.append(Step("quota defaults", f"annotation {SHARED_WEIGHT}", before, text))
    return tree, tuple(steps)


HasPods = Callable[[str], bool]
"""Whether pods are charged to the quota of this name."""


def validate_new_quota(tree: Tree, quotas: Quotas, gates: Gates) -> None:
    """Raises AdmissionError."""
    quota = quota_from(tree)
    if quota.name in BUILT_IN:
        _amounts_in_order(quota)
        return
    others = _without(quotas, quota)
    if quota.name in others.by_name:
        where = others.by_name[quota.name].namespace
        raise AdmissionError(f"there is a quota {quota.name} already, in namespace {where}")
    _amounts_in_order(quota)
    _namespaces_free(quota, others)
    _fits_its_tree(quota, others, gates)


def validate_changed_quota(
    tree: Tree, old_tree: Tree, quotas: Quotas, gates: Gates, has_pods: HasPods
) -> None:
    """Raises AdmissionError."""
    quota, old = quota_from(tree), quota_from(old_tree)
    if _deciding(quota) == _deciding(old):
        return
    if quota.name in (ROOT, SYSTEM):
        raise AdmissionError(f"quota {quota.name} cannot be changed")
    others = _without(quotas, quota)
    _amounts_in_order(quota)
    _namespaces_free(quota, others)
    children = others.children(quota.name)
    if old.is_parent and not quota.is_parent and children:
        raise AdmissionError(
            f"quota {quota.name} has quotas below it ({_some(children)}): it must stay a parent"
        )
    if quota.is_parent and not old.is_parent and has_pods(quota.name):
        raise AdmissionError(f"quota {quota.name} has pods: it cannot become a parent")
    if quota.tree_id != old.tree_id:
        raise AdmissionError(f"label {TREE_ID} cannot change")
    _fits_its_tree(quota, others, gates)


def validate_deleted_quota(tree: Tree, quotas: Quotas, has_pods: HasPods) -> None:
    """Raises AdmissionError."""
    quota = quota_from(tree)
    if quota.name in BUILT_IN:
        raise AdmissionError(f"quota {quota.name} cannot be deleted")
    if children := quotas.children(quota.name):
        raise AdmissionError(f"quota {quota.name} has quotas below it ({_some(children)})")
    if has_pods(quota.name):
        raise AdmissionError(f"quota {quota.name} has pods")


def _deciding(quota: Quota) -> tuple[object, ...]:
    """What an update must change to be looked at."""
    return (
        quota.labels.get(PARENT, ""),
        quota.is_parent,
        quota.tree_id,
        quota.annotations.get(NAMESPACES, ""),
        quota.at_least,
        quota.at_most,
    )


def _without(quotas: Quotas, quota: Quota) -> Quotas:
    return Quotas(
        tuple(
            each
            for each in quotas.all
            if (each.namespace, each.name) != (quota.namespace, quota.name)
        )
    )


def _amounts_in_order(quota: Quota) -> None:
    weight = amounts_in(quota.annotations, SHARED_WEIGHT) or {}
    for where, amounts in (
        ("spec.min", quota.at_least),
        ("spec.max", quota.at_most),
        (f"annotation {SHARED_WEIGHT}", weight),
    ):
        negative = [name for name, amount in amounts.items() if amount < _ZERO]
        if negative:
            raise AdmissionError(f"{where}: {negative[0]} is negative")
    for name, amount in quota.at_least.items():
        if name not in quota.at_most:
            raise AdmissionError(f"spec.min has {name}, spec.max has not")
        if amount > quota.at_most[name]:
            raise AdmissionError(
                f"spec.min of {name} ({amount}) is more than spec.max ({quota.at_most[name]})"
            )
    for name in names_in(quota.annotations, STRICT_KEYS):
        used, most = quota.used.get(name), quota.at_most.get(name)
        if used is not None and (most is None or most < used):
            has = "missing" if most is None else f"{most}, which is less than what is used"
            raise AdmissionError(f"spec.max of {name} is {has} ({used})")


def _namespaces_free(quota: Quota, others: Quotas) -> None:
    for namespace in names_in(quota.annotations, NAMESPACES):
        other = others.of_namespace(namespace)
        if other is not None:
            raise AdmissionError(f"namespace {namespace} belongs to quota {other.name} already")


def _fits_its_tree(quota: Quota, others: Quotas, gates: Gates) -> None:
    parent = None if quota.parent == ROOT else others.by_name.get(quota.parent)
    children = others.children(quota.name)
    if quota.parent == quota.name:
        raise AdmissionError(f"quota {quota.name} cannot be its own parent")
    if quota.parent != ROOT:
        if parent is not None and quota.tree_id != parent.tree_id:
            raise AdmissionError(
                f"label {TREE_ID} is {quota.tree_id!r}, that of {parent.name} {parent.tree_id!r}"
            )
        if parent is not None and _is_below(parent, quota.name, others):
            raise AdmissionError(f"quota {parent.name} is below {quota.name}: a circle")
    for child in children:
        if child.tree_id != quota.tree_id:
            raise AdmissionError(
                f"label {TREE_ID} is {quota.tree_id!r}, that of {child.name} {child.tree_id!r}"
            )
    if not quota.is_parent and quota.parent == ROOT:
        return
    if quota.parent != ROOT:
        if parent is None:
            raise AdmissionError(f"there is no parent quota {quota.parent}")
        if not parent.is_parent:
            raise AdmissionError(f"quota {parent.name} is no parent: it may have pods")
        _keys_fit(quota, parent, gates)
    for child in children:
        _keys_fit(child, quota, gates)
    if not (quota.may_force or quota.is_root):
        if parent is not None:
            _minimums_fit(parent, [*others.children(parent.name), quota])
        _minimums_fit(quota, children)
    if gates.elastic_quota_guarantee_usage:
        _guaranteed(quota, others)


def _is_below(quota: Quota, name: str, quotas: Quotas) -> bool:
    """Whether ``name`` is among the ancestors of ``quota``."""
    seen: set[str] = set()
    at: Quota | None = quota
    while at is not None and at.name not in seen:
        seen.add(at.name)
        if at.parent == name:
            return True
        at = quotas.by_name.get(at.parent)
    return False


def _keys_fit(child: Quota, parent: Quota, gates: Gates) -> None:
    beyond = child.at_most.keys() - parent.at_most.keys()
    missing = parent.at_most.keys() - child.at_most.keys()
    if beyond or (missing and not gates.elastic_quota_enable_update_resource_key):
        raise AdmissionError(
            f"spec.max of {child.name} has {_names(child.at_most)},"
            f" that of its parent {parent.name} {_names(parent.at_most)}"
        )
    if child.at_least.keys() - parent.at_least.keys():
        raise AdmissionError(
            f"spec.min of {child.name} has {_names(child.at_least)},"
            f" that of its parent {parent.name} {_names(parent.at_least)}"
        )


def _minimums_fit(parent: Quota, children: list[Quota]) -> None:
    if missing := _minus(summed(each.at_least for each in children), parent.at_least):
        name, amount = min(missing.items())
        raise AdmissionError(
            f"the quotas below {parent.name} have more spec.min together than it has:"
            f" {amount} of {name}"
        )


def _guaranteed(quota: Quota, quotas: Quotas) -> None:
    """Raise AdmissionError where ``spec.min`` is more than what can be guaranteed: some quota above
    must have guaranteed to it what its own ``spec.min`` and those below it need together."""
    if quota.may_force or quota.is_root or not quota.tree_id:
        return
    has = _guaranteed_to(quota)
    if not _minus(quota.at_least, has):
        return
    needed, below = _largest(quota.at_least, has), quota
    missing: Amounts = _minus(quota.at_least, has)
    seen = {quota.name}
    while below.parent != ROOT and below.parent not in seen:
        above = quotas.by_name.get(below.parent)
        if above is None:
            break
        seen.add(above.name)
        brothers = (each for each in quotas.children(above.name) if each.name != below.name)
        together = summed([needed, *map(_guaranteed_to, brothers)])
        needed = _largest(above.at_least, together)
        missing = _minus(needed, _guaranteed_to(above))
        if not missing:
            return
        below = above
    name, amount = min(missing.items())
    raise AdmissionError(f"spec.min of {name}: {amount} more than what can be guaranteed")


def _guaranteed_to(quota: Quota) -> Amounts:
    """Return what the scheduler has noted; nothing where it cannot be read."""
    try:
        return amounts_in(quota.annotations, GUARANTEED) or {}
    except AdmissionError:
        return {}


def _largest(one: Amounts, other: Amounts) -> dict[str, Quantity]:
    return {name: max(one.get(name, _ZERO), other.get(name, _ZERO)) for name in {*one, *other}}


def _minus(amounts: Amounts, less: Amounts) -> dict[str, Quantity]:
    """What is left, where something is."""
    found = {
        name: Quantity(each.nano - less.get(name, _ZERO).nano) for name, each in amounts.items()
    }
    return {name: each for name, each in found.items() if each > _ZERO}


def _names(amounts: Amounts) -> str:
    return ", ".join(sorted(amounts)) or "nothing"


def _some(quotas: list[Quota]) -> str:
    names = sorted(each.name for each in quotas)
    return ", ".join(names[:3]) + (" ..." if len(names) > 3 else "")
