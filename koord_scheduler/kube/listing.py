"""What a command sees of a cluster: objects read once, from the API server or from files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from koord_scheduler.kube.inputs import PodsByNode, inputs_of
from koord_scheduler.kube.shapes import (
    CONFIG_MAPS,
    DEVICES,
    NODE_METRICS,
    NODE_SLOS,
    NODES,
    PODS,
    TOPOLOGIES,
    ConfigMap,
    Device,
    Node,
    NodeMetric,
    NodeResourceTopology,
    NodeSLO,
    Pod,
)
from koord_scheduler.model.facts import Inputs
from koordlet.kube.answers import decoded
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Key, key_of
from koordlet.kube.objects import Object
from koordlet.kube.paging import items

T = TypeVar("T", bound=Object)
KINDS: tuple[Kind[Any], ...] = (
    NODES,
    PODS,
    CONFIG_MAPS,
    NODE_METRICS,
    NODE_SLOS,
    DEVICES,
    TOPOLOGIES,
)


@dataclass(frozen=True)
class Seen:
    """``config``: data of the ConfigMap, None where there is none. ``notes``: what could not be
    had."""

    nodes: Mapping[str, Node]
    metrics: Mapping[str, NodeMetric] = field(default_factory=dict)
    slos: Mapping[str, NodeSLO] = field(default_factory=dict)
    devices: Mapping[str, Device] = field(default_factory=dict)
    topologies: Mapping[str, NodeResourceTopology] = field(default_factory=dict)
    pods: Mapping[Key, Pod] = field(default_factory=dict)
    config: Mapping[str, str] | None = None
    notes: tuple[str, ...] = ()

    def inputs(self) -> list[Inputs]:
        """Of every node, by name."""
        by_node = PodsByNode()
        by_node.begin(dict(self.pods))
        return [
            inputs_of(
                self.nodes[name],
                self.metrics.get(name),
                by_node.of(name),
                self.devices.get(name),
                self.topologies.get(name),
            )
            for name in sorted(self.nodes)
        ]


async def list_all(
    client: Client,
    kind: Kind[T],
    tell: Callable[[str], None],
    *,
    namespace: str = "",
    fields: str = "",
) -> tuple[T, ...]:
    """All objects of a kind. ``tell`` hears of those that cannot be read. Raises KubeError."""
    found: list[T] = []
    query = {"fieldSelector": fields} if fields else {}
    async for raw in items(client, kind, namespace=namespace, query=query):
        try:
            found.append(decoded(kind, raw))
        except UnusableError as error:
            tell(f"passed over: {error}")
    return tuple(found)


async def from_cluster(client: Client, namespace: str, name: str, node: str = "") -> Seen:
    """``namespace`` and ``name`` of the ConfigMap. ``node``: that one alone; empty: all. Raises
    KubeError; a kind that the server does not have is a note."""
    by_name = f"metadata.name={node}" if node else ""
    notes: list[str] = []

    async def some(kind: Kind[T]) -> dict[str, T]:
        try:
            found = await list_all(client, kind, notes.append, fields=by_name)
        except RefusedError as error:
            if not error.missing:
                raise
            notes.append(f"the API server has no {kind}: apply deploy/crds")
            return {}
        return {each.metadata.name: each for each in found}

    of_node = f"spec.nodeName={node}" if node else ""
    try:
        async with asyncio.TaskGroup() as group:
            nodes = group.create_task(some(NODES))
            metrics = group.create_task(some(NODE_METRICS))
            slos = group.create_task(some(NODE_SLOS))
            devices = group.create_task(some(DEVICES))
            topologies = group.create_task(some(TOPOLOGIES))
            pods = group.create_task(list_all(client, PODS, notes.append, fields=of_node))
            config = group.create_task(
                list_all(
                    client,
                    CONFIG_MAPS,
                    notes.append,
                    namespace=namespace,
                    fields=f"metadata.name={name}",
                )
            )
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None  # one is enough to say why
    return Seen(
        nodes.result(),
        metrics.result(),
        slos.result(),
        devices.result(),
        topologies.result(),
        {key_of(pod): pod for pod in pods.result()},
        config.result()[0].data if config.result() else None,
        tuple(notes),
    )


def from_documents(documents: Iterable[Any], namespace: str, name: str) -> Seen:
    """Of objects as YAML or JSON has them, lists included. Kinds that nothing here reads are passed
    over. Raises UnusableError."""
    found: dict[str, dict[Key, Any]] = {kind.name: {} for kind in KINDS}
    kinds = {kind.name: kind for kind in KINDS}
    for document in singles(documents):
        kind = kinds.get(document.get("kind", ""))
        if kind is not None:
            item: Object = decoded(kind, msgspec.json.encode(document))
            found[kind.name][key_of(item)] = item
    if not found[NODES.name]:
        raise UnusableError("there is no Node among the objects: nothing can be computed")
    config: ConfigMap | None = found[CONFIG_MAPS.name].get(Key(namespace, name))
    by_name = {kind: {key.name: item for key, item in some.items()} for kind, some in found.items()}
    return Seen(
        by_name[NODES.name],
        by_name[NODE_METRICS.name],
        by_name[NODE_SLOS.name],
        by_name[DEVICES.name],
        by_name[TOPOLOGIES.name],
        found[PODS.name],
        config.data if config is not None else None,
    )


def singles(documents: Iterable[Any]) -> Iterable[dict[str, Any]]:
    """Lists taken apart. Raises UnusableError."""
    for document in documents:
        if not isinstance(document, dict):
            if document is not None:
                raise UnusableError("an object of Kubernetes has kind and metadata")
        elif isinstance(document.get("items"), list):
            yield from singles(document["items"])
        else:
            yield document
