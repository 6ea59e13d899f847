"""Reservations of the scheduler: placed as pods are, and kept in step with who uses them
(docs/reference/central.md 7.2, 7.8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

import msgspec
import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.queue import UNFORESEEN
from koord_scheduler.kube.reservation_shapes import RESERVATIONS, ReservationObject
from koord_scheduler.kube.scheduling.binder import Bound, Outcome
from koord_scheduler.kube.scheduling.shapes import CLASSES, PODS
from koord_scheduler.kube.writes import NotLeadingError, TooManyWritesError
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.place.reservation import reservation as words
from koord_scheduler.place.reservation import status
from koord_scheduler.place.reservation.arguments import NAME, ReservationArgs
from koord_scheduler.place.reservation.matching import named_by
from koord_scheduler.place.reservation.preallocation import hand_over
from koord_scheduler.place.reservation.reading import read_reservation
from koord_scheduler.place.reservation.reservation import Reservation
from koord_scheduler.plan.outcomes import Placement
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.mirror import Change

SYNC_EVERY_S = 3.0
_OVER = frozenset({status.FAILED, status.SUCCEEDED})
_log = structlog.get_logger()


class Follower(Protocol):
    """What the scheduler does with reserve pods."""

    def waits(self, pod: Pod, said: tuple[str, str]) -> None: ...

    def placed(self, pod: Pod) -> None: ...

    def gone(self, pod: Pod) -> None: ...

    def reservations_changed(self, named: frozenset[str]) -> None:
        """``named``: keys of pods that some reservation names now, or named before."""
        ...


class Reservations:
    """Made before the watches begin. ``known`` is by name."""

    def __init__(
        self, context: Context, cluster: Cluster, follower: Follower, args: ReservationArgs
    ) -> None:
        self.known: dict[str, Reservation] = {}
        self._context, self._cluster, self._follower = context, cluster, follower
        self._args = args
        self._watched = context.watches.of(RESERVATIONS, optional=True)
        self._watched.listen(self._on_changes)

    # From the watch.

    def _on_changes(self, changes: tuple[Change[ReservationObject], ...]) -> None:
        nodes: set[str] = set()
        for change in changes:
            old = self.known.pop(change.key.name, None)
            new = _read(change.new) if change.new is not None else None
            if old is not None:
                nodes.add(old.node)
                if new is None or old.uid != new.uid:
                    self._drop(old)
            if new is not None:
                self.known[new.name] = new
                nodes.add(new.node)
                self._take(new)
        for node in nodes - {""}:
            there = {r.name: r for r in self.known.values() if r.node == node and r.available}
            self._cluster.put(words.RESERVATIONS, node, there or None)
        named = named_by(self.known)
        changed = named ^ CLASSES.named
        CLASSES.named = named
        self._follower.reservations_changed(changed)

    def _take(self, new: Reservation) -> None:
        cluster = self._cluster
        if new.available:
            cluster.put(words.WAITING, new.name, None)
            before = cluster.claims.get(new.pod.key)
            if before is None or before.node != new.node or before.pod != new.pod:
                grants = before.grants if before is not None and before.node == new.node else {}
                cluster.add(Claim(new.pod, new.node, self._context.wall(), grants))
            self._follower.placed(new.pod)
        elif new.node or new.phase in _OVER:
            self._drop(new)
        else:
            cluster.put(words.WAITING, new.name, new)
            self._follower.waits(new.pod, ("", ""))

    def _drop(self, old: Reservation) -> None:
        self._cluster.put(words.WAITING, old.name, None)
        self._cluster.remove(old.pod.key)
        self._follower.gone(old.pod)

    # To the API server.

    async def bind(self, placement: Placement) -> Outcome:
        """The status says where it is; there is no pod to bind."""
        pod = placement.pod
        item = self._watched.get(pod.holds)
        if item is None or item.metadata.uid != pod.uid:
            return Outcome(Bound.GONE, "the reservation is gone")
        wall_s = self._context.wall()
        body = status.bound(item.tree(), placement.node, pod.cls.requests, wall_s)
        why = await self._patch(item, body)
        if why:
            return Outcome(Bound.NO, why)
        grant = placement.claim.grants.get(NAME)
        for key in grant.pre_allocated if grant is not None else ():
            await self._pre_allocate(key, pod)
        return Outcome(Bound.YES)

    async def say(self, pod: Pod, message: str) -> bool:
        """That no node was found, and why; once for the same words. Whether it stands there."""
        item = self._watched.get(pod.holds)
        if item is None or item.metadata.uid != pod.uid:
            return False
        body = status.unschedulable(item.tree(), message, self._context.wall())
        return body is None or not await self._patch(item, body)

    async def run(self) -> None:
        """While this process leads: expiry, owners, and the end of what is over."""
        collected_s = 0.0
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            await self._sync()
            now_s = self._context.wall()
            due = now_s - collected_s >= self._args.gc_interval_seconds
            if due and not self._args.disable_garbage_collection:
                collected_s = now_s
                await self._collect()

    async def _sync(self) -> None:
        for name, reservation in tuple(self.known.items()):
            item = self._watched.get(name)
            if item is None or not reservation.node:
                continue
            try:
                body = self._synced(reservation, item)
            except UNFORESEEN as error:
                _log.error("a defect: please report it", reservation=name, exc_info=error)
                continue
            if body is not None:
                await self._patch(item, body)

    def _synced(self, reservation: Reservation, item: ReservationObject) -> dict[str, Any] | None:
        claims = self._cluster.claims
        users = [claims[k].pod for k in self._cluster.users_of(reservation.name) if k in claims]
        return status.synced(
            item.tree(),
            [pod for pod in users if pod.node == reservation.node],
            reservation.allocatable,
            reservation.node in self._cluster.row,
            self._context.wall(),
        )

    async def _collect(self) -> None:
        keep_s, now_s = float(self._args.gc_duration_seconds), self._context.wall()
        for key, item in tuple(self._watched.objects.items()):
            tree = item.tree()
            node = tree["status"].get("nodeName") or ""
            if status.collectable(tree, node in self._cluster.row, keep_s, now_s):
                writes, uid = self._context.writes, item.metadata.uid
                await _sent(writes.delete(RESERVATIONS, key.name, uid=uid))

    async def _pre_allocate(self, pod_key: str, holder: Pod) -> None:
        claim = self._cluster.claims.get(pod_key)
        if claim is None:
            return
        hand_over(self._cluster, holder.holds, (pod_key,))
        text = msgspec.json.encode({"name": holder.holds, "uid": holder.uid}).decode()
        namespace, _, name = pod_key.partition("/")
        body = {"metadata": {"uid": claim.pod.uid, "annotations": {words.ALLOCATED: text}}}
        await _sent(self._context.writes.patch(PODS, name, body, namespace))

    async def _patch(self, item: ReservationObject, body: Mapping[str, Any]) -> str:
        """Empty, or why not. Only if nobody wrote to it since it was read: what was made of an old
        status could take a reservation from its node again."""
        meta, writes = item.metadata, self._context.writes
        head = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        changes = {"metadata": head, "status": body}
        patch = writes.patch(RESERVATIONS, meta.name, changes, subresource="status")
        return await _sent(patch)


def _read(item: ReservationObject) -> Reservation | None:
    found = read_reservation(item.tree(), CLASSES)
    if found is None:
        _log.warning("a Reservation cannot be read", name=item.metadata.name)
    return found


async def _sent(write: Awaitable[Any]) -> str:
    try:
        await write
    except RefusedError as error:
        if not error.gone:
            _log.warning("a Reservation was not written", error=str(error))
        return str(error)
    except (KubeError, CredentialsError, NotLeadingError, TooManyWritesError) as error:
        return str(error)
    return ""
