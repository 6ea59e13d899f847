"""The webhooks over HTTPS.

Small reviews are decided on the event loop, one between two looks at the sockets; large ones in a
thread, one at a time. Who goes next: `turns.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler as HttpHandler

from koord_scheduler.admission.words import AdmissionError
from koord_scheduler.webhook.door import Door
from koord_scheduler.webhook.handlers import HANDLERS, Settings, World
from koord_scheduler.webhook.line import Line
from koord_scheduler.webhook.registration import TIMEOUT_S, WEBHOOKS
from koord_scheduler.webhook.review import (
    MOST_VALUES,
    Answer,
    check_values,
    request_of,
    response,
    uid_in,
    values_of,
)
from koord_scheduler.webhook.turns import Turns
from koordlet.kube.errors import KubeError

MOST_BYTES = 8 << 20
"""A review has an object twice; the API server takes none of more than 3 MiB."""
SMALL_BYTES, SMALL_VALUES = 32 << 10, 1000
"""Reviews that the event loop decides itself, in some milliseconds."""
_SWITCH_S = 0.0001
"""Longest that a thread keeps the interpreter from the event loop at each system call. With 1 ms, a
hundred connections that begin at once beside a large review made others wait for 1.7 s; Python's
own value is 5."""
_LOG_EVERY_S = 60.0
_log = structlog.get_logger()
_Made = TypeVar("_Made")


class Outcomes:
    """``counts``: (path, outcome) -> requests; ``seconds``: path -> spent on them, waiting
    included; ``dropped``: reason -> connections."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, float] = {}
        self.dropped: Counter[str] = Counter()


