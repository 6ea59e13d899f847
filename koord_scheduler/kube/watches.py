"""One set of watches for all parts of the process: who asks for a kind again gets the same mirror.

Watches run also while another process leads, so that a new leader knows everything at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from koordlet.kube.client import Client
from koordlet.kube.following import LOOK_S, follow
from koordlet.kube.kinds import Kind
from koordlet.kube.known import Key, Known
from koordlet.kube.mirror import MOST_WAIT_S, Change, Keep, Mirror
from koordlet.kube.objects import Object

_LOOK_EVERY_S = 0.2
T = TypeVar("T", bound=Object)
Listener = Callable[[tuple[Change[T], ...]], None]


class Looks(NamedTuple):
    """How a mirror looks for a server that is away."""

    most_wait_s: float
    pause: Callable[[float], Awaitable[None]]


class Watched(Generic[T]):
    """The objects of one kind, for any number of listeners."""

    def __init__(
        self,
        client: Client,
        kind: Kind[T],
        on_fault: Callable[[str], None],
        selectors: Mapping[str, str],
        looks: Looks,
    ) -> None:
        self.kind = kind
        self.mirror: Mirror[T] = Mirror(
            client,
            kind,
            self._tell,
            on_fault=lambda text: on_fault(f"{kind} {text}"),
            most_wait_s=looks.most_wait_s,
            pause=looks.pause,
            **selectors,  # type: ignore[arg-type]
        )
        self._listeners: list[Listener[T]] = []
        self._on_first = asyncio.Event()

    @property
    def objects(self) -> Known[T]:
        return self.mirror.objects

    @property
    def synced(self) -> bool:
        return self.mirror.synced

    def get(self, name: str, namespace: str = "") -> T | None:
        return self.mirror.objects.get(Key(namespace, name))

    def widen(self, kind: Kind[Any]) -> None:
        """Before the watch begins: to a shape that has all of the present one and more."""
        if issubclass(kind.shape, self.kind.shape):
            self.kind = self.mirror.kind = kind

    def listen(self, listener: Listener[T]) -> Callable[[], None]:
        """``listener`` gets every batch of changes from now on; what is there already is in
        ``objects``. Returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def until_synced(self) -> None:
        await self._on_first.wait()

    async def until_known(self) -> None:
        """Listed; or the server has said that it does not have this kind, so there are none."""
        while not (self.synced or self.mirror.missing):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._on_first.wait()

    def _tell(self, changes: tuple[Change[T], ...]) -> None:
        self._on_first.set()
        for each in tuple(self._listeners):
            each(changes)


class Watches:
    """``of`` before ``run``: what is asked for later begins at once as well.

    ``on_fault`` hears of objects that cannot be decoded.
    """

    def __init__(self, client: Client, on_fault: Callable[[str], None]) -> None:
        self._client = client
        self._on_fault = on_fault
        self._made: dict[tuple[str, ...], Watched[Any]] = {}
        self._asked: list[Watched[Any]] = []
        self._group: asyncio.TaskGroup | None = None

    def of(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        fields: str = "",
        labels: str = "",
        optional: bool = False,
        keep: Keep = Keep.WHOLE,
    ) -> Watched[T]:
        """``optional``: who asks can begin before it was listed. Where several ask for shapes of
        which one has all of the others, all get objects of that one. ``keep``: what who asks needs
        of an object after it was told; as much is kept as any of them needs."""
        key = (str(kind), namespace, fields, labels)
        found: Watched[T] | None = self._made.get(key)
        if found is None:
            found = self._made[key] = Watched(
                self._client,
                kind,
                self._on_fault,
                {"namespace": namespace, "fields": fields, "labels": labels},
                Looks(LOOK_S, asyncio.sleep)
                if not self._made
                else Looks(MOST_WAIT_S, self._follow),
            )
            found.mirror.keep = keep
            if self._group is not None:
                self._group.create_task(found.mirror.run(), name=f"watch {kind}")
        if keep > found.mirror.keep:
            if self._group is not None:
                raise TypeError(f"{kind}: the watch has begun, and keeps less than this")
            found.mirror.keep = keep
        if found.kind is not kind and self._group is None:
            found.widen(kind)
        if not issubclass(found.kind.shape, kind.shape):
            raise TypeError(
                f"{kind}: one watch cannot give both {found.kind.shape} and {kind.shape}"
            )
        if not optional:
            self._asked.append(found)
        return found

    def asked(self) -> tuple[Watched[Any], ...]:
        """What ``of`` gave since the last call: who made a controller in between learns what that
        one needs."""
        found, self._asked = tuple(dict.fromkeys(self._asked)), []
        return found

    async def run(self) -> None:
        """Until it is cancelled."""
        async with asyncio.TaskGroup() as self._group:
            for each in self._made.values():
                self._group.create_task(each.mirror.run(), name=f"watch {each.kind}")
            await asyncio.Event().wait()

    def unsynced(self, *, missing: bool = False) -> dict[str, str]:
        """Kind -> why it was never listed, as far as is known. ``missing``: those that the server
        does not have, instead of those that it has."""
        return {
            str(each.kind): each.mirror.error or "not listed yet"
            for each in self._made.values()
            if not each.synced and each.mirror.missing is missing
        }

    def versions(self) -> dict[str, str]:
        """Kind -> the version that the server serves, of kinds of which several will do."""
        return {
            str(each.kind): each.mirror.kind.api_version
            for each in self._made.values()
            if each.synced and each.kind.versions
        }

    def stalled(self) -> dict[str, str]:
        """Kind -> why nothing new is heard of it."""
        return {str(each.kind): why for each in self._made.values() if (why := each.mirror.stalled)}

    def unreadable(self) -> Iterator[tuple[str, str]]:
        """Objects that cannot be read as they are, and why."""
        for each in self._made.values():
            for name, why in each.mirror.trouble.objects.items():
                yield f"{each.kind} {name}".rstrip(), why

    async def _follow(self, seconds: float) -> None:
        """The first one looks for a server that is away."""
        first = next(iter(self._made.values())).mirror
        await follow(lambda: bool(first.error) and not first.missing, seconds, time.monotonic)

    def all(self) -> tuple[Watched[Any], ...]:
        return tuple(self._made.values())
