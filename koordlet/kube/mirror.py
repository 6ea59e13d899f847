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

from koordlet.kube.answers import MOST_RETRY_AFTER_S, event_of, head_of, read
from koordlet.kube.backoff import Backoff
from koordlet.kube.client import BEGINS_S, PAGE, Client
from koordlet.kube.errors import (
    CredentialsError,
    KubeError,
    NoAnswerError,
    NotSentError,
    RefusedError,
    UnusableError,
)
from koordlet.kube.holdings import TOO_MUCH, Share, size_bytes
from koordlet.kube.kinds import Kind
from koordlet.kube.known import Key as Key
from koordlet.kube.known import Known
from koordlet.kube.objects import Object, Status
from koordlet.kube.paging import pages
from koordlet.kube.trouble import TOO_DEEP, Trouble
from koordlet.protocol.document import UNREADABLE

WATCH_S = (300.0, 600.0)
"""How long a watch shall last, drawn anew each time, so that a thousand do not end at once."""
MOST_OBJECTS = 500_000
"""More than three times the pods of the largest cluster that Kubernetes supports."""
MOST_MORE_OBJECTS = 20_000
"""A list of a kind that is known may have so many more than twice what is known. A longer one is
taken for one without end, and may be twice as long at the next try."""
MOST_WAIT_S = 30.0
HASTY_TRIES = 12
"""Some 40 s. After them an answer may begin as late as any other."""

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


def _nobody(_text: str) -> None:
    pass


