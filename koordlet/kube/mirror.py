"""The objects of one kind as the API server has them: listed once, then watched.

A watch that ends goes on from the last version that it told. Where the server no longer has that
version (410), everything is listed anew, and what differs is told as changes. While the server is
away the mirror keeps what it knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from koordlet.kube.backoff import Backoff
from koordlet.kube.client import UNREADABLE, Client, decoded
from koordlet.kube.errors import (
    CredentialsError,
    KubeError,
    NoAnswerError,
    NotSentError,
    RefusedError,
    UnusableError,
)
from koordlet.kube.kinds import Kind
from koordlet.kube.known import Key as Key
from koordlet.kube.known import Known
from koordlet.kube.lines import LineTooLongError, split_lines
from koordlet.kube.objects import Event, Object, Status

WATCH_S = (300.0, 600.0)
"""How long a watch shall last, drawn anew each time, so that a thousand do not end at once."""
PAGE = 500
MOST_WAIT_S = 30.0
STEADY_S = 10.0
"""A watch that lasted this long was a good one: the next failure starts a new count."""

T = TypeVar("T", bound=Object)


class Keep(IntEnum):
    """How much of each object a mirror keeps. With NOTHING it keeps a hash, to tell after a list
    what differs: ``new`` of a change is the object then, and ``old`` is none."""

    NOTHING = 0
    LEAN = 1
    """What `Object.lean` leaves."""
    WHOLE = 2


class Change(NamedTuple, Generic[T]):
    """``old`` None: it is new. ``new`` None: it is gone. Both differ in uid where an object was
    deleted and made again while nobody watched."""

    key: Key
    old: T | None
    new: T | None


class Mirror(Generic[T]):
    """``on_change`` gets each batch of changes on the event loop, the first list as one batch.

    ``fields`` and ``labels`` are selectors of the API. ``on_fault`` hears of objects that cannot be
    decoded, which keep their last good state here. ``most_wait_s``: between two tries while the
    server is away; ``pause`` waits for so long, or until there is reason to try.
    """

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        on_change: Callable[[tuple[Change[T], ...]], None],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        page: int = PAGE,
        on_fault: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
        most_wait_s: float = MOST_WAIT_S,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.kind = kind
        self.objects: Known[T] = Known()
        self.keep = Keep.WHOLE
        """Set it before ``run``."""
        self.synced = False
        """Whether everything was listed once."""
        self.error = ""
        """Why it does not hear from the server at present; empty while it does."""
        self.missing = False
        """Whether the server does not have this kind: its definition was not applied yet."""
        self.heard_s: float | None = None
        """On ``clock``, when the server last said anything."""
        self.lists = self.watches = 0
        self._client = client
        self._on_change = on_change
        self._on_fault = on_fault
        self._namespace = namespace
        self._selectors: Mapping[str, str] = {
            name: value
            for name, value in (("fieldSelector", fields), ("labelSelector", labels))
            if value
        }
        self._page = page
        self._clock = clock
        self._draw = draw
        self._version = ""
        self._backoff = Backoff(draw, most_s=most_wait_s)
        self._pause = pause
        self._away = False
        self._retry_after_s: float | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            begun_s = self._clock()
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except (KubeError, CredentialsError) as error:
                self._failed(error)
            if self._clock() - begun_s >= STEADY_S:
                self._backoff.reset()
            if self.error:
                await self._pause(self._wait_s())
            else:
                # A server that ends watches at once must not be asked without a pause.
                await asyncio.sleep(0.05 + 0.1 * self._draw())

    def _failed(self, error: Exception) -> None:
        self.error = str(error)
        self._retry_after_s = error.retry_after_s if isinstance(error, RefusedError) else None
        missing = isinstance(error, RefusedError) and error.missing
        if missing and self.kind.versions:
            self.kind = self.kind.another()
            if self.kind.version != self.kind.versions[0]:
                self.error = ""  # it is tried at once
                return
        self.missing = missing
        if isinstance(error, RefusedError) and error.expired:
            self._version = ""
            if self._away:  # it is back: the list need not wait as long as the connection did
                self._backoff.reset()
        self._away = isinstance(error, (NotSentError, NoAnswerError))

    def _wait_s(self) -> float:
        wait_s = self._backoff.next_s()
        asked_s = self._retry_after_s or 0.0
        # Everybody was told the same number of seconds.
        return max(wait_s, asked_s * (1.0 + 0.5 * self._draw()))

    async def _list(self) -> None:
        found: Known[T] = Known()
        told: dict[str, T] = {}
        query = {**self._selectors, "limit": str(self._page)}
        while True:
            page = await self._client.page(self.kind, namespace=self._namespace, query=query)
            for raw in page.items or ():
                self._add(found, told, raw)
            if not page.metadata.continue_:
                break
            query["continue"] = page.metadata.continue_
            await asyncio.sleep(0)  # decoding a page of thousands takes tens of milliseconds
        self.lists += 1
        self._version = page.metadata.resource_version
        before, after = self.objects.by_text, found.by_text
        differing = tuple(
            Change(Key.of(text), before.get(text), told.get(text, new))
            for text, new in after.items()
            if before.get(text) != new
        ) + tuple(
            Change(Key.of(text), old, None) for text, old in before.items() if text not in after
        )
        self.objects = found
        self._heard()
        if differing or not self.synced:
            self.synced = True
            self._on_change(differing)

    def _add(self, found: Known[T], told: dict[str, T], raw: msgspec.Raw) -> None:
        try:
            new = decoded(self.kind, raw)
        except UnusableError as error:
            text = self._fault(raw, error)
            if text in self.objects.by_text:  # its last good state
                found.by_text[text] = self.objects.by_text[text]
        else:
            text = new.full_name
            found.by_text[text] = self._kept(raw, new)
            if self.keep is Keep.NOTHING:
                told[text] = new

    def _kept(self, raw: msgspec.Raw, new: T) -> Any:
        if self.keep is Keep.NOTHING:
            return hash(bytes(raw))
        return new.lean() if self.keep is Keep.LEAN else new

    def _fault(self, raw: msgspec.Raw, error: UnusableError) -> str:
        """The name of an object that cannot be decoded; empty where it cannot be read."""
        text = ""
        with contextlib.suppress(*UNREADABLE):
            text = msgspec.json.decode(raw, type=Object).full_name
        if self._on_fault is not None:
            self._on_fault(f"{text}: {error}")
        return text

    async def _watch(self) -> None:
        shortest, longest = WATCH_S
        lasts_s = shortest + (longest - shortest) * self._draw()
        query = {
            **self._selectors,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
        }
        self.watches += 1
        rest = b""
        stream = self._client.watch(
            self.kind, namespace=self._namespace, query=query, lasts_s=lasts_s
        )
        async with contextlib.aclosing(stream):
            async for piece in stream:
                self._heard()
                try:
                    lines, rest = split_lines(rest, piece)
                except LineTooLongError as error:
                    raise UnusableError(f"watch {self.kind}: {error}") from None
                self._take(lines)

    def _take(self, lines: list[bytes]) -> None:
        changes: list[Change[T]] = []
        try:
            for line in lines:
                self._one(line, changes)
        finally:
            if changes:
                self._on_change(tuple(changes))

    def _one(self, line: bytes, changes: list[Change[T]]) -> None:
        try:
            event = msgspec.json.decode(line, type=Event)
            if event.type == "ERROR":
                status = msgspec.json.decode(event.object, type=Status)
                text = f"watch {self.kind}: {status.code} {status.reason}: {status.message[:300]}"
                raise RefusedError(text, status.code, status.reason)
            bare = msgspec.json.decode(event.object, type=Object)
        except UNREADABLE as error:
            raise UnusableError(f"watch {self.kind}: {error}") from None
        self._version = bare.metadata.resource_version
        if event.type == "BOOKMARK":
            return
        text, known = bare.full_name, self.objects.by_text
        old = known.get(text)
        if event.type == "DELETED":
            if old is not None:
                del known[text]
                changes.append(Change(Key.of(text), old, None))
            return
        try:
            whole = decoded(self.kind, event.object)
        except UnusableError as error:
            self._fault(event.object, error)
            return
        if self.keep is Keep.LEAN:  # a key that stays is the string of the old object
            known.pop(text, None)
        new = known[whole.full_name] = self._kept(event.object, whole)
        changes.append(Change(Key.of(text), old, whole if self.keep is Keep.NOTHING else new))

    def _heard(self) -> None:
        self.error = ""
        self.missing = False
        self.heard_s = self._clock()


def key_of(item: Object) -> Key:
    return Key(item.metadata.namespace, item.metadata.name)
