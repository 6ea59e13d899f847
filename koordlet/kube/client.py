"""Requests to the API server, each with a deadline, on aiohttp."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any, TypeVar

import aiohttp
import msgspec

from koordlet import __version__
from koordlet.kube.budget import Priority, RequestBudget
from koordlet.kube.credentials import BearerToken, Cluster
from koordlet.kube.errors import KubeError, NoAnswerError, NotSentError, RefusedError, UnusableError
from koordlet.kube.kinds import PODS, Kind
from koordlet.kube.objects import Object, Page, Status
from koordlet.kube.tls import TlsContext

DEADLINE_S = 10.0
CONNECT_S = 5.0
_MAX_ANSWER_BYTES = 256 << 20
"""A page of 5,000 nodes is 23 MB."""
_MAX_MESSAGE = 300
UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What msgspec raises. The API server takes objects of more levels than Python has frames."""
_ALIVE_IDLE_S, _ALIVE_EVERY_S, _ALIVE_TRIES = 3, 1, 2
"""A watch says nothing for minutes; keepalive tells within 5 s that its server is gone. What a
server could not send for longer it sends again ever more seldom: a new connection is sooner right.
"""

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
T = TypeVar("T", bound=Object)


class Client:
    """One connection pool to one cluster. Use as ``async with``.

    Methods raise KubeError of the kind that fits, and CredentialsError. Writes and lists share a
    budget; watches wait for nobody. ``deadline_s``: of a request, its wait for the budget included,
    which may take half of it: who may send until some instant must know when the last one ends.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        agent: str = "koordlet",
        per_second: float = 20.0,
        burst: int = 40,
        deadline_s: float = DEADLINE_S,
        connections: int = 32,
    ) -> None:
        self.cluster = cluster
        self.writes = 0
        """Requests sent that change something, for those who count them."""
        self._agent = f"{agent}/{__version__}"
        self._deadline_s = deadline_s
        self._connections = connections
        self._budget = RequestBudget(per_second, burst, time.monotonic)
        self._token = BearerToken(cluster.token, time.monotonic) if cluster.token else None
        https = cluster.server.startswith("https://")
        self._tls = TlsContext(cluster, time.monotonic) if https else None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def get(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        *,
        priority: Priority = Priority.READ,
    ) -> T:
        body = await self._request("GET", kind.path(namespace, name), priority=priority)
        return decoded(kind, body)

    async def page(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
        priority: Priority = Priority.READ,
    ) -> Page:
        """One page of a list. ``query``: ``limit``, ``continue``, ``fieldSelector`` ..."""
        path = kind.path(namespace)
        body = await self._request("GET", path, query=query, priority=priority)
        try:
            return msgspec.json.decode(body, type=Page)
        except UNREADABLE as error:
            raise UnusableError(f"GET {path}: no list of the Kubernetes API ({error})") from None

    async def create(
        self, kind: Kind[T], body: Any, namespace: str = "", priority: Priority = Priority.STATUS
    ) -> T:
        path = kind.path(namespace)
        return decoded(kind, await self._request("POST", path, body=body, priority=priority))

    async def replace(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        priority: Priority = Priority.STATUS,
    ) -> T:
        """PUT: the object becomes ``body``, if it still has the resourceVersion that is in it."""
        path = kind.path(namespace, name, subresource)
        return decoded(kind, await self._request("PUT", path, body=body, priority=priority))

    async def patch(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        namespace: str = "",
        *,
        subresource: str = "",
        strategic: bool = False,
        priority: Priority = Priority.STATUS,
    ) -> T:
        """A JSON merge patch (RFC 7386). With ``metadata.uid`` or ``metadata.resourceVersion`` in
        it, the server refuses it for another object or another version (409). ``strategic``: lists
        with a key, such as conditions, are merged by it; Kubernetes' own kinds alone know that."""
        path = kind.path(namespace, name, subresource)
        content = STRATEGIC_PATCH if strategic else MERGE_PATCH
        answer = await self._request("PATCH", path, body=body, content=content, priority=priority)
        return decoded(kind, answer)

    async def apply(
        self,
        kind: Kind[T],
        name: str,
        body: Any,
        namespace: str = "",
        *,
        manager: str,
        priority: Priority = Priority.STATUS,
    ) -> T:
        """Server-side apply: make the object, or give it the fields of ``body``, which ``manager``
        then owns, whoever had them."""
        answer = await self._request(
            "PATCH",
            kind.path(namespace, name),
            query={"fieldManager": manager, "force": "true"},
            body=body,
            content=APPLY_PATCH,
            priority=priority,
        )
        return decoded(kind, answer)

    async def delete(
        self,
        kind: Kind[T],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_s: int | None = None,
        priority: Priority = Priority.STATUS,
    ) -> None:
        """``uid``: only if it is still this one."""
        options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        path = kind.path(namespace, name)
        await self._request("DELETE", path, body=options, priority=priority)

    async def evict(
        self, namespace: str, name: str, *, uid: str, grace_s: int | None = None
    ) -> None:
        """Through the eviction API, which asks the disruption budgets. It refuses with
        ``throttled`` where one does not allow it."""
        options: dict[str, Any] = {"preconditions": {"uid": uid}}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        path = PODS.path(namespace, name, "eviction")
        await self._request("POST", path, body=body, priority=Priority.EVICT)

    async def bind(
        self,
        namespace: str,
        name: str,
        node: str,
        *,
        uid: str,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """The pod gets its node and these annotations in one write."""
        meta: dict[str, Any] = {"name": name, "namespace": namespace, "uid": uid}
        if annotations:
            meta["annotations"] = annotations
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": meta,
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = PODS.path(namespace, name, "binding")
        await self._request("POST", path, body=body, priority=Priority.BIND)

    async def raw(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """What a path answers to GET, for what is no object: ``/version``, ``/readyz`` ..."""
        return await self._request("GET", path, query=query)

    async def watch(
        self, kind: Kind[T], *, namespace: str = "", query: Mapping[str, str], lasts_s: float
    ) -> AsyncGenerator[bytes, None]:
        """Pieces of the stream of a watch as they come, until the server ends it; an empty one says
        that it has begun. ``lasts_s``: when it should end; it is cut some seconds later."""
        path = kind.path(namespace)
        asked = {**query, "watch": "1", "timeoutSeconds": str(int(lasts_s))}
        timeout = aiohttp.ClientTimeout(total=lasts_s + self._deadline_s, connect=CONNECT_S)
        try:
            async with self._send("GET", path, query=asked, timeout=timeout) as answer:
                if answer.status != 200:
                    raise _refusal(f"watch {path}", answer, await _whole(answer, path))
                yield b""
                async for piece in answer.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswerError(f"watch {path}: {_words(error)}") from None

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = "application/json",
        priority: Priority = Priority.READ,
    ) -> bytes:
        what = f"{method} {path}"
        begun_s = time.monotonic()
        await self._take(what, priority)
        left_s = self._deadline_s - (time.monotonic() - begun_s)
        if method != "GET":
            self.writes += 1
        # aiohttp takes 0 for no limit.
        timeout = aiohttp.ClientTimeout(total=max(left_s, 0.001), connect=CONNECT_S)
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._send(
                method, path, query=query, data=data, content=content, timeout=timeout
            ) as answer:
                text = await _whole(answer, what)
                if answer.status == 401 and self._token is not None:
                    self._token.renew()
                if answer.status >= 300:
                    raise _refusal(what, answer, text)
                return text
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSentError(f"{what}: {_words(error)}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswerError(f"{what}: {_words(error)}") from None

    async def _take(self, what: str, priority: Priority) -> None:
        try:
            async with asyncio.timeout(self._deadline_s / 2):
                await self._budget.take(priority)
        except TimeoutError:
            raise NotSentError(f"{what}: too many requests wait already") from None

    def _send(
        self,
        method: str,
        path: str,
        *,
        timeout: aiohttp.ClientTimeout,
        query: Mapping[str, str] | None = None,
        data: bytes | None = None,
        content: str = "application/json",
    ) -> aiohttp.client._RequestContextManager:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if data is not None:
            headers["Content-Type"] = content
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.text()}"
        return self._open().request(
            method,
            self.cluster.server + path,
            params=query,
            data=data,
            headers=headers,
            timeout=timeout,
            ssl=self._tls.current() if self._tls is not None else True,
            server_hostname=self.cluster.server_name or None,
            allow_redirects=False,
        )

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=self._connections, socket_factory=_socket, keepalive_timeout=60
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": self._agent},
                raise_for_status=False,
                trust_env=False,
            )
        return self._session


