"""What the API server answers: read up to a bound, and decoded, whatever it may be."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, Generic, NamedTuple, TypeVar

import aiohttp
import msgspec

from koordlet.kube.errors import KubeError, RefusedError, TooLargeError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Event, Head, Object, Page, Shape, Status
from koordlet.kube.scan import UnbalancedError, shallow, split_list
from koordlet.protocol.document import UNREADABLE

MOST_BYTES = 8 << 20
"""Of an answer. 500 pods are 2 to 8 MiB; where a page is larger, fewer objects are asked for."""
SMALL_BYTES = 1 << 20
"""Answers up to this size come side by side, larger ones one after the other."""
MOST_ERROR_BYTES = 64 << 10
MOST_RETRY_AFTER_S = 60.0
_MOST_COMMAS = 200_000
"""In a page, before its objects are counted first: each costs memory, however small it is."""
_MOST_MESSAGE = 300
T = TypeVar("T", bound=Object)
S = TypeVar("S", bound=Shape)


async def whole(
    answer: aiohttp.ClientResponse, what: str, most: int, large: asyncio.Semaphore
) -> bytearray:
    """The body. Raises TooLargeError."""
    body = bytearray()
    async with contextlib.AsyncExitStack() as stack:
        waits = True
        async for piece in answer.content.iter_any():
            body += piece
            if len(body) > most:
                raise TooLargeError(f"{what}: an answer of more than {most} bytes")
            if waits and len(body) > SMALL_BYTES:
                waits = False
                await stack.enter_async_context(large)
    return body


async def refusal(answer: aiohttp.ClientResponse, what: str) -> KubeError:
    """What the server says instead of doing it; no more of it is read than is shown."""
    body = bytearray()
    async for piece in answer.content.iter_any():
        body += piece
        if len(body) > MOST_ERROR_BYTES:
            break
    status = Status()
    # A proxy in between, or a server that is about to stop, may answer anything.
    with contextlib.suppress(*UNREADABLE):
        status = msgspec.json.decode(body, type=Status)
    message = status.message or body[:_MOST_MESSAGE].decode("utf-8", "replace").strip()
    reason = status.reason or (answer.reason or "")[:_MOST_MESSAGE]
    text = f"{what}: {answer.status} {reason}: {message[:_MOST_MESSAGE]}"
    return RefusedError(
        text.rstrip(": "), answer.status, status.reason, _retry_after_s(answer), status.fields
    )


def _retry_after_s(answer: aiohttp.ClientResponse) -> float | None:
    text = answer.headers.get("Retry-After", "")
    if not (text.isascii() and text.isdecimal()):
        return None
    return float(min(int(text[:6]), MOST_RETRY_AFTER_S))


class Read(NamedTuple, Generic[S]):
    """``is_cut``: what nests deeper than anybody reads was left out."""

    item: S
    is_cut: bool


def read(kind: Kind[T], body: bytes | bytearray | msgspec.Raw) -> Read[T]:
    """Raises UnusableError where it is no object of this kind."""
    try:
        return _decode(body, kind.shape)
    except UNREADABLE as error:
        raise UnusableError(f"{kind}: {error}") from None


def decoded(kind: Kind[T], body: bytes | bytearray | msgspec.Raw) -> T:
    """As ``read``, for who does not tell of what was left out."""
    return read(kind, body).item


def head_of(body: bytes | bytearray | msgspec.Raw) -> Head:
    """Raises UnusableError."""
    try:
        return _decode(body, Head).item
    except UNREADABLE as error:
        raise UnusableError(f"no object of the Kubernetes API ({error})") from None


def tree_of(body: bytes | bytearray | msgspec.Raw) -> dict[str, Any]:
    """The JSON value of an object, without what nests too deep and who wrote which field. Raises
    UnusableError."""
    try:
        found = msgspec.json.decode(_cut(body))
    except UNREADABLE as error:
        raise UnusableError(f"no object of the Kubernetes API ({error})") from None
    if not isinstance(found, dict) or not isinstance(meta := found.get("metadata", {}), dict):
        raise UnusableError("no object of the Kubernetes API")
    meta.pop("managedFields", None)
    return found


def answered(kind: Kind[T], body: bytearray, what: str, subresource: str = "") -> T:
    """As ``decoded``, of an answer, which says its kind."""
    name = "Scale" if subresource == "scale" else kind.name
    try:
        head = head_of(body)
    except UnusableError as error:
        raise UnusableError(f"{what}: {error}") from None
    if head.kind != name:
        raise UnusableError(f"{what}: the answer is no {name} but {head.kind[:80]!r}")
    return decoded(kind, body)


def paged(kind: Kind[T], body: bytes | bytearray, what: str, most: int) -> Page:
    """A page of at most ``most`` objects. Raises UnusableError."""
    try:
        page = _page(body, most)
    except UNREADABLE as error:
        raise UnusableError(f"{what}: no list of the Kubernetes API ({error})") from None
    if page.kind != f"{kind.name}List":
        raise UnusableError(f"{what}: the answer is no {kind.name}List but {page.kind[:80]!r}")
    return page


def _page(body: bytes | bytearray, most: int) -> Page:
    if len(body) <= SMALL_BYTES or body.count(b",") <= _MOST_COMMAS:
        with contextlib.suppress(RecursionError):
            return msgspec.json.decode(body, type=Page)
    try:
        head, items = split_list(body, most)
    except UnbalancedError as error:
        raise msgspec.DecodeError(str(error)) from None
    page = msgspec.json.decode(_cut(head), type=Page)
    return msgspec.structs.replace(page, items=tuple(map(msgspec.Raw, items)))


def event_of(line: bytes) -> Read[Event]:
    """Raises UnusableError."""
    try:
        return _decode(line, Event)
    except UNREADABLE as error:
        raise UnusableError(f"no event of the Kubernetes API ({error})") from None


def _decode(body: bytes | bytearray | msgspec.Raw, shape: type[S]) -> Read[S]:
    if not shape.open_ended:
        try:
            return Read(msgspec.json.decode(body, type=shape), False)
        except RecursionError:
            pass
    cut = _cut(body)
    return Read(msgspec.json.decode(cut, type=shape), cut != bytes(body))


def _cut(body: bytes | bytearray | msgspec.Raw) -> bytes:
    try:
        return shallow(body)
    except UnbalancedError as error:
        raise msgspec.DecodeError(str(error)) from None
