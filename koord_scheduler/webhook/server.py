"""The webhooks over HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import structlog
from aiohttp import web

from koord_scheduler.admission.words import AdmissionError
from koord_scheduler.webhook.handlers import HANDLERS, Settings, World, answered
from koord_scheduler.webhook.registration import TIMEOUT_S, WEBHOOKS
from koord_scheduler.webhook.review import Answer, request_of, response
from koordlet.kube.errors import KubeError

_MOST_BYTES = 8 << 20
"""A review has an object twice; the API server takes none of more than 3 MiB."""
_AT_ONCE = 64
"""Requests that are worked on. Whoever sends more waits, and is refused when the API server would
no longer wait either."""
_LOG_EVERY_S = 60.0
_log = structlog.get_logger()


class Outcomes:
    """``counts``: (path, outcome) -> requests; ``seconds``: path -> spent on them, waiting
    included."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.seconds: dict[str, float] = {}


class Server:
    """Answers the webhooks whose gates are on."""

    def __init__(self, world: World, settings: Settings, outcomes: Outcomes) -> None:
        self._world, self._settings, self._outcomes = world, settings, outcomes
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._logged_s = -_LOG_EVERY_S

    @contextlib.asynccontextmanager
    async def serving(
        self, context: ssl.SSLContext, host: str | None, port: int
    ) -> AsyncIterator[int]:
        """Gives the port. Raises OSError where the address cannot be had."""
        app = web.Application(client_max_size=_MOST_BYTES)
        on = {each.path for each in WEBHOOKS if getattr(self._settings.gates, each.gate)}
        for path in sorted(on & HANDLERS.keys()):
            app.router.add_post(path, self._handle)
        app.router.add_get("/healthz", _healthy)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=context).start()
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    async def _handle(self, http: web.Request) -> web.Response:
        path, begun_s = http.path, time.monotonic()
        uid = ""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                body = await http.read()
                async with self._slots:
                    request = request_of(body)
                    uid = request.uid
                    answer = await answered(path, request, self._world, self._settings)
        except AdmissionError as error:
            answer = Answer(refusal=error.message, code=error.code)
        except KubeError as error:
            answer = Answer(refusal=f"koord-scheduler cannot decide: {error}", code=500)
        except TimeoutError:
            answer = Answer(refusal="koord-scheduler: no answer in time", code=500)
        except (TypeError, KeyError, AttributeError, ValueError, RecursionError) as error:
            # A field that no check foresaw. The process must outlive any request.
            answer = Answer(refusal=f"koord-scheduler: {type(error).__name__}: {error}", code=500)
            self._tell(path, error)
        self._outcomes.counts[path, _outcome(answer)] += 1
        spent_s = self._outcomes.seconds.get(path, 0.0) + time.monotonic() - begun_s
        self._outcomes.seconds[path] = spent_s
        return web.Response(body=response(uid, answer), content_type="application/json")

    def _tell(self, path: str, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            _log.error("a request that nobody foresaw", path=path, exc_info=error)


def _outcome(answer: Answer) -> str:
    if not answer.refusal:
        return "allowed"
    return "failed" if answer.code >= 500 else "refused"


async def _healthy(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def tls_context() -> ssl.SSLContext:
    """Without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Connections from now on get this certificate; those that are open keep theirs. The key is
    never on a disk. Raises ssl.SSLError for a pair that does not fit."""
    with _in_memory(certificate) as certificate_path, _in_memory(key) as key_path:
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
