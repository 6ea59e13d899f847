"""Objects, as files, journals and the API server have them, into a `State` without a watch.

One line of ``LOADED`` for each kind: who reads it, and what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.kube.gang_shapes import (
    CORE_POD_GROUPS,
    NETWORK_TOPOLOGIES,
    NETWORK_TOPOLOGY,
    POD_GROUPS,
    ClusterNetworkTopology,
    CorePodGroup,
    PodGroup,
)
from koord_scheduler.kube.gangs import gang_of_core, gang_of_group
from koord_scheduler.kube.quota_feed import quota_read
from koord_scheduler.kube.quota_shapes import QUOTAS, ElasticQuota
from koord_scheduler.kube.reservation_shapes import RESERVATIONS as RESERVATION_KIND
from koord_scheduler.kube.reservation_shapes import ReservationObject
from koord_scheduler.kube.scheduling import shapes
from koord_scheduler.kube.scheduling.shapes import (
    BUDGETS,
    CLAIMS,
    CLASSES,
    NODES,
    PODS,
    VOLUME_KIND,
    VOLUMES,
    DisruptionBudget,
    ScheduledNode,
    ScheduledPod,
)
from koord_scheduler.kube.scheduling.sources import SOURCES, Source, reader_of, slot_of
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.reservation.arguments import NAME as RESERVATION
from koord_scheduler.place.reservation.matching import named_by
from koord_scheduler.place.reservation.reading import read_reservation
from koord_scheduler.place.reservation.status import why_unscheduled
from koord_scheduler.plan.hints import Event
from koord_scheduler.plan.preemption.budgets import Budget
from koord_scheduler.plan.profile import Profile
from koord_scheduler.plan.state import State
from koord_scheduler.share.gang.declared import Source as GangSource
from koordlet.kube.answers import decoded
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Key, key_of
from koordlet.kube.objects import Object
from koordlet.kube.paging import items


class World(State):
    """A `State` that objects are taken into."""

    def __init__(self, profiles: tuple[Profile, ...]) -> None:
        super().__init__(profiles)
        self.pod_of: Callable[[Pod], Pod] = lambda pod: pod
        """What is made of each pod before it counts."""
        self.adopts = False
        """Pods without a node are decided for here, whichever scheduler they name."""
        self.newest_s = 0.0
        """Unix time of the latest thing that an object tells."""
        self.counts: dict[str, int] = {}
        self.items: dict[str, ScheduledPod] = {}
        """Pods that wait, as they came."""
        self.said: dict[str, str] = {}
        """Messages of the conditions of pods and Reservations that wait, by the pod's key."""
        self.claims: dict[Key, Any] = {}
        CLASSES.named = frozenset()
        self.volumes: dict[Key, Any] = {}

    def take(self, loaded: Loaded, item: Object, *, gone: bool = False) -> None:
        """An object is there, new or changed, or it is ``gone``."""
        self.counts[loaded.kind.name] = self.counts.get(loaded.kind.name, 0) + (-1 if gone else 1)
        loaded.take(self, key_of(item), None if gone else item)

    def take_all(self, documents: Iterable[Mapping[str, Any]], where: str) -> None:
        """As YAML and JSON have them, lists included; kinds that decide nothing are passed over.
        Nodes come first whatever their order, then what declares something, then pods. Raises
        UnusableError."""
        found: dict[int, list[Mapping[str, Any]]] = {}
        for document in single(documents):
            at = place_of(document)
            if at is None:
                continue
            if LOADED[at].kind.namespaced and not document["metadata"].get("namespace"):
                meta = {**document["metadata"], "namespace": "default"}
                document = {**document, "metadata": meta}
            found.setdefault(at, []).append(document)
        for at in sorted(found):
            for document in found[at]:
                try:
                    item = decoded(LOADED[at].kind, msgspec.json.encode(document))
                except UnusableError as error:
                    name = document["metadata"].get("name")
                    raise UnusableError(f"{where}: {document['kind']} {name}: {error}") from None
                self.take(LOADED[at], item)
        self.settle()

    def settle(self) -> None:
        """Pods that wait are read again with the volumes that are known now."""
        VOLUMES.known = {
            (key.namespace, key.name): shapes.volume_of(
                claim, self.volumes.get(Key("", claim.spec.volume_name))
            )
            for key, claim in self.claims.items()
        }
        for key, item in self.items.items():
            if item.whole is not None and item.whole.spec.volumes and key in self.waiting:
                pod = shapes.again(item)
                if pod is not None:
                    self.put(pod, adopt=self.adopts)

    def put(self, pod: Pod, *, adopt: bool = False) -> None:
        super().put(pod, adopt=adopt)
        if pod.node:  # whoever decided so
            self.items.pop(pod.key, None)
            self.said.pop(pod.key, None)

    def drop(self, key: str) -> None:
        self.items.pop(key, None)
        self.said.pop(key, None)
        super().drop(key)


