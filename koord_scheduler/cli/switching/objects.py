"""Our objects, as the files of ``deploy/`` have them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from koord_scheduler.cli.errors import BadInputError
from koord_scheduler.cli.switching.names import APPLIED, OURS
from koord_scheduler.daemon.files import FileError, read_documents
from koord_scheduler.kube.trees import Ref, Tree, Write, ref_of
from koordlet.protocol.objects.custom import CUSTOM_RESOURCES

DEPLOY = Path(__file__).parent / "deploy"
"""A link to that of the checkout; a wheel has what this command reads of it."""
_DEFINITION = ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
USED = {f"{each.plural}.{each.group}": each.version for each in CUSTOM_RESOURCES}
"""Name of a definition to the version that we ask for."""


class Ours(NamedTuple):
    """``workloads`` and ``others`` by role; ``definitions`` by name."""

    workloads: Mapping[str, Tree]
    others: Mapping[str, tuple[Tree, ...]]
    definitions: Mapping[str, Tree]


def read_ours(directory: str) -> Ours:
    """Raises BadInputError where a file is missing or has no objects."""
    root = Path(directory) if directory else DEPLOY
    if not (root / "switch").is_dir():
        raise BadInputError(f"--deploy {root}: has no switch/; give the deploy/ of a checkout")
    workloads, others = {}, {}
    for role, name in OURS.items():
        found = _objects(root / "switch" / f"{role}.yaml")
        workload = [each for each in found if each["metadata"]["name"] == name]
        kinds = [each for each in workload if each["kind"] in ("Deployment", "DaemonSet")]
        if len(kinds) != 1:
            raise BadInputError(f"{root}/switch/{role}.yaml: has no workload {name}")
        workloads[role] = kinds[0]
        others[role] = tuple(each for each in found if each is not kinds[0])
    found = [e for path in sorted((root / "crds").glob("*.yaml")) for e in _objects(path)]
    return Ours(workloads, others, {each["metadata"]["name"]: each for each in found})


def _objects(path: Path) -> list[Tree]:
    try:
        found = [each for each in read_documents(str(path)) if each is not None]
    except FileError as error:
        raise BadInputError(str(error)) from None
    for each in found:
        meta = each.get("metadata") if isinstance(each, dict) else None
        if not isinstance(meta, dict) or not meta.get("name") or not each.get("kind"):
            raise BadInputError(f"{path}: a document is no object of Kubernetes")
    return found


def applied(tree: Tree) -> Write:
    """The write that makes it so, marked with a digest of itself."""
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode()).hexdigest()[:16]
    meta = tree["metadata"]
    annotations = {**(meta.get("annotations") or {}), APPLIED: digest}
    return Write("apply", ref_of(tree), {**tree, "metadata": {**meta, "annotations": annotations}})


def mark(tree: Tree | None) -> str:
    """The digest of what was applied; empty where a switch did not make it."""
    if tree is None:
        return ""
    return str((tree["metadata"].get("annotations") or {}).get(APPLIED, ""))


def is_applied(write: Write, there: Tree | None) -> bool:
    return bool(mark(there) == write.body["metadata"]["annotations"][APPLIED])


def shared(write: Write, there: Tree | None) -> bool:
    """Whether it was there before any switch: then it stays as it is, also when we go."""
    return there is not None and not mark(there)


def definition_ref(name: str) -> Ref:
    return Ref(*_DEFINITION, name)


def definition_writes(name: str, ours: Tree, there: Tree | None) -> tuple[Write, ...]:
    """Nothing for a definition that serves the version that we ask for: fields, columns and the
    version in store stay as they are, because objects of theirs are stored by them."""
    ref = definition_ref(name)
    if there is None:
        return (Write("create", ref, ours),)
    if serves(name, there):
        return ()
    used = next(e for e in ours["spec"]["versions"] if e["name"] == USED.get(name, e["name"]))
    known = [each for each in there["spec"]["versions"] if each["name"] != used["name"]]
    added = {**used, "served": True, "storage": False}
    held = next((e for e in there["spec"]["versions"] if e["name"] == used["name"]), None)
    if held is not None:
        added = {**held, "served": True}
    body = {
        "metadata": {"resourceVersion": there["metadata"]["resourceVersion"]},
        "spec": {"versions": [*known, added]},
    }
    return (Write("patch", ref, body),)


def serves(name: str, there: Tree) -> bool:
    return any(
        each["name"] == USED.get(name) and each.get("served") for each in there["spec"]["versions"]
    )


def established(there: Tree | None) -> bool:
    conditions: Iterable[Tree] = ((there or {}).get("status") or {}).get("conditions") or ()
    return any(e.get("type") == "Established" and e.get("status") == "True" for e in conditions)
