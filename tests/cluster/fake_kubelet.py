"""kubelet's own server: its pods and its configuration, over TLS."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Tree = dict[str, Any]


@dataclass
class FakeKubelet:
    """``seen``: of each request, path and ``Authorization``. ``status``: it refuses with this."""

    config: Tree = field(default_factory=dict)
    pods: list[Tree] = field(default_factory=list)
    status: int = 200
    seen: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0

    async def handle(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, request.headers.get("Authorization", "")))
        if self.status != 200:
            return web.Response(status=self.status, text="Forbidden (user=us, verb=get)")
        if request.path == "/configz":
            return web.json_response({"kubeletconfig": self.config})
        if request.path == "/pods/":
            return web.json_response({"kind": "PodList", "metadata": {}, "items": self.pods})
        return web.Response(status=404)

    def paths(self) -> list[str]:
        return [path for path, _ in self.seen]


@contextlib.asynccontextmanager
async def serving(tls: ssl.SSLContext) -> AsyncIterator[FakeKubelet]:
    kubelet = FakeKubelet()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", kubelet.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        kubelet.port = runner.addresses[0][1]
        yield kubelet
    finally:
        await runner.cleanup()
