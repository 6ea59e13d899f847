"""An AdminServer on a fake daemon, on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from koordlet.admin.server import AdminServer
from tests.admin.fake_daemon import FakeDaemon

T = TypeVar("T")


@dataclass
class Served:
    daemon: FakeDaemon
    server: AdminServer
    path: str
    loop: asyncio.AbstractEventLoop

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)


@contextmanager
def serving(directory: Path, group: str = "") -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    daemon = FakeDaemon()
    path = str(directory / "koordlet.sock")
    served = Served(daemon, AdminServer(daemon, path, group), path, loop)
    try:
        served.call(served.server.start())
        yield served
    finally:
        served.call(served.server.stop())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()
