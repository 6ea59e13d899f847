"""What admission reads of a pod (docs/reference/protocol.md 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from koord_scheduler.admission.words import AdmissionError, Tree
from koordlet.protocol import keys
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.qos import (
    KubeQoS,
    PriorityClass,
    QoSClass,
    kube_qos_of,
    priority_class_with_default,
    qos_with_default,
    raw_priority_class,
    raw_qos,
)
from koordlet.protocol.quantity import Quantity, parse_quantity
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, CPU, MEMORY

Amounts = dict[str, str | int | float]


class _Shape(msgspec.Struct, frozen=True, rename="camel"):
    """Keys as the API server writes them."""


class _Metadata(_Shape, frozen=True):
    name: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Resources(_Shape, frozen=True):
    requests: Amounts | None = None
    limits: Amounts | None = None


class _Container(_Shape, frozen=True):
    name: str
    resources: _Resources | None = None
    restart_policy: str | None = None


class _Spec(_Shape, frozen=True):
    containers: list[_Container]
    init_containers: list[_Container] | None = None
    overhead: Amounts | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    affinity: dict[str, Any] | None = None


class _Status(_Shape, frozen=True):
    qos_class: str | None = None


class _Pod(_Shape, frozen=True):
    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


def check_pod(tree: Any, where: str = "the pod") -> None:
    """Raises AdmissionError where a field that this room reads is of another type: everything else
    here relies on it. Quantities are looked at by whoever reads them."""
    try:
        msgspec.convert(tree, _Pod)
    except msgspec.ValidationError as error:
        raise AdmissionError(f"{where} cannot be read: {error}") from None


def name_of(tree: Tree) -> str:
    """Of a pod, or the beginning of one that the API server has yet to name."""
    meta = tree.get("metadata") or {}
    return str(meta.get("name") or meta.get("generateName") or "")


def labels_of(tree: Tree) -> dict[str, str]:
    return tree["metadata"].get("labels") or {}


def annotations_of(tree: Tree) -> dict[str, str]:
    return tree["metadata"].get("annotations") or {}


def set_label(tree: Tree, key: str, value: str) -> None:
    _part(tree["metadata"], "labels")[key] = value


def set_annotation(tree: Tree, key: str, value: str) -> None:
    _part(tree["metadata"], "annotations")[key] = value


def _part(tree: Tree, key: str) -> Tree:
    if not tree.get(key):
        tree[key] = {}
    part: Tree = tree[key]
    return part


def containers(tree: Tree) -> list[Tree]:
    found: list[Tree] = tree["spec"]["containers"]
    return found


def init_containers(tree: Tree) -> list[Tree]:
    return tree["spec"].get("initContainers") or []


def amounts_of(container: Tree, kind: str) -> Amounts:
    """``kind``: requests or limits."""
    return (container.get("resources") or {}).get(kind) or {}


def part_of_resources(container: Tree, kind: str) -> Amounts:
    """To be written to."""
    return _part(_part(container, "resources"), kind)


def quantity(value: str | int | float, where: str) -> Quantity:
    """Raises AdmissionError."""
    try:
        return parse_quantity(value)
    except ProtocolError as error:
        raise AdmissionError(f"{where}: {error}") from None


def raw_qos_of(tree: Tree) -> QoSClass | None:
    return raw_qos(labels_of(tree).get(keys.QOS_CLASS.name))


def raw_priority_class_of(tree: Tree) -> PriorityClass | None:
    label = labels_of(tree).get(keys.PRIORITY_CLASS.name)
    return raw_priority_class(label, tree["spec"].get("priority"))


def qos_of(tree: Tree) -> QoSClass:
    """With default: by the label, else by what Kubernetes makes of its resources."""
    return qos_with_default(raw_qos_of(tree), kube_qos(tree))


def priority_class_of(tree: Tree) -> PriorityClass | None:
    """With default."""
    return priority_class_with_default(raw_priority_class_of(tree), qos_of(tree))


def kube_qos(tree: Tree) -> KubeQoS:
    given = (tree.get("status") or {}).get("qosClass")
    if given in set(KubeQoS):
        return KubeQoS(given)
    whole = tree["spec"]
    return kube_qos_of(
        (
            (_native(each, "requests", _named(each)), _native(each, "limits", _named(each)))
            for each in (*containers(tree), *init_containers(tree))
        ),
        (_native(whole, "requests", "pod", alone=True), _native(whole, "limits", "pod")),
    )


def _named(container: Tree) -> str:
    return f"container {container['name']}"


def _native(owner: Tree, kind: str, title: str, *, alone: bool = False) -> dict[str, int]:
    """Return billionths. As for the API server, a limit alone is the request too, unless
    ``alone``."""
    given = amounts_of(owner, kind)
    if kind == "requests" and not alone:
        given = amounts_of(owner, "limits") | given
    where = f"{title}: {kind}"
    return {
        name: quantity(given[name], f"{where} of {name}").nano
        for name in (CPU, MEMORY)
        if name in given
    }


def requests_of(tree: Tree, *, overhead: bool = True) -> dict[str, Quantity]:
    """What the scheduler counts for the pod: the containers together or the largest moment of its
    start, whichever is more, and the overhead. Init containers that go on running count beside the
    others."""
    running: Counter[str] = Counter()
    for container in containers(tree):
        running.update(_nano(container))
    kept: Counter[str] = Counter()
    peak: Counter[str] = Counter()
    for container in init_containers(tree):
        asked = _nano(container)
        if container.get("restartPolicy") == "Always":
            kept.update(asked)
            asked = {}
        for name in {*asked, *kept}:
            peak[name] = max(peak[name], asked.get(name, 0) + kept[name])
    running.update(kept)
    total = {name: max(running[name], peak[name]) for name in {*running, *peak}}
    given = (tree["spec"].get("overhead") or {}) if overhead else {}
    for name, value in given.items():
        total[name] = total.get(name, 0) + quantity(value, f"overhead of {name}").nano
    return {name: Quantity(nano) for name, nano in sorted(total.items())}


def _nano(container: Tree) -> dict[str, int]:
    where = f"container {container['name']}: request"
    return {
        name: quantity(value, f"{where} of {name}").nano
        for name, value in amounts_of(container, "requests").items()
    }


def requests_batch(requests: Mapping[str, Quantity]) -> bool:
    return any(requests[name].nano for name in (BATCH_CPU, BATCH_MEMORY) if name in requests)


def all_containers(tree: Tree) -> Iterator[Tree]:
    yield from init_containers(tree)
    yield from containers(tree)
