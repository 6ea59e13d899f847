"""The process: its sockets, what it is made of, and its end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import structlog

from koordlet import __version__
from koordlet.runtimeproxy import listen, status_server, view
from koordlet.runtimeproxy.backend import Backend
from koordlet.runtimeproxy.front import Front
from koordlet.runtimeproxy.intercept import Hooks, SkipLabel
from koordlet.runtimeproxy.recover import Recovery
from koordlet.runtimeproxy.servers.config import HookConfig
from koordlet.runtimeproxy.stats import Stats
from koordlet.runtimeproxy.store import Store
from koordlet.serving.garbage import collect_seldom
from koordlet.serving.notify import Notifier
from koordlet.serving.unix_socket import SOCKET_STAYS

DEFAULT_ENDPOINT: Final = "/var/run/koord-runtimeproxy/runtimeproxy.sock"
DEFAULT_BACKEND: Final = "/var/run/containerd/containerd.sock"
_RELOAD_S: Final = 1.0
_DRAIN_S: Final = 5.0


@dataclass(frozen=True)
class Options:
    endpoint: str
    backend: str
    skip: SkipLabel
    hook_config_dir: str
    hook_budget_s: float
    status_socket: str


class Proxy:
    """``listening``: where clients come; made before anything else, so that they can wait there."""

    def __init__(self, options: Options, listening: socket.socket) -> None:
        self.options = options
        self.listening = listening
        self.stats = Stats()
        self.backend = Backend(options.backend)
        self.store = Store()
        self.recovery = Recovery(self.backend, self.store)
        self.hooks = Hooks(
            HookConfig(options.hook_config_dir),
            self.store,
            self.recovery,
            options.skip,
            options.hook_budget_s,
            self.stats.hook,
        )
        self.front = Front(self.backend, self.hooks, self.stats)
        self._log = structlog.get_logger()
        self._began = time.monotonic()
        self._complaint = ""

    async def serve(self, on_ready: Callable[[], None], stop: asyncio.Event) -> None:
        """Until ``stop``; ``on_ready`` is told when calls are taken."""
        self.hooks.config.make_directory()
        self.hooks.reload()
        self.backend.on_back.append(self._follow_permissions)
        self.backend.start()
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(
            self.front.accept, sock=self.listening, **SOCKET_STAYS
        )
        background = (loop.create_task(self._look_after()), loop.create_task(self._serve_status()))
        gc.collect()
        collect_seldom()
        on_ready()
        self._log.info("proxy_started", endpoint=self.options.endpoint, backend=self.backend.path)
        try:
            await stop.wait()
        finally:
            server.close()
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            await self.front.drain(_DRAIN_S)
            self.backend.close()
            self.recovery.close()
            self.hooks.close()
            self._log.info("proxy_stopped")

    def view(self) -> view.ProxyView:
        config, now = self.hooks.config, asyncio.get_running_loop().time()
        clients = {name: self.hooks.clients.get(name) for name in sorted(config.sockets)}
        files = []
        for name, file in sorted(config.files.items()):
            server = file.server
            files.append(
                view.FileView(
                    name,
                    server.socket if server else "",
                    server.failure_policy or "Ignore" if server else "",
                    server.runtime_hooks if server else (),
                    file.error,
                )
            )
        return view.ProxyView(
            version=__version__,
            pid=os.getpid(),
            uptime_s=time.monotonic() - self._began,
            endpoint=self.options.endpoint,
            backend=self.backend.path,
            backend_error=self.backend.error,
            clients=self.front.clients,
            broken_connections=self.stats.broken_connections,
            pods=len(self.store.pods),
            containers=len(self.store.containers),
            config_dir=config.directory,
            config_error=config.error,
            files=tuple(files),
            servers=tuple(
                view.ServerView(
                    name,
                    client is None or not client.breaker.error,
                    max(client.breaker.until_s - now, 0.0) if client else 0.0,
                    client.breaker.error if client else "",
                )
                for name, client in clients.items()
            ),
            methods=view.methods(self.stats),
            turned_away=self.front.turned_away,
        )

    async def _look_after(self) -> None:
        """What is looked at once a second: files of hook servers, requests that do not end, mode
        of the runtime's socket."""
        while True:
            await asyncio.sleep(_RELOAD_S)
            self.hooks.reload()
            self.front.look_after()
            if not self.backend.error:
                self._follow_permissions()

    def _follow_permissions(self) -> None:
        complaint = listen.follow_permissions(self.options.endpoint, self.backend.path)
        if complaint and complaint != self._complaint:
            self._log.warning("socket_permissions", error=complaint)
        self._complaint = complaint

    async def _serve_status(self) -> None:
        """Pods must start also where this socket cannot be had."""
        path = self.options.status_socket
        try:
            sock = listen.bind(path)
        except listen.ListenError as error:
            self._log.error("no_status_socket", error=str(error))
            return
        inode = os.stat(path).st_ino
        server = await status_server.serve(
            sock,
            {
                "/status": ("application/json", lambda: msgspec.json.encode(self.view())),
                "/metrics": (
                    "text/plain; version=0.0.4; charset=utf-8",
                    lambda: view.page(self.view(), self.stats),
                ),
            },
        )
        try:
            await server.serve_forever()
        finally:
            listen.unlink(path, inode)


async def run(options: Options) -> None:
    """The process, until SIGTERM or SIGINT. Raises ListenError."""
    passed = listen.passed_by_systemd()
    listening = passed or listen.bind(options.endpoint)
    if passed is not None:
        options = replace(options, endpoint=passed.getsockname())
    inode = os.stat(options.endpoint).st_ino
    stop = asyncio.Event()
    notifier = Notifier()

    def leave() -> None:
        if passed is None:
            # Clients shall not come to a process that is leaving; systemd's socket stays.
            listen.unlink(options.endpoint, inode)
        notifier.send("STOPPING=1")
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    try:
        await Proxy(options, listening).serve(lambda: notifier.send("READY=1"), stop)
    finally:
        notifier.close()