class Loaded(NamedTuple):
    """``take``: of ``f(world, key, object | None)``; None: it is gone. ``event``: what a change of
    it is to pods that wait; None: that depends. ``optional``: an API server may lack the kind."""

    kind: Kind[Any]
    take: Callable[[World, Key, Any], None]
    event: Event | None
    optional: bool = True


def _node(world: World, key: Key, item: ScheduledNode | None) -> None:
    if item is None:
        world.cluster.remove_node(key.name)
    else:
        world.cluster.set_node(item.node)


def _pod(world: World, key: Key, item: ScheduledPod | None) -> None:
    if item is None:
        world.drop(f"{key.namespace}/{key.name}")
        return
    pod = world.pod_of(item.pod)
    world.newest_s = max(world.newest_s, pod.created_s, pod.scheduled_s)
    world.put(pod, adopt=world.adopts)
    if not pod.node:
        world.items[pod.key] = item
        world.said[pod.key] = item.whole.said[1] if item.whole is not None else ""


def _budget(world: World, key: Key, item: DisruptionBudget | None) -> None:
    if item is None:
        world.budgets.pop(key, None)
        return
    world.budgets[key] = Budget(
        key.namespace,
        key.name,
        item.spec.selector,
        item.status.disruptions_allowed,
        frozenset(item.status.disrupted_pods),
    )


def _quota(world: World, key: Key, item: ElasticQuota | None) -> None:
    quotas = world.parts.quotas
    if quotas is None:
        return
    if item is None:
        quotas.drop_quota(key.namespace, key.name)
    else:
        quotas.set_quota(quota_read(item))


def _group(world: World, key: Key, item: PodGroup | None) -> None:
    book = world.parts.gangs
    if book is not None and item is None:
        book.remove_gang("/".join(key), GangSource.POD_GROUP)
    elif book is not None and item is not None:
        book.set_gang(gang_of_group(item, book.args))


def _core_group(world: World, key: Key, item: CorePodGroup | None) -> None:
    book = world.parts.gangs
    if book is not None and item is None:
        book.remove_gang("/".join(key), GangSource.CORE)
    elif book is not None and item is not None:
        book.set_gang(gang_of_core(item, book.args))


def _reservation(world: World, key: Key, item: ReservationObject | None) -> None:
    if RESERVATION not in world.parts.plugins():
        return
    tree = item.tree() if item is not None else None
    found = read_reservation(tree, CLASSES) if tree is not None else None
    if found is None or tree is None:
        world.unreserve(key.name)
    else:
        world.reserve(found)
        if found.pod.key in world.waiting:
            world.said[found.pod.key] = why_unscheduled(tree)
    named = named_by(world.reservations)
    changed, CLASSES.named = named ^ CLASSES.named, named
    # Pods that a reservation names have a class of their own.
    for each in tuple(world.items.values()) if changed else ():
        if each.pod.uid in changed or each.metadata.name in changed:
            pod = shapes.again(each)
            if pod is not None:
                world.put(world.pod_of(pod), adopt=world.adopts)


def _network(world: World, key: Key, item: ClusterNetworkTopology | None) -> None:
    if key.name == NETWORK_TOPOLOGY:
        world.network.spec = item.spec if item is not None else None


def _namespace(world: World, key: Key, item: Object | None) -> None:
    known = dict(world.cluster.namespaces)
    known.pop(key.name, None)
    if item is not None and item.metadata.labels:
        known[key.name] = item.metadata.labels
    world.cluster.namespaces = known


