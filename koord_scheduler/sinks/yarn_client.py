"""The REST interface of YARN's ResourceManager: its nodes, and what each may use.

It needs Hadoop 3.3 or later. A ResourceManager forgets what it was told when it or a NodeManager
starts anew, so whoever writes compares again and again. Its own answers are in
`tests/companion/sinks/recorded`.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from koord_scheduler.sinks.yarn_shares import Share
from koordlet import __version__
from koordlet.kube.tls import trusting
from koordlet.protocol.document import UNREADABLE

DEADLINE_S = 10.0
_MOST_BYTES = 64 << 20
_MOST_MESSAGE = 300
_NODES = "/ws/v1/cluster/nodes"
_RUNNING = "RUNNING"


class YarnError(Exception):
    """A request that did not succeed. The text says which, and why."""


class _Resource(msgspec.Struct, frozen=True):
    memory: int = 0
    vcores: int = msgspec.field(default=0, name="vCores")


class _Node(msgspec.Struct, frozen=True):
    id: str
    state: str = ""
    total: _Resource | None = msgspec.field(default=None, name="totalResource")
    used: _Resource | None = msgspec.field(default=None, name="usedResource")
    used_memory_mib: int = msgspec.field(default=0, name="usedMemoryMB")
    used_vcores: int = msgspec.field(default=0, name="usedVirtualCores")
    free_memory_mib: int = msgspec.field(default=0, name="availMemoryMB")
    free_vcores: int = msgspec.field(default=0, name="availableVirtualCores")


class _Nodes(msgspec.Struct, frozen=True):
    node: list[_Node] | _Node | None = None


class _Answer(msgspec.Struct, frozen=True):
    nodes: _Nodes | None


class _Exception(msgspec.Struct, frozen=True):
    exception: str = ""
    message: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    exception: _Exception = msgspec.field(name="RemoteException")


class YarnNode(NamedTuple):
    """A NodeManager that runs. ``total``: what YARN lets it use; ``used``: what containers have."""

    id: str
    total: Share
    used: Share


class Access(NamedTuple):
    """``user``: who asks, where YARN has no Kerberos. ``token_file``: a bearer token for a gateway
    before it, read anew for each request. ``ca_file``: whom to trust instead of the system's."""

    user: str = ""
    token_file: str = ""
    ca_file: str = ""


NO_ACCESS = Access()


class ResourceManager:
    """``urls``: of one cluster; with high availability several, of which one is active. Use as
    ``async with``. Methods raise YarnError."""

    def __init__(self, urls: tuple[str, ...], access: Access = NO_ACCESS) -> None:
        self._urls, self._access = urls, access
        self._active = 0
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> ResourceManager:
        tls = _tls(self._access.ca_file) if self._access.ca_file else None
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=4, ssl=tls if tls is not None else True),
            timeout=aiohttp.ClientTimeout(total=DEADLINE_S, connect=DEADLINE_S / 2),
            headers={"Accept": "application/json", "User-Agent": f"koord-scheduler/{__version__}"},
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def nodes(self) -> list[YarnNode]:
        """Those that run, from the ResourceManager that is active."""
        problems = []
        for turn in range(len(self._urls)):
            place = (self._active + turn) % len(self._urls)
            try:
                found = _nodes(await self._ask("GET", self._urls[place], _NODES))
            except YarnError as error:
                problems.append(str(error))
            else:
                self._active = place
                return found
        raise YarnError("; ".join(problems))

    async def offer(self, node: str, share: Share, over_commit_timeout_ms: int = -1) -> None:
        """What the NodeManager ``node`` may use from now on. ``over_commit_timeout_ms``: after how
        long containers that no longer fit are killed; -1: they may end."""
        path = f"{_NODES}/{quote(node, safe='')}/resource"
        resource = {"memory": share.memory_mib, "vCores": share.vcores}
        body = {"resource": resource, "overCommitTimeout": over_commit_timeout_ms}
        await self._ask("POST", self._urls[self._active], path, body)

    async def _ask(self, method: str, url: str, path: str, body: Any = None) -> bytes:
        assert self._session is not None
        what = f"{method} {url}{path}"
        query = {"user.name": self._access.user} if self._access.user else {}
        if method == "GET":
            query["states"] = _RUNNING
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if self._access.token_file:
            headers["Authorization"] = f"Bearer {await self._token()}"
        try:
            async with self._session.request(
                method, url + path, params=query, data=data, headers=headers, allow_redirects=False
            ) as answer:
                text = await _whole(answer, what)
                if answer.status != 200:
                    raise _refused(what, answer, text)
                return text
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            why = "no answer in time" if isinstance(error, TimeoutError) else str(error)
            raise YarnError(f"{what}: {why or type(error).__name__}") from None

    async def _token(self) -> str:
        path = Path(self._access.token_file)
        try:
            text = (await asyncio.to_thread(path.read_text)).strip()
        except (OSError, UnicodeDecodeError) as error:
            raise YarnError(f"token file {path}: {error}") from None
        if not text or not text.isascii() or not text.isprintable():
            raise YarnError(f"token file {path}: holds no token")
        return text


