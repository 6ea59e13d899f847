"""Events that `kubectl describe` shows: told once, counted afterwards, bounded in number."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from koordlet.kube.budget import Priority
from koordlet.kube.client import Client
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.times import instant

EVENTS = Kind("", "v1", "Event", "events", True, Object)
MAX_MESSAGE = 1024
"""As the API server allows."""
KEPT = 1024
"""Events remembered, so that the same one again only counts."""
EVERY_S = 10.0
"""At most one write for the same event in this time."""


class Subject(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class _Same(NamedTuple):
    subject: Subject
    type: str
    reason: str
    message: str
    """Empty where the newest message takes the place of the one before."""


@dataclass
class _Counted:
    message: str = ""
    name: str = ""
    """Of the Event object; empty while there is none."""
    count: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    due_s: float = 0.0


class Events:
    """``tell`` returns at once; ``run`` writes. ``component`` and ``host`` say who speaks."""

    def __init__(
        self,
        client: Client,
        component: str,
        host: str = "",
        *,
        every_s: float = EVERY_S,
        may_write: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """``may_write``: asked before each event; those that it forbids are forgotten, because
        another process speaks by then."""
        self.dropped = 0
        """Forgotten before they could be written."""
        self.error = ""
        self._client, self._may_write = client, may_write
        self._source = {"component": component, **({"host": host} if host else {})}
        self._every_s, self._clock, self._wall = every_s, clock, wall
        self._known: OrderedDict[_Same, _Counted] = OrderedDict()
        self._unsaid: dict[_Same, _Counted] = {}
        """Events that are to be written, now or when they are due again."""
        self._wake = asyncio.Event()

    def tell(
        self,
        subject: Subject,
        kind: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        latest: bool = False,
    ) -> None:
        """``latest``: one event for this reason, which says what was told last."""
        message = message[:MAX_MESSAGE]
        same = _Same(subject, kind, reason, "" if latest else message)
        now_s = self._wall()
        known = self._known.get(same)
        if known is None:
            known = self._known[same] = _Counted(first_s=now_s)
            if len(self._known) > KEPT:
                old, _ = self._known.popitem(last=False)
                self.dropped += self._unsaid.pop(old, None) is not None
        self._known.move_to_end(same)
        known.count += 1
        known.message = message
        known.last_s = now_s
        self._unsaid[same] = known
        self._wake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._write_due()
            if self._unsaid and not self._wake.is_set():
                due_s = min(each.due_s for each in self._unsaid.values())
                wait_s = max(0.01, due_s - self._clock())
                try:
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()
                except TimeoutError:
                    self._wake.set()

    async def _write_due(self) -> None:
        now_s = self._clock()
        for same, each in tuple(self._unsaid.items()):
            if each.due_s > now_s or self._unsaid.get(same) is not each:
                continue
            if not self._may_write():
                self._known.clear()
                self._unsaid.clear()
                return
            each.due_s = now_s + self._every_s
            del self._unsaid[same]
            try:
                await self._write(same, each)
                self.error = ""
            except (KubeError, CredentialsError) as error:
                self.error = str(error)
                if self._known.get(same) is not each:
                    continue  # forgotten meanwhile, and perhaps told anew
                if isinstance(error, RefusedError) and not error.passing:
                    self._unsaid.pop(same, None)
                else:  # when it is due again: an event is never worth a retry at once
                    self._unsaid[same] = each

    async def _write(self, same: _Same, each: _Counted) -> None:
        namespace = same.subject.namespace or "default"
        if each.name:
            changes: dict[str, Any] = {
                "count": each.count,
                "lastTimestamp": instant(each.last_s),
                **({} if same.message else {"message": each.message}),
            }
            try:
                await self._client.patch(
                    EVENTS, each.name, changes, namespace, priority=Priority.EVENT
                )
                return
            except RefusedError as error:
                if not error.missing:  # the server forgets events after an hour
                    raise
        # The name is chosen first: an answer that gets lost does not make a second event.
        # No label of a name ends with a dash, wherever it is cut.
        start = same.subject.name[:200].rstrip("-.")
        each.name = each.name or f"{start}.{uuid.uuid4().hex[:16]}"
        try:
            body = self._body(same, each, namespace)
            await self._client.create(EVENTS, body, namespace, priority=Priority.EVENT)
        except RefusedError as error:
            if not error.exists:
                each.name = ""
                raise

    def _body(self, same: _Same, each: _Counted, namespace: str) -> dict[str, Any]:
        subject = same.subject
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": each.name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": subject.api_version,
                "kind": subject.kind,
                "namespace": subject.namespace,
                "name": subject.name,
                "uid": subject.uid,
            },
            "type": same.type,
            "reason": same.reason,
            "message": each.message,
            "count": each.count,
            "firstTimestamp": instant(each.first_s),
            "lastTimestamp": instant(each.last_s),
            "source": self._source,
            "reportingComponent": self._source["component"],
        }