def _kept(table: str) -> Callable[[World, Key, Any], None]:
    def take(world: World, key: Key, item: Any) -> None:
        kept = getattr(world, table)
        if item is None:
            kept.pop(key, None)
        else:
            kept[key] = item

    return take


def _of_sources(sources: Sequence[Source]) -> Callable[[World, Key, Any], None]:
    """Return the taker of one kind, of which several plugins may read what they need."""

    def take(world: World, key: Key, item: Any) -> None:
        for source in sources:
            if not source.plugins & world.parts.plugins():
                continue
            value = reader_of(source)(item) if item is not None else None
            world.cluster.put(slot_of(source), key.name, value)
            reported_s = getattr(value, "update_time_s", None)
            world.newest_s = max(world.newest_s, reported_s or 0.0)

    return take


def _from_sources() -> Iterator[Loaded]:
    by_kind: dict[Kind[Any], list[Source]] = {}
    for source in SOURCES:
        by_kind.setdefault(source.kind, []).append(source)
    for kind, sources in by_kind.items():
        yield Loaded(kind, _of_sources(sources), sources[-1].event)


NAMESPACES = Kind("", "v1", "Namespace", "namespaces", False, Object)
LOADED: tuple[Loaded, ...] = (
    Loaded(NODES, _node, Event.NODE, optional=False),
    Loaded(NAMESPACES, _namespace, Event.POD_CHANGED),
    *_from_sources(),
    Loaded(CLAIMS, _kept("claims"), Event.POD_CHANGED),
    Loaded(VOLUME_KIND, _kept("volumes"), Event.POD_CHANGED),
    Loaded(BUDGETS, _budget, None),
    Loaded(QUOTAS, _quota, Event.QUOTA),
    Loaded(POD_GROUPS, _group, Event.GANG),
    Loaded(CORE_POD_GROUPS, _core_group, Event.GANG),
    Loaded(NETWORK_TOPOLOGIES, _network, Event.GANG),
    Loaded(RESERVATION_KIND, _reservation, Event.RESERVATION),
    Loaded(PODS, _pod, None, optional=False),
)
"""In the order in which they are taken where all are there at once."""
_PLACES = {(each.kind.group, each.kind.name): at for at, each in enumerate(LOADED)}
_BY_NAME = {each.kind.name: at for at, each in reversed(tuple(enumerate(LOADED)))}


def place_of(document: Mapping[str, Any]) -> int | None:
    """In ``LOADED``; None: nothing here reads such an object. Where apiVersion lacks, the kind
    says it."""
    kind, version = str(document.get("kind")), str(document.get("apiVersion") or "")
    if not version:
        return _BY_NAME.get(kind)
    group = version.rpartition("/")[0]
    return _PLACES.get((group, kind))


def single(documents: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Objects one by one; what is no object is refused. Raises UnusableError."""
    for document in documents:
        if not isinstance(document, dict):
            if document is not None:
                raise UnusableError("an object of Kubernetes has kind and metadata")
        elif isinstance(document.get("items"), list):
            yield from single(document["items"])
        elif "kind" in document and isinstance(document.get("metadata"), dict):
            yield document


async def from_server(client: Client, world: World) -> list[str]:
    """All objects, listed once. Kinds that the server does not have are told. Raises KubeError."""
    notes: list[str] = []
    for loaded in LOADED:
        try:
            async for raw in listed(client, loaded.kind):
                try:
                    world.take(loaded, decoded(loaded.kind, raw))
                except UnusableError as error:
                    notes.append(f"passed over: {error}")
        except RefusedError as error:
            if not (loaded.optional and error.missing):
                raise
            notes.append(f"the API server has no {loaded.kind}")
    world.settle()
    return notes


async def served(client: Client, kind: Kind[Any]) -> Kind[Any]:
    """Return the kind in the best version that the server has. Raises KubeError."""
    for _ in kind.versions[1:]:
        try:
            await client.page(kind, query={"limit": "1"})
        except RefusedError as error:
            if not error.missing:
                raise
            kind = kind.another()
        else:
            return kind
    await client.page(kind, query={"limit": "1"})
    return kind


async def listed(client: Client, kind: Kind[Any]) -> Any:
    """As the server wrote them, page by page. Raises KubeError."""
    if kind.versions:
        kind = await served(client, kind)
    async for raw in items(client, kind):
        yield raw
