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
        kept = _list(retained, where)
        tree = {key: each for key, each in tree.items() if key in kept}
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
        return _interleaved([each for each in old if each not in new], new, old)
    by = MERGE_KEYS.get(field)
    if by is None or not any(isinstance(each, dict) for each in [*old, *new]):
        return copy.deepcopy(new)
    if any(isinstance(each, dict) and each.get(_PATCH) == "replace" for each in new):
        return [_bare(each) for each in new if _bare(each)]
    found = {_name(each, by, where): each for each in old}
    server_order = list(found)
    for index, each in enumerate(new):
        inside = f"{where}[{index}]"
        name = _name(each, by, inside)
        if each.get(_PATCH) == "delete":
            found.pop(name, None)
        else:
            found[name] = _object(found.get(name, {}), each, inside)
    asked = [_name(each, by, where) for each in (order if isinstance(order, list) else new)]
    patched = [name for name in dict.fromkeys(asked) if name in found]
    others = [name for name in found if name not in patched]
    return [found[name] for name in _interleaved(others, patched, server_order)]


def _interleaved(others: list[Any], patched: list[Any], server_order: list[Any]) -> list[Any]:
    """Both in their own order, as the Kubernetes API has it: what the patch names goes first,
    unless both were there before and the other stood in front of it."""
    places = {name: at for at, name in enumerate(server_order)}
    made: list[Any] = []
    rest = list(others)
    for name in patched:
        while rest and name in places and rest[0] in places and places[rest[0]] < places[name]:
            made.append(rest.pop(0))
        made.append(name)
    return made + rest


def _bare(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {key: copy.deepcopy(each) for key, each in tree.items() if not key.startswith("$")}


def _name(element: Any, by: str, where: str) -> str:
    """A text, so that numbers of ports can be told apart from names as well."""
    if not isinstance(element, dict) or by not in element:
        raise _unusable(where, f"an element of this list needs {by}")
    return repr(element[by])


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise _unusable(where, "must be a list")
    return value


def _unusable(where: str, what: str) -> AdmissionError:
    return AdmissionError(f"{where}: {what}", 500)
