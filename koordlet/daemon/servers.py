"""The two doors of the daemon: the local API and the metrics page. Neither stops the start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from koordlet.admin.server import AdminServer
from koordlet.config.schema import Config
from koordlet.daemon.engine import Engine
from koordlet.daemon.publish import publish
from koordlet.daemon.views import Views
from koordlet.kernel.unix_socket import SocketError
from koordlet.report.health import Health, routes
from koordlet.report.http import Handler, HttpServer, ListenError, Response, parse_address

log = structlog.get_logger()


class Servers:
    """``start_api`` and ``start_metrics`` tell ``views`` what became of it."""

    def __init__(self, engine: Engine, views: Views, health: Callable[[], Health]) -> None:
        self._engine = engine
        self._views = views
        self._health = health
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
            server = HttpServer(address, self._routes())
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

    def _routes(self) -> dict[str, Handler]:
        """The pages, with the gauges brought up to date when somebody looks."""
        handlers = routes(self._engine.parts.metrics, self._health)

        def fresh(handler: Handler) -> Handler:
            async def answer() -> Response:
                publish(self._engine, self._views)
                return await handler()

            return answer

        return {
            path: fresh(handler) if path.endswith("metrics") else handler
            for path, handler in handlers.items()
        }

    def _cannot(self, name: str, address: str, error: Exception) -> None:
        log.error("cannot listen", what=name, address=address, error=str(error))
        self._views.listening(name, address, error=str(error))
