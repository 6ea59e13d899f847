"""Strategic merge patches of pods: lists of the pod are merged by the field that names their
elements, as ``kubectl patch`` does it.

The directives ``$patch``, ``$retainKeys``, ``$deleteFromPrimitiveList`` and ``$setElementOrder``
are those of the Kubernetes API.
"""

from __future__ import annotations

import copy
from typing import Any

from koord_scheduler.admission.words import AdmissionError, Tree

_CONTAINER = {
    "ports": "containerPort",
    "env": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "claims": "name",
}
_NAMED = ("containers", "initContainers", "ephemeralContainers", "volumes", "imagePullSecrets")
MERGE_KEYS: dict[str, str] = {
    **_CONTAINER,
    **dict.fromkeys((*_NAMED, "resourceClaims", "schedulingGates"), "name"),
    "hostAliases": "ip",
    "topologySpreadConstraints": "topologyKey",
    "ownerReferences": "uid",
}
"""By name of the field, which is the same thing wherever it stands in a pod. Lists of objects that
are not here are replaced (tolerations, projected sources ...)."""
MERGED_PRIMITIVES = frozenset({"finalizers"})
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"
_PATCH = "$patch"
_RETAIN = "$retainKeys"


def strategic_merge(tree: Tree, patch: Tree, name: str = "") -> Tree:
    """``patch`` over a copy of ``tree``. Raises AdmissionError for a directive that says nothing,
    and for an element of a merged list without the field that names it."""
    return _object(copy.deepcopy(tree), patch, name or "patch")


def _object(tree: Tree, patch: Tree, where: str) -> Tree:
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: copy.deepcopy(each) for key, each in patch.items() if not key.startswith("$")}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise _unusable(where, f"{_PATCH} is {directive!r}, must be merge, replace or delete")
    retained = patch.get(_RETAIN)
    if retained is not None:
        tree = {key: each for key, each in tree.items() if key in _list(retained, where)}
    for key, value in patch.items():
        inside = f"{where}.{key}"
        if key in (_PATCH, _RETAIN) or key.startswith(_ORDER):
            continue
        if key.startswith(_DELETE_FROM):
            field, gone = key.removeprefix(_DELETE_FROM), _list(value, inside)
            tree[field] = [each for each in tree.get(field) or [] if each not in gone]
        elif value is None:
            tree.pop(key, None)
        elif isinstance(value, dict):
            old = tree.get(key)
            tree[key] = _object(old if isinstance(old, dict) else {}, value, inside)
        elif isinstance(value, list):
            old = tree.get(key)
            order = patch.get(_ORDER + key)
            tree[key] = _merged(old if isinstance(old, list) else [], value, key, order, inside)
        else:
            tree[key] = value
    return tree


def _merged(old: list[Any], new: list[Any], field: str, order: Any, where: str) -> list[Any]:
    if field in MERGED_PRIMITIVES:
        return old + [each for each in new if each not in old]
    by = MERGE_KEYS.get(field)
    if by is None or not any(isinstance(each, dict) for each in [*old, *new]):
        return copy.deepcopy(new)
    if any(isinstance(each, dict) and each.get(_PATCH) == "replace" for each in new):
        return [_bare(each) for each in new if _bare(each)]
    found = list(old)
    added = []
    for index, each in enumerate(new):
        inside = f"{where}[{index}]"
        if not isinstance(each, dict) or by not in each:
            raise _unusable(inside, f"an element of this list needs {by}")
        at = next((i for i, e in enumerate(found) if _named(e, by, each[by])), None)
        if each.get(_PATCH) == "delete":
            found = [e for e in found if not _named(e, by, each[by])]
        elif at is None:
            added.append(_object({}, each, inside))
        else:
            found[at] = _object(found[at], each, inside)
    # As the Kubernetes API: what the patch adds stands before what was there.
    return _ordered([*added, *found], by, order)


def _ordered(elements: list[Any], by: str, order: Any) -> list[Any]:
    if not isinstance(order, list):
        return elements
    places = {each.get(by): at for at, each in enumerate(order) if isinstance(each, dict)}
    return sorted(elements, key=lambda each: places.get(each.get(by), len(places)))


def _bare(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {key: copy.deepcopy(each) for key, each in tree.items() if not key.startswith("$")}


def _named(element: Any, by: str, value: Any) -> bool:
    return isinstance(element, dict) and element.get(by) == value


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _unusable(where, "must be a list")
    return value


def _unusable(where: str, what: str) -> AdmissionError:
    return AdmissionError(f"{where}: {what}", 500)