class Mirror(Generic[T]):
    """``on_change`` gets each batch of changes on the event loop, the first list as one batch.

    ``fields`` and ``labels`` are selectors of the API. ``on_fault`` hears once of each object that
    cannot be decoded, which keeps its last good state here. ``most``: objects that are kept; more
    are passed over, as are large ones that ``client.holdings`` has no room for. ``most_wait_s``:
    between two tries while the server is away; ``pause`` waits for so long, or until there is
    reason to try.
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
        most: int = MOST_OBJECTS,
        on_fault: Callable[[str], None] = _nobody,
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
        self.trouble = Trouble(on_fault, clock)
        self._client = client
        self._on_change = on_change
        self._namespace = namespace
        self._selectors: Mapping[str, str] = {
            name: value
            for name, value in (("fieldSelector", fields), ("labelSelector", labels))
            if value
        }
        self._page = page
        self._most = most
        self._passed_over = False
        self._share = client.holdings.share()
        self._longer = 0
        """Lists in a row that were too long for what is known."""
        self._clock = clock
        self._draw = draw
        self._version = ""
        self._backoff = Backoff(draw, most_s=most_wait_s)
        self._short = Backoff(draw)
        """Of watches that end at once."""
        self._pause = pause
        self._away = False
        self._unanswered = 0
        """Tries in a row."""
        self._retry_after_s: float | None = None

    @property
    def stalled(self) -> str:
        """Why what it knows may be old; empty while it gets on, and while nobody can say."""
        stalled_s = 0.0 if self.missing else self.trouble.stalled_s()
        why = self.error or "its watches end at once"
        return f"no news for {stalled_s:.0f} s: {why}" if stalled_s else ""

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                if not self._version:
                    await self._list()
                await self._watch()
            except (KubeError, CredentialsError) as error:
                self._failed(error)
            if self.trouble.ended():
                self._backoff.reset()
                self._short.reset()
            if self._passed_over:  # there may be room for them by now
                self._version = ""
            if self.error:
                await self._pause(self._wait_s())
            else:
                await asyncio.sleep(self._short.next_s())

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
        if isinstance(error, UnusableError):
            self._version = ""  # the same version would tell the same again
        if isinstance(error, RefusedError) and error.expired:
            self._version = ""
            if self._away:  # it is back: the list need not wait as long as the connection did
                self._backoff.reset()
        self._unanswered += isinstance(error, NoAnswerError)
        self._away = isinstance(error, (NotSentError, NoAnswerError))

    @property
    def _begins_s(self) -> float | None:
        """A server that hangs for this long is overloaded: whoever gives up soon adds to that."""
        return BEGINS_S if self._unanswered < HASTY_TRIES else None

    def _wait_s(self) -> float:
        wait_s = self._backoff.next_s()
        asked_s = self._retry_after_s or 0.0
        # Everybody was told the same number of seconds.
        return max(wait_s, min(asked_s * (1.0 + 0.5 * self._draw()), MOST_RETRY_AFTER_S))

    async def _list(self) -> None:
        found: Known[T] = Known()
        share = self._share.successor()
        told: dict[str, T] = {}
        self._passed_over = False
        self.trouble.lists()
        version = ""
        listing = pages(
            self._client,
            self.kind,
            namespace=self._namespace,
            query=self._selectors,
            page=self._page,
            begins_s=self._begins_s,
        )
        async with contextlib.aclosing(listing):
            async for items, metadata in listing:
                for raw in items[: self._most - len(found)]:
                    self._add(found, share, told, raw)
                version = metadata.resource_version
                self._check_length(len(found))
                if len(found) >= self._most and metadata.continue_:
                    self._pass_over()
                    break
                # Decoding a page of thousands takes tens of milliseconds.
                await asyncio.sleep(0)
        if not version:
            raise UnusableError(f"list {self.kind}: it has no resourceVersion")
        self.lists += 1
        self._longer = 0
        self._version = version
        before, after = self.objects.by_text, found.by_text
        differing = tuple(
            Change(Key.of(text), before.get(text), told.get(text, new))
            for text, new in after.items()
            if before.get(text) != new
        ) + tuple(
            Change(Key.of(text), old, None) for text, old in before.items() if text not in after
        )
        self.objects, self._share = found, share
        share.listed()
        self._heard()
        self.trouble.progress()
        if differing or not self.synced:
            self.synced = True
            self._on_change(differing)

    def _check_length(self, number: int) -> None:
        """Raises UnusableError."""
        most = (2 * len(self.objects) + MOST_MORE_OBJECTS) << self._longer
        if self.synced and number > most:
            self._longer += 1
            raise UnusableError(
                f"list {self.kind}: more than {most} objects, where {len(self.objects)} are known"
            )

    def _add(self, found: Known[T], share: Share, told: dict[str, T], raw: msgspec.Raw) -> None:
        new = self._read(raw)
        text = self._name(raw) if new is None else new.full_name
        kept: Any = None if new is None else self._kept(raw, new)
        if new is None or not self._has_room(share, text, raw, kept):
            if text in self.objects.by_text:  # its last good state
                found.by_text[text] = self.objects.by_text[text]
                share.stays(text)
            return
        found.by_text[text] = kept
        if self.keep is Keep.NOTHING:
            told[text] = new

    def _kept(self, raw: msgspec.Raw, new: T) -> Any:
        if self.keep is Keep.NOTHING:
            return hash(bytes(raw))
        return new.lean() if self.keep is Keep.LEAN else new

    def _has_room(self, share: Share, text: str, raw: msgspec.Raw, kept: Any) -> bool:
        has_room = share.keep(text, size_bytes(raw, kept))
        if not has_room:
            self._pass_over(text, TOO_MUCH)
        return has_room

    def _read(self, raw: msgspec.Raw, *, was_cut: bool = False) -> T | None:
        """None where it cannot be decoded, which is told."""
        try:
            item, is_cut = read(self.kind, raw)
        except UnusableError as error:
            self.trouble.add(self._name(raw), str(error))
            return None
        if is_cut or was_cut:
            self.trouble.add(item.full_name, TOO_DEEP)
        elif self.trouble.objects:
            self.trouble.over(item.full_name)
        return item

    def _name(self, raw: msgspec.Raw) -> str:
        """Empty where even that cannot be read."""
        with contextlib.suppress(UnusableError):
            return head_of(raw).full_name
        return ""

    def _pass_over(self, name: str = "", why: str = "") -> None:
        self._passed_over = True
        many = f"{self.kind}: more than {self._most}; the others are passed over"
        self.trouble.add(name, why or many)

    async def _watch(self) -> None:
        shortest, longest = WATCH_S
        lasts_s = shortest + (longest - shortest) * self._draw()
        query = {
            **self._selectors,
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
        }
        self.watches += 1
        stream = self._client.watch(
            self.kind,
            namespace=self._namespace,
            query=query,
            lasts_s=lasts_s,
            begins_s=self._begins_s,
        )
        async with contextlib.aclosing(stream):
            async for lines in stream:
                self._heard()
                self.trouble.begun()
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
        event, is_cut = event_of(line)
        if event.type == "ERROR":
            raise _told(self.kind, event.object)
        head = head_of(event.object)
        version = head.metadata.resource_version
        if head.kind != self.kind.name or not version:
            raise UnusableError(f"watch {self.kind}: an event without {self.kind.name} or version")
        self._version = version
        self.trouble.progress()
        if event.type == "BOOKMARK":
            return
        text, known = head.full_name, self.objects.by_text
        old = known.get(text)
        if event.type == "DELETED":
            self.trouble.over(text)
            if old is not None:
                del known[text]
                self._share.drop(text)
                changes.append(Change(Key.of(text), old, None))
            return
        if old is None and len(known) >= self._most:
            self._pass_over()
            return
        whole = self._read(event.object, was_cut=is_cut)
        if whole is None:
            return
        kept = self._kept(event.object, whole)
        if not self._has_room(self._share, text, event.object, kept):
            return
        if self.keep is Keep.LEAN:  # a key that stays is the string of the old object
            known.pop(text, None)
        new = known[whole.full_name] = kept
        changes.append(Change(Key.of(text), old, whole if self.keep is Keep.NOTHING else new))

    def _heard(self) -> None:
        self.error = ""
        self.missing = False
        self._unanswered = 0
        self.heard_s = self._clock()


def _told(kind: Kind[Any], raw: msgspec.Raw) -> KubeError:
    """An error that the server sends in the stream."""
    try:
        status = msgspec.json.decode(raw, type=Status)
    except UNREADABLE as error:
        return UnusableError(f"watch {kind}: {error}")
    text = f"watch {kind}: {status.code} {status.reason}: {status.message[:300]}"
    return RefusedError(text, status.code, status.reason)


def key_of(item: Object) -> Key:
    return Key(item.metadata.namespace, item.metadata.name)