class Server:
    """Answers the webhooks whose gates are on."""

    def __init__(self, world: World, settings: Settings, outcomes: Outcomes) -> None:
        self._world, self._settings, self._outcomes = world, settings, outcomes
        self._small, self._large = Turns(1), Turns(1)
        self._worker = ThreadPoolExecutor(1, "webhook")
        self._logged_s = -_LOG_EVERY_S

    @contextlib.asynccontextmanager
    async def serving(
        self, context: ssl.SSLContext, host: str | None, port: int
    ) -> AsyncIterator[int]:
        """Gives the port. Raises OSError where the address cannot be had."""
        app = web.Application(middlewares=[_to_the_end])
        on = {each.path for each in WEBHOOKS if getattr(self._settings.gates, each.gate)}
        for path in sorted(on & HANDLERS.keys()):
            app.router.add_post(path, self._handle)
        app.router.add_get("/healthz", _healthy)
        runner = web.AppRunner(
            app,
            access_log=None,
            shutdown_timeout=2.0,
            handler_cancellation=True,
            auto_decompress=False,  # API servers compress nothing, and a bomb is small
        )
        await runner.setup()
        assert runner.server is not None
        door = Door(runner.server, context, self._outcomes.dropped)
        sys.setswitchinterval(_SWITCH_S)
        try:
            yield door.open(host or "", port)
        finally:
            await door.close()
            await runner.cleanup()
            self._worker.shutdown(wait=False, cancel_futures=True)

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        path, begun_s = http.path, time.monotonic()
        body = await _received(http)
        if len(body) > MOST_BYTES:
            self._outcomes.counts[path, "too large"] += 1
            return web.Response(status=413, text=f"more than {MOST_BYTES} bytes")
        text, outcome = await self._reviewed(path, body, _line(http))
        self._outcomes.counts[path, outcome] += 1
        spent_s = self._outcomes.seconds.get(path, 0.0) + time.monotonic() - begun_s
        self._outcomes.seconds[path] = spent_s
        return web.Response(body=text, content_type="application/json")

    async def _reviewed(self, path: str, body: bytearray, line: Line) -> tuple[bytes, str]:
        """Return the answer, and its outcome in a word."""
        uid = ""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                values = values_of(body)
                if values > MOST_VALUES:
                    await self._beside(line, len(body), functools.partial(check_values, body))
                request = request_of(body)
                uid = request.uid
                ready = await HANDLERS[path](request, self._world, self._settings)
                decide = _answering(uid, ready.decide)
                if ready.long or len(body) > SMALL_BYTES or values > SMALL_VALUES:
                    return await self._beside(line, len(body), decide)
                return await self._now(line, len(body), decide)
        except AdmissionError as error:
            answer = Answer(refusal=error.message, code=error.code)
        except KubeError as error:
            answer = Answer(refusal=f"koord-scheduler cannot decide: {error}", code=500)
        except TimeoutError:
            answer = Answer(refusal="koord-scheduler: no answer in time", code=500)
        except RecursionError:
            answer = Answer(refusal="the object is nested too deeply", code=400)
        except (TypeError, KeyError, AttributeError, ValueError, ArithmeticError) as error:
            # A field that no check foresaw. The process must outlive any request.
            answer = Answer(refusal=f"koord-scheduler: {type(error).__name__}: {error}", code=500)
            self._tell(path, error)
        return response(uid or uid_in(body), answer), _outcome(answer)

    async def _now(self, line: Line, size_bytes: int, decide: Callable[[], _Made]) -> _Made:
        await self._small.take(line.peer, size_bytes)
        begun_s = time.thread_time()
        try:
            return decide()
        finally:
            self._small.give(line.peer, time.thread_time() - begun_s)

    async def _beside(self, line: Line, size_bytes: int, decide: Callable[[], _Made]) -> _Made:
        """Decide in the thread. Who does not go first lets it rest afterwards as long as it
        worked."""
        loop = asyncio.get_running_loop()
        await self._large.take(line.peer, size_bytes)

        def work() -> _Made:
            begun_s = time.thread_time()
            try:
                return decide()
            finally:
                loop.call_soon_threadsafe(give, time.thread_time() - begun_s)

        def give(spent_s: float) -> None:
            rest_s = 0.0 if line.peer.first else spent_s
            loop.call_later(rest_s, self._large.give, line.peer, spent_s)

        with line.works():
            working = loop.run_in_executor(self._worker, work)
            # Whoever asked may be gone when it ends.
            working.add_done_callback(lambda done: done.cancelled() or done.exception())
            try:
                return await asyncio.shield(working)
            finally:
                # Else the error holds this frame, and the frame the error: the review would stay
                # until garbage is collected.
                del working

    def _tell(self, path: str, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            _log.error("a request that nobody foresaw", path=path, exc_info=error)


def _answering(uid: str, decide: Callable[[], Answer]) -> Callable[[], tuple[bytes, str]]:
    def answer() -> tuple[bytes, str]:
        made = decide()
        return response(uid, made), _outcome(made)

    return answer


def _line(http: web.Request) -> Line:
    transport = http.transport
    if transport is None:
        raise ConnectionResetError
    line = transport.get_protocol()
    assert isinstance(line, Line)
    return line


@web.middleware
async def _to_the_end(request: web.Request, handler: HttpHandler) -> web.StreamResponse:
    line = _line(request)
    try:
        return await handler(request)
    finally:
        line.rests()


async def _received(http: web.Request) -> bytearray:
    """The body, or its beginning where it is too large. It has a deadline of its own."""
    body = bytearray()
    async for chunk in http.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            return body
    _line(http).waits()
    return body


def _outcome(answer: Answer) -> str:
    if not answer.refusal:
        return "allowed"
    return "failed" if answer.code >= 500 else "refused"


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def tls_context(client_authorities: str = "") -> ssl.SSLContext:
    """Return a context without a certificate yet. ``client_authorities``: a file with those that
    sign the certificates of API servers; whoever shows one goes first, and nobody must. Raises
    OSError for a file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if client_authorities:
        context.load_verify_locations(client_authorities)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Connections from now on get this certificate; those that are open keep theirs. The key is
    never on a disk. Raises ssl.SSLError for a pair that does not fit, which changes nothing."""
    with _in_memory(certificate) as certificate_path, _in_memory(key) as key_path:
        # A context that refuses a pair has lost the one that it had before.
        tls_context().load_cert_chain(certificate_path, key_path)
        context.load_cert_chain(certificate_path, key_path)


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """The path of a file that is nowhere."""
    number = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        os.write(number, data)
        yield f"/proc/self/fd/{number}"
    finally:
        os.close(number)
