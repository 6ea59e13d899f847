"""All writes of the companion: fenced, counted, and bounded for each node and minute."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from koordlet.kube.budget import Priority
from koordlet.kube.client import Client
from koordlet.kube.errors import KubeError, NotSentError, RefusedError
from koordlet.kube.kinds import PODS, Kind
from koordlet.kube.objects import Metadata, Object

T = TypeVar("T", bound=Object)

PER_NODE_AND_MINUTE = 12
"""Writes about one node in a minute, for all controllers together. The steady state of a node is
one write in five minutes."""
MINUTE_S = 60.0
_TRIES = 3
"""Until a status is written that others write to as well."""
_IN_TURN = Priority.READ
"""A new configuration writes to all nodes; a list that is needed meanwhile waits no longer than one
of these writes."""


class NotLeadingError(Exception):
    """Nothing was sent: another process leads, or may begin to before the request would end."""


class TooManyWritesError(Exception):
    """Nothing was sent: this node had its share of writes. ``wait_s``: until it has one again."""

    def __init__(self, text: str, wait_s: float) -> None:
        super().__init__(text)
        self.wait_s = wait_s


def perhaps_done(error: Exception) -> bool:
    """Whether a write that ended so may have happened."""
    if isinstance(error, RefusedError):
        return error.status >= 500
    return isinstance(error, KubeError) and not isinstance(error, NotSentError)


class Tally:
    """Writes of all roles of a process, which share what may be written about one node."""

    def __init__(
        self,
        most: int = PER_NODE_AND_MINUTE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """(kind, verb) -> requests sent."""
        self.refused = 0
        """Writes that a node's share did not allow."""
        self.most, self._clock = most, clock
        self._minute = 0
        self._shares: Counter[str] = Counter()
        self._last_minute: OrderedDict[str, int] = OrderedDict()

    def busiest(self) -> tuple[str, int]:
        """The node with the most writes in the last full minute, and how many."""
        self._turn()
        return max(self._last_minute.items(), key=lambda each: each[1], default=("", 0))

    def take(self, about: str, words: str) -> None:
        """Raises TooManyWritesError."""
        self._turn()
        if self._shares[about] >= self.most:
            self.refused += 1
            left_s = (self._minute + 1) * MINUTE_S - self._clock()
            text = f"{words}: node {about} had {self.most} writes in this minute"
            raise TooManyWritesError(text, max(1.0, left_s))
        self._shares[about] += 1

    def _turn(self) -> None:
        minute = int(self._clock() / MINUTE_S)
        if minute != self._minute:
            past = self._shares if minute == self._minute + 1 else Counter()
            self._last_minute = OrderedDict(past.most_common(10))
            self._shares = Counter()
            self._minute = minute


class Writes:
    """``may_write``: whether this process leads long enough for one more request.

    Methods raise NotLeadingError and TooManyWritesError besides what those of the client raise.
    ``about`` names the node whose share the write takes; empty: none.
    """

    def __init__(
        self, client: Client, may_write: Callable[[], bool], tally: Tally | None = None
    ) -> None:
        self.tally = tally if tally is not None else Tally()
        self.may_write = may_write
        self._client = client

    async def create(self, kind: Kind[T], body: Any, namespace: str = "", *, about: str = "") -> T:
        self._admit(kind, "create", about)
        return await self._client.create(kind, body, namespace, _IN_TURN)

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        strategic: bool = False,
        about: str = "",
        priority: Priority = _IN_TURN,
    ) -> T:
        self._admit(kind, "patch", about, subresource)
        fenced = subresource != "status" or not kind.group or _version_in(body)
        assert fenced, f"{kind}/status: use set_status"
        return await self._client.patch(
            kind,
            name,
            body,
            namespace,
            subresource=subresource,
            strategic=strategic,
            priority=priority,
        )

    async def set_status(
        self, kind: Kind[T], there: Metadata, status: Any, *, strategic: bool = False
    ) -> T:
        """Merge ``status`` into that of the object whose metadata is ``there``. Of a custom
        resource the server compares the version, and never the uid: where the version is another
        one by now, read it again. Raises RefusedError, ``gone`` for another object of its name."""
        version = there.resource_version
        for more in reversed(range(_TRIES)):
            changes = {"metadata": {"resourceVersion": version}, "status": status}
            try:
                return await self.patch(
                    kind,
                    there.name,
                    changes,
                    there.namespace,
                    subresource="status",
                    strategic=strategic,
                )
            except RefusedError as error:
                if not (error.conflict and more):
                    raise
            now = (await self._client.get(kind, there.name, there.namespace)).metadata
            if now.uid != there.uid:
                text = f"{kind} {there.name} is another one by now"
                raise RefusedError(text, 409, "Conflict")
            version = now.resource_version
        raise AssertionError  # the last try returns or raises

    async def replace(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        about: str = "",
    ) -> T:
        self._admit(kind, "update", about, subresource)
        return await self._client.replace(
            kind, name, body, namespace, subresource=subresource, priority=_IN_TURN
        )

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_s: int | None = None,
        about: str = "",
    ) -> None:
        self._admit(kind, "delete", about)
        await self._client.delete(
            kind, name, namespace, uid=uid, grace_s=grace_s, priority=_IN_TURN
        )

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, annotations: Mapping[str, str]
    ) -> None:
        self._admit(PODS, "create", "", "binding")
        await self._client.bind(namespace, name, node, uid=uid, annotations=annotations)

    async def evict(
        self, namespace: str, name: str, *, uid: str, grace_s: int | None = None
    ) -> None:
        """Disruption budgets are asked."""
        self._admit(PODS, "create", "", "eviction")
        await self._client.evict(namespace, name, uid=uid, grace_s=grace_s)

    def _admit(self, kind: Kind[Any], verb: str, about: str, subresource: str = "") -> None:
        what = f"{kind}/{subresource}" if subresource else str(kind)
        if not self.may_write():
            raise NotLeadingError(f"{verb} {what}: this process does not lead")
        if about:
            self.tally.take(about, f"{verb} {what}")
        self.tally.counts[(what, verb)] += 1


def _version_in(body: Any) -> str:
    return str(body.get("metadata", {}).get("resourceVersion", ""))
