"""The local API: the full service for root, the read-only one for the socket's group."""

from __future__ import annotations

import asyncio
import importlib

from koordlet.admin.daemon import DaemonApi
from koordlet.serving.door import Backend, Door
from koordlet.serving.unix_socket import API_DIR, Access


class AdminServer(Door):
    def __init__(self, daemon: DaemonApi, path: str, group: str = "") -> None:
        """``group`` (a name, may be empty) gets the read-only calls."""

        async def start(access: Access, private_path: str) -> Backend:
            # In a thread: the import takes a good part of a second of a busy machine, and
            # the loop has ticks and alarms to serve.
            service = await asyncio.to_thread(importlib.import_module, "koordlet.admin.service")
            backend: Backend = await service.start(daemon, access, private_path, self.caller)
            return backend

        super().__init__(path, start, private=API_DIR, group=group)
