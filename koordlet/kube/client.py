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
from koordlet.kube.answers import MOST_BYTES, SMALL_BYTES, answered, paged, refusal, tree_of, whole
from koordlet.kube.budget import Priority, RequestBudget
from koordlet.kube.credentials import BearerToken, Cluster
from koordlet.kube.errors import NoAnswerError, NotSentError, TooLargeError, UnusableError
from koordlet.kube.holdings import Holdings
from koordlet.kube.kinds import PODS, Kind
from koordlet.kube.lines import Lines, LineTooLongError
from koordlet.kube.objects import Object, Page
from koordlet.kube.tls import TlsContext

DEADLINE_S = 10.0
CONNECT_S = 5.0
BEGINS_S = 3.0
"""The wait of a mirror for an answer to begin. A server that hangs takes connections and says
nothing; who asks it again soon is right soon after it has recovered."""
PAGE = 500
MOST_LARGE_BYTES = 12 << 20
"""Most bytes of large objects of a node (`Holdings`): its pods, and single objects."""
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
    ``most_large_bytes``: of large objects that all mirrors keep.
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
        most_large_bytes: int = MOST_LARGE_BYTES,
    ) -> None:
        self.cluster = cluster
        self.holdings = Holdings(most_large_bytes)
        """Shared by the mirrors that ask through this client."""
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
        self._large = asyncio.Semaphore()

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
        path = kind.path(namespace, name)
        body = await self._request("GET", path, priority=priority)
        return answered(kind, body, f"GET {path}")

    async def page(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        query: Mapping[str, str] | None = None,
        priority: Priority = Priority.READ,
        begins_s: float | None = None,
    ) -> Page:
        """One page of a list. ``query``: ``limit``, ``continue``, ``fieldSelector`` ... Raises
        TooLargeError where so many objects are more than is taken at a time."""
        path, asked = kind.path(namespace), {"limit": str(PAGE), **(query or {})}
        body = await self._request("GET", path, query=asked, priority=priority, begins_s=begins_s)
        return paged(kind, body, f"GET {path}", int(asked["limit"]))

    async def create(
        self, kind: Kind[T], body: Any, namespace: str = "", priority: Priority = Priority.STATUS
    ) -> T:
        path = kind.path(namespace)
        answer = await self._request("POST", path, body=body, priority=priority)
        return answered(kind, answer, f"POST {path}")

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
        answer = await self._request("PUT", path, body=body, priority=priority)
        return answered(kind, answer, f"PUT {path}", subresource)

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
        it, the server refuses it for another object or another version (``conflict``).
        ``strategic``: lists with a key, such as conditions, are merged by it; Kubernetes' own kinds
        alone know that."""
        path = kind.path(namespace, name, subresource)
        content = STRATEGIC_PATCH if strategic else MERGE_PATCH
        answer = await self._request("PATCH", path, body=body, content=content, priority=priority)
        return answered(kind, answer, f"PATCH {path}", subresource)

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
        path = kind.path(namespace, name)
        answer = await self._request(
            "PATCH",
            path,
            query={"fieldManager": manager, "force": "true"},
            body=body,
            content=APPLY_PATCH,
            priority=priority,
        )
        return answered(kind, answer, f"PATCH {path}")

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

    async def raw(
        self, path: str, query: Mapping[str, str] | None = None, *, most_bytes: int = MOST_BYTES
    ) -> bytes:
        """What a path answers to GET, for what is no object: ``/version``, ``/readyz`` ..."""
        return bytes(await self._request("GET", path, query=query, most_bytes=most_bytes))

    async def tree(self, path: str) -> dict[str, Any]:
        """The JSON object that a path answers to GET."""
        try:
            return tree_of(await self._request("GET", path))
        except UnusableError as error:
            raise UnusableError(f"GET {path}: {error}") from None

    async def watch(
        self,
        kind: Kind[T],
        *,
        namespace: str = "",
        query: Mapping[str, str],
        lasts_s: float,
        begins_s: float | None = BEGINS_S,
    ) -> AsyncGenerator[list[bytes], None]:
        """Lines of a watch as they come, until the server ends it; none at first, which says that
        it has begun. ``lasts_s``: when it should end; it is cut some seconds later. Raises
        TooLargeError for a line that is longer than any object."""
        path = kind.path(namespace)
        what = f"watch {path}"
        asked = {**query, "watch": "1", "timeoutSeconds": str(int(lasts_s))}
        timeout = aiohttp.ClientTimeout(total=lasts_s + self._deadline_s, connect=CONNECT_S)
        await self._take(what, Priority.READ)
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(begins_s or self._deadline_s):
                    answer = await stack.enter_async_context(
                        self._send("GET", path, query=asked, timeout=timeout)
                    )
                if answer.status != 200:
                    async with asyncio.timeout(self._deadline_s):
                        raise await refusal(answer, what)
                yield []
                found = await stack.enter_async_context(contextlib.aclosing(self._lines(answer)))
                async for lines in found:
                    yield lines
        except LineTooLongError as error:
            raise TooLargeError(f"{what}: {error}") from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NoAnswerError(f"{what}: {_words(error)}") from None

    async def _lines(self, answer: aiohttp.ClientResponse) -> AsyncGenerator[list[bytes], None]:
        """A long line takes its turn with the other long answers, and comes within a deadline."""
        lines, stream = Lines(), answer.content.iter_any()
        while True:
            if len(lines.rest) <= SMALL_BYTES:
                if not (piece := await anext(stream, b"")):
                    return
                yield lines.take(piece)
            else:
                async with asyncio.timeout(self._deadline_s), self._large:
                    found: list[bytes] = []
                    while not found and (piece := await anext(stream, b"")):
                        found = lines.take(piece)
                if not piece:
                    return
                yield found

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = "application/json",
        priority: Priority = Priority.READ,
        most_bytes: int = MOST_BYTES,
        begins_s: float | None = None,
    ) -> bytearray:
        """``begins_s``: for the answer to begin, where it is less than the deadline."""
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
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(begins_s):
                    answer = await stack.enter_async_context(
                        self._send(
                            method, path, query=query, data=data, content=content, timeout=timeout
                        )
                    )
                if answer.status == 401 and self._token is not None:
                    self._token.renew()
                if answer.status >= 300:
                    raise await refusal(answer, what)
                return await whole(answer, what, most_bytes, self._large)
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
                auto_decompress=False,  # a few bytes become as many as the server likes
            )
        return self._session


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