def decoded(kind: Kind[T], body: bytes | msgspec.Raw) -> T:
    """Raises UnusableError where it is no object of this kind."""
    try:
        return msgspec.json.decode(body, type=kind.shape)
    except UNREADABLE as error:
        raise UnusableError(f"{kind}: {error}") from None


async def _whole(answer: aiohttp.ClientResponse, what: str) -> bytes:
    pieces, size = [], 0
    async for piece in answer.content.iter_any():
        pieces.append(piece)
        size += len(piece)
        if size > _MAX_ANSWER_BYTES:
            raise UnusableError(f"{what}: an answer of more than {_MAX_ANSWER_BYTES} bytes")
    return b"".join(pieces)


def _refusal(what: str, answer: aiohttp.ClientResponse, body: bytes) -> KubeError:
    status = Status()
    # A proxy in between, or a server that is about to stop, may answer anything.
    with contextlib.suppress(*UNREADABLE):
        status = msgspec.json.decode(body, type=Status)
    message = status.message or body[:_MAX_MESSAGE].decode("utf-8", "replace").strip()
    text = f"{what}: {answer.status} {status.reason or answer.reason}: {message[:_MAX_MESSAGE]}"
    return RefusedError(text.rstrip(": "), answer.status, status.reason, _retry_after_s(answer))


def _retry_after_s(answer: aiohttp.ClientResponse) -> float | None:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return str(error) or type(error).__name__


def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _ALIVE_IDLE_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _ALIVE_EVERY_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _ALIVE_TRIES)
    return made