def parse_managers(texts: list[str]) -> dict[str, tuple[str, ...]]:
    """``[CLUSTER=]URL[,URL...]`` each. Raises ValueError with what to write instead."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        head, equals, rest = text.partition("=")
        cluster, rest = (head, rest) if equals and "/" not in head else ("", text)
        urls = tuple(url.rstrip("/") for url in rest.split(",") if url)
        for url in urls or ("",):
            parts = urlsplit(url)
            named = parts.hostname and parts.scheme in ("http", "https")
            if not named or parts.path or parts.query or parts.username:
                raise ValueError(
                    f"{text!r}: {url!r} is no address of a ResourceManager: write "
                    "http://HOST:8088 or CLUSTER=http://HOST:8088"
                )
        if cluster in found:
            raise ValueError(f"{text!r}: cluster {cluster!r} is named twice; join URLs by commas")
        found[cluster] = urls
    return found


def _nodes(text: bytes) -> list[YarnNode]:
    try:
        found = msgspec.json.decode(text, type=_Answer).nodes
    except UNREADABLE as error:
        raise YarnError(f"GET {_NODES}: no answer of a ResourceManager ({error})") from None
    nodes = found.node if found is not None else None
    listed = nodes if isinstance(nodes, list) else [nodes] if nodes is not None else []
    return [_node(each) for each in listed if each.state == _RUNNING]


def _node(each: _Node) -> YarnNode:
    if each.used is not None and each.total is not None:
        used = Share(each.used.vcores, each.used.memory)
        return YarnNode(each.id, Share(each.total.vcores, each.total.memory), used)
    used = Share(each.used_vcores, each.used_memory_mib)
    total = Share(used.vcores + each.free_vcores, used.memory_mib + each.free_memory_mib)
    return YarnNode(each.id, total, used)


async def _whole(answer: aiohttp.ClientResponse, what: str) -> bytes:
    pieces, size = [], 0
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > _MOST_BYTES:
            raise YarnError(f"{what}: an answer of more than {_MOST_BYTES} bytes")
    return b"".join(pieces)


def _refused(what: str, answer: aiohttp.ClientResponse, body: bytes) -> YarnError:
    if 300 <= answer.status < 400:
        return YarnError(f"{what}: {answer.status}: it sends us elsewhere, so it is not active")
    if answer.status == 401 and "Negotiate" in answer.headers.get("WWW-Authenticate", ""):
        return YarnError(
            f"{what}: 401: it wants Kerberos, which is not supported: name a gateway that takes a "
            "bearer token (--yarn-token-file)"
        )
    try:
        message = msgspec.json.decode(body, type=_Refusal).exception.message
    except UNREADABLE:
        message = body[:_MOST_MESSAGE].decode("utf-8", "replace").strip()
    return YarnError(f"{what}: {answer.status} {answer.reason}: {message[:_MOST_MESSAGE]}")


def _tls(ca_file: str) -> ssl.SSLContext:
    try:
        return trusting(file=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise YarnError(f"{ca_file}: {error}") from None
