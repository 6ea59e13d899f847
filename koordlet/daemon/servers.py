"""The two doors of the daemon: the local API and the metrics page. Neither stops the start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import structlog

from koordlet.admin.server import AdminServer
from koordlet.config.schema import Config
from koordlet.engine.engine import Engine
from koordlet.report import metrics as r
from koordlet.report.health import HEALTH_PATHS, Health, routes
from koordlet.report.http import HttpServer, ListenError, parse_address
from koordlet.report.pages import Pages
from koordlet.serving.unix_socket import SocketError
from koordlet.views.publish import steps
from koordlet.views.views import Views

log = structlog.get_logger()


class Servers:
    """``start_api`` and ``start_metrics`` tell ``views`` what became of it."""

    def __init__(self, engine: Engine, views: Views, health: Callable[[], Health]) -> None:
        self._engine = engine
        self._views = views
        self._health = health
        self._pages = Pages(engine.parts.metrics, self._refresh)
        self._http: HttpServer | None = None
        self._stops: list[Callable[[], Awaitable[None]]] = []

    async def start_api(self) -> None:
        api = self._config.api
        server = AdminServer(self._views, api.socket, api.group)
        try:
            await server.start()
        except (SocketError, OSError) as error:
            self._cannot("api", api.socket, error)
            return
        self._stops.append(server.stop)
        self._views.listening("api", api.socket, refused=server.refused)

    async def start_metrics(self) -> None:
        text = self._config.metrics.listen
        try:
            address = parse_address(text)
            if address is None:
                return
            pages = routes(self._pages, self._health)
            server = self._http = HttpServer(address, pages, urgent=HEALTH_PATHS)
            await server.start()
        except (ListenError, ValueError) as error:
            self._cannot("metrics", text, error)
            return
        self._stops.append(server.stop)
        self._views.listening("metrics", str(server.address))

    async def stop(self) -> None:
        await asyncio.gather(*(stop() for stop in self._stops), return_exceptions=True)
        self._stops.clear()

    @property
    def _config(self) -> Config:
        return self._engine.loaded.config

    def _refresh(self) -> Iterator[None]:
        """Bring the gauges up to date for a scrape."""
        yield from steps(self._engine, self._views)
        metrics = self._engine.parts.metrics
        metrics.set(r.METRICS_PAGES_REUSED, self._pages.reused)
        if self._http is not None:
            for reason, count in self._http.dropped.items():
                metrics.set(r.METRICS_DROPPED_CONNECTIONS, count, (reason,))

    def _cannot(self, name: str, address: str, error: Exception) -> None:
        log.error("cannot listen", what=name, address=address, error=str(error))
        self._views.listening(name, address, error=str(error))
