"""Reservations of the scheduler: placed as pods are, and kept in step with who uses them
(docs/reference/central.md 7.2, 7.8)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.queue import UNFORESEEN
from koord_scheduler.kube.reservation_shapes import RESERVATIONS, ReservationObject
from koord_scheduler.kube.scheduling.binder import Bound, Outcome
from koord_scheduler.kube.scheduling.shapes import CLASSES, PODS
from koord_scheduler.kube.writes import NotLeadingError, TooManyWritesError
from koord_scheduler.model.annotations import GIVEN, RESERVATION_ALLOCATED
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.place.grants import claim_of
from koord_scheduler.place.reservation import reservation as words
from koord_scheduler.place.reservation import status
from koord_scheduler.place.reservation.arguments import ReservationArgs
from koord_scheduler.place.reservation.fitting import users_of
from koord_scheduler.place.reservation.matching import named_by
from koord_scheduler.place.reservation.preallocation import hand_over, lenders
from koord_scheduler.place.reservation.reading import read_operating_pod, read_reservation
from koord_scheduler.place.reservation.reservation import Reservation
from koord_scheduler.plan.outcomes import Placement
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.mirror import Change

SYNC_EVERY_S = 3.0
SETTLE_S = 0.1
"""Time in which pods may come to a reservation before its status is told of them together."""
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
        self,
        context: Context,
        cluster: Cluster,
        follower: Follower,
        args: ReservationArgs,
        recognise: Callable[[Pod], Mapping[str, Any]],
    ) -> None:
        self.known: dict[str, Reservation] = {}
        self._context, self._cluster, self._follower = context, cluster, follower
        self._args, self._recognise = args, recognise
        self._touched: set[str] = set()
        """Uids of those whose users changed since the last sync."""
        self._pods: dict[str, Reservation] = {}
        """Pods that are reservations themselves, by key."""
        self._wake = asyncio.Event()
        cluster.follow(self._on_claim)
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
        self._show(nodes)

    def look_again(self, pod: Pod) -> None:
        """Take up a reservation, by its reserve pod, as it is by now."""
        known = self.known.get(pod.holds)
        if known is not None and known.uid == pod.uid:
            self._take(known)

    def pod_changed(self, pod: Pod, *, gone: bool = False) -> None:
        """A pod with a node came, changed or went: it may be a reservation."""
        old = self._pods.pop(pod.key, None)
        new = None if gone else read_operating_pod(pod)
        if new is not None:
            self._pods[pod.key] = new
        if old != new:
            self._show({each.node for each in (old, new) if each is not None})

    def _show(self, nodes: set[str]) -> None:
        known = {**self.known, **self._pods}
        for node in nodes - {""}:
            there = {r.name: r for r in known.values() if r.node == node and r.available}
            self._cluster.put(words.RESERVATIONS, node, there or None)
        named = named_by(known)
        changed = named ^ CLASSES.named
        CLASSES.named = named
        self._follower.reservations_changed(changed)

    def _take(self, new: Reservation) -> None:
        cluster = self._cluster
        if new.available:
            cluster.put(words.WAITING, new.name, None)
            before = cluster.claims.get(new.pod.key)
            if before is None or before.node != new.node or before.pod != new.pod:
                cluster.add(claim_of(new.pod, before, self._recognise, self._context.wall()))
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

    def _on_claim(self, claim: Claim, _sign: int) -> None:
        if claim.reservation and claim.pod.node:
            self._touched.add(claim.reservation)
            self._wake.set()

    # To the API server.

    async def bind(self, placement: Placement) -> Outcome:
        """The status says where it is; there is no pod to bind. Annotations say what it was given,
        and which pods have lent their room; they stand there before the status does, and until
        then they mean nothing."""
        pod = placement.pod
        item, known = self._watched.get(pod.holds), self.known.get(pod.holds)
        if item is None or known is None or item.metadata.uid != pod.uid:
            return Outcome(Bound.GONE, "the reservation is gone")
        if known.node or known.phase in _OVER:
            return Outcome(
                Bound.ELSEWHERE, "somebody else gave the reservation a node, or ended it"
            )
        if known.pod.cls is not pod.cls:
            return Outcome(Bound.NO, "the reservation was changed meanwhile")
        there, version = item.metadata.annotations, item.metadata.resource_version
        told: dict[str, str | None] = {key: None for key in GIVEN if key in there}
        told.update(placement.annotations)
        told = {key: text for key, text in told.items() if there.get(key) != text}
        try:
            if told:
                head = {"uid": pod.uid, "resourceVersion": version, "annotations": told}
                writes = self._context.writes
                made = await writes.patch(RESERVATIONS, pod.holds, {"metadata": head})
                version = made.metadata.resource_version
            for key in lenders(placement.claim):
                await self._take_room(key, pod)
            wall_s = self._context.wall()
            body = status.bound(item.tree(), placement.node, known.texts, wall_s)
            await self._write_status(item, body, version)
        except _REFUSED as error:
            return Outcome(Bound.NO, _said(error))
        return Outcome(Bound.YES)

    async def _take_room(self, key: str, holder: Pod) -> None:
        """Tell a running pod that a reservation has its room. One that is gone left it free. Raises
        one of ``_REFUSED``."""
        claim = self._cluster.claims.get(key)
        if claim is None or claim.reservation == holder.uid:
            return
        text = words.allocated_text(holder.holds, holder.uid)
        body = {"metadata": {"uid": claim.pod.uid, "annotations": {RESERVATION_ALLOCATED: text}}}
        namespace, _, name = key.partition("/")
        try:
            await self._context.writes.patch(PODS, name, body, namespace)
        except RefusedError as error:
            if not error.gone:
                raise
        else:
            hand_over(self._cluster, holder.uid, (key,))

    async def say(self, pod: Pod, message: str) -> bool:
        """That no node was found, and why; once for the same words. Whether it stands there."""
        item = self._watched.get(pod.holds)
        if item is None or item.metadata.uid != pod.uid:
            return False
        body = status.unschedulable(item.tree(), message, self._context.wall())
        return body is None or await self._patch(item, body)

    async def run(self) -> None:
        """While this process leads: expiry, owners, and the end of what is over."""
        collected_s, all_s = 0.0, self._context.clock()
        while True:
            wait_s = all_s + SYNC_EVERY_S - self._context.clock()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, 0.0)):
                    await self._wake.wait()
                    await asyncio.sleep(SETTLE_S)
            touched, self._touched = self._touched, set()
            self._wake.clear()
            if self._context.clock() < all_s + SYNC_EVERY_S:
                await self._sync(touched)
                continue
            all_s = self._context.clock()
            await self._sync(None)
            now_s = self._context.wall()
            due = now_s - collected_s >= self._args.gc_interval_seconds
            if due and not self._args.disable_garbage_collection:
                collected_s = now_s
                await self._collect()

    async def _sync(self, uids: Collection[str] | None) -> None:
        """``uids``: of those that may have other users; None: of all."""
        for name, reservation in tuple(self.known.items()):
            item = self._watched.get(name)
            if item is None or not reservation.node:
                continue
            if uids is not None and reservation.uid not in uids:
                continue
            try:
                body = self._synced(reservation, item)
            except UNFORESEEN as error:
                _log.error("a defect: please report it", reservation=name, exc_info=error)
                continue
            if body is not None:
                await self._patch(item, body)

    def _synced(self, reservation: Reservation, item: ReservationObject) -> dict[str, Any] | None:
        users = users_of(self._cluster, reservation)
        return status.synced(
            item.tree(),
            [pod for pod in users if pod.node == reservation.node],
            reservation.node in self._cluster.row,
            self._context.wall(),
        )

    async def _collect(self) -> None:
        keep_s, now_s = float(self._args.gc_duration_seconds), self._context.wall()
        for key, item in tuple(self._watched.objects.items()):
            tree = item.tree()
            node = tree["status"].get("nodeName") or ""
            if status.collectable(tree, node in self._cluster.row, keep_s, now_s):
                try:
                    await self._context.writes.delete(RESERVATIONS, key.name, uid=item.metadata.uid)
                except _REFUSED as error:
                    _said(error)

    async def _patch(self, item: ReservationObject, body: Mapping[str, Any]) -> bool:
        """Return whether it was written."""
        try:
            await self._write_status(item, body, item.metadata.resource_version)
        except _REFUSED as error:
            _said(error)
            return False
        return True

    async def _write_status(
        self, item: ReservationObject, body: Mapping[str, Any], version: str
    ) -> None:
        """Only if nobody wrote to it since ``version`` was read: what was made of an old status
        could take a reservation from its node again. Raises one of ``_REFUSED``."""
        head = {"uid": item.metadata.uid, "resourceVersion": version}
        changes = {"metadata": head, "status": body}
        name, writes = item.metadata.name, self._context.writes
        await writes.patch(RESERVATIONS, name, changes, subresource="status")


def _read(item: ReservationObject) -> Reservation | None:
    found = read_reservation(item.tree(), CLASSES)
    if found is None:
        _log.warning("a Reservation cannot be read", name=item.metadata.name)
    return found


_REFUSED = (KubeError, CredentialsError, NotLeadingError, TooManyWritesError)


def _said(error: Exception) -> str:
    """Log what is worth it; return the words."""
    expected = isinstance(error, RefusedError) and error.gone
    if isinstance(error, RefusedError) and not expected:
        _log.warning("a Reservation was not written", error=str(error))
    return str(error)
