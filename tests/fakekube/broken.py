"""Ways in which an API server, or what stands before it, can be broken, beyond what `Fault` says of
one request: set one as ``faults.breaks``. None lets the fake server answer as it should."""

from __future__ import annotations

import asyncio
import functools
import gzip
import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from aiohttp import web

Break = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
MIB = 1 << 20
_JSON = {"Content-Type": "application/json"}


def nested(levels: int) -> str:
    return '{"f:a":' * levels + "{}" + "}" * levels


def deep(name: str, kind: str, levels: int, version: int = 1, **more: Any) -> str:
    """JSON of an object as the API server stores it for whoever writes such managed fields."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "managedFields": ["*"]}
    tree = {"kind": kind, "metadata": {**meta, "resourceVersion": str(version)}, **more}
    fields = {"manager": "m", "fieldsType": "FieldsV1", "fieldsV1": "*"}
    return json.dumps(tree).replace('"*"', json.dumps(fields)).replace('"*"', nested(levels))


def listed(
    kind: str, items: Iterator[str] | list[str], more: str = "", remaining: int | None = None
) -> Iterator[bytes]:
    """A list in pieces. ``more``: the token for what comes after it."""
    meta = {"resourceVersion": "1", "continue": more, "remainingItemCount": remaining}
    yield f'{{"kind":"{kind}List","metadata":{json.dumps(meta)},"items":['.encode()
    for number, item in enumerate(items):
        yield ("," * (number > 0) + item).encode()
    yield b"]}"


def is_watch(request: web.Request) -> bool:
    return request.query.get("watch") == "1"


async def send(
    request: web.Request,
    pieces: Iterator[bytes],
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> web.StreamResponse:
    """As much of it as the client takes."""
    answer = web.StreamResponse(status=status, headers={**_JSON, **(headers or {})})
    try:
        await answer.prepare(request)
        held = bytearray()
        for piece in pieces:
            held += piece
            if len(held) >= MIB:
                await answer.write(bytes(held))
                held.clear()
        await answer.write(bytes(held))
    except ConnectionError:
        pass
    return answer


async def silent(_request: web.Request) -> web.StreamResponse | None:
    await asyncio.Event().wait()
    return None


async def wordy(request: web.Request) -> web.StreamResponse | None:
    return await send(request, (b"x" * MIB for _ in range(250)), 500)


async def patient(_request: web.Request) -> web.StreamResponse | None:
    return web.Response(status=429, headers={"Retry-After": "99999"})


async def another(_request: web.Request) -> web.StreamResponse | None:
    return web.json_response({"status": "ok"})


async def brackets(request: web.Request) -> web.StreamResponse | None:
    return await send(request, (b"[" * MIB for _ in range(7)))


async def bomb(request: web.Request) -> web.StreamResponse | None:
    return await send(request, iter((_bomb(),)), 200, {"Content-Encoding": "gzip"})


@functools.cache
def _bomb() -> bytes:
    return gzip.compress(b" " * (200 * MIB), 1)


async def short_watches(request: web.Request) -> web.StreamResponse | None:
    return web.Response() if is_watch(request) else None


async def long_lines(request: web.Request) -> web.StreamResponse | None:
    return await send(request, (b"x" * MIB for _ in range(200))) if is_watch(request) else None


def pages(
    kind: str,
    items: Callable[[int, int], Iterator[str] | list[str]],
    last: int | None = None,
    token: str | Sequence[str] = (),
    remaining: int | None = None,
) -> Break:
    """Lists of this kind: ``items`` makes a page of its number and its size. ``last``: the number
    of the last page; None: they have no end. ``token``: what pages say by turns instead of others.
    ``remaining``: how many objects each page promises beside its own."""

    async def breaks(request: web.Request) -> web.StreamResponse | None:
        plural = request.path.rpartition("/")[2]
        if is_watch(request) or request.method != "GET" or plural != f"{kind.lower()}s":
            return None
        number = int(request.query.get("continue") or 0)
        limit = int(request.query.get("limit") or 500)
        more = "" if number == last else str(number + 1)
        if token:
            more = token[number % len(token)]
        return await send(request, listed(kind, items(number, limit), more, remaining))

    return breaks


def events(kind: str, lines: Callable[[], Iterator[str]]) -> Break:
    """Watches of this kind tell of these objects."""

    async def breaks(request: web.Request) -> web.StreamResponse | None:
        if not is_watch(request) or request.path.rpartition("/")[2] != f"{kind.lower()}s":
            return None
        told = (b'{"type":"ADDED","object":%b}\n' % each.encode() for each in lines())
        return await send(request, told)

    return breaks
