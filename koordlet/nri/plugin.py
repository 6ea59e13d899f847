"""The NRI plugin: one session after the other with the runtime, for as long as the daemon runs.

While there is no runtime, or it has NRI off, a look at the socket now and then is all it costs;
protobuf and the messages are loaded when there is somebody to talk to.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from koordlet.decision.answer import Ask, Combined
from koordlet.kernel.socket_watch import SocketWatch, identity
from koordlet.nri.errors import (
    ClosedError,
    NotConnectedError,
    StatusError,
    UnsafeUpdateError,
    WireError,
)
from koordlet.nri.options import Options
from koordlet.nri.status import Phase, Status
from koordlet.nri.versions import takes_updates, why_not

if TYPE_CHECKING:
    from koordlet.nri.events import Events, Held, Reported
    from koordlet.nri.session import Session

STABLE_S = 30.0
"""A session that lasted this long was a good one: the next back-off begins small again."""
JITTER = 0.1
PUSH_BATCH = 8
"""Updates in one call: the runtime makes no pods while it works on them, some 30 ms each."""

log = structlog.get_logger()


class Plugin:
    """``ask`` decides; ``reported`` remembers who runs. ``held`` hears at each synchronization what
    the runtime has stored. ``status`` changes as things happen."""

    def __init__(
        self, ask: Ask, reported: Reported, options: Options | None = None, *, held: Held
    ) -> None:
        self._ask = ask
        self._reported = reported
        self._held = held
        self._options = options or Options()
        self._events: Events | None = None
        self._session: Session | None = None
        self._pushing = asyncio.Lock()
        self._said = ""
        self.status = Status(self._options.socket)

    @property
    def is_connected(self) -> bool:
        """Whether the runtime has told all pods, so that it can be told of them."""
        return self._session is not None and self._session.is_synchronized

    @property
    def takes_updates(self) -> bool:
        """Whether ``update`` may be called now."""
        return self.is_connected and takes_updates(self.status.nri_version)

    async def run(self) -> None:
        """Until cancelled; then the connection is closed and no task of it runs any more."""
        watch, pause_s, socket = SocketWatch(self._options.socket), 0.0, None
        try:
            while True:
                if pause_s:
                    self.status.phase = Phase.BACKING_OFF
                    self.status.next_attempt_at = time.time() + pause_s
                    jitter = random.uniform(1 - JITTER, 1 + JITTER)
                    if await watch.wait(socket, pause_s * jitter) is not None:
                        pause_s = 0.0  # the runtime has started anew
                socket = identity(self._options.socket)
                if socket is None:
                    self.status.phase = Phase.NO_SOCKET
                    self.status.next_attempt_at = None
                    socket, pause_s = await watch.wait(None), 0.0
                started = time.monotonic()
                await self._attempt()
                if time.monotonic() - started > STABLE_S:
                    pause_s = 0.0
                pause_s = min(
                    max(2 * pause_s, self._options.backoff_s), self._options.max_backoff_s
                )
        finally:
            watch.close()
            self.status.phase = Phase.STOPPED

    async def update(self, wanted: Mapping[str, Combined]) -> tuple[str, ...]:
        """Tell the runtime new values of containers, by id, that it did not ask about; returns
        the ids of those that failed. Calls wait for each other. An update and an answer to the
        runtime do not: never await this while answering.

        Raises NotConnectedError, also where the connection is lost on the way, and
        UnsafeUpdateError where the runtime could lock up.
        """
        session = self._session
        if session is None or not self.is_connected:
            raise NotConnectedError("no container runtime is connected by NRI")
        if why := why_not(self.status.runtime_name, self.status.nri_version):
            raise UnsafeUpdateError(why)
        from koordlet.nri import changes

        found = {cid: changes.update(cid, combined) for cid, combined in wanted.items()}
        updates = {cid: message for cid, message in found.items() if message is not None}
        ids = list(updates)
        failed: list[str] = []
        async with self._pushing:
            for start in range(0, len(ids), PUSH_BATCH):
                batch = ids[start : start + PUSH_BATCH]
                try:
                    refused = await session.push([updates[each] for each in batch])
                    failed += [each for each in batch if updates[each].container_id in refused]
                except StatusError as error:
                    self.status.failed(f"UpdateContainers: {error}")
                    failed += batch
                except ClosedError as error:
                    raise NotConnectedError(str(error)) from error
        self.status.pushed += len(ids)
        self.status.push_failed += len(failed)
        return tuple(failed)

    async def _attempt(self) -> None:
        """One session, however it ends."""
        status = self.status
        before = status.sessions
        status.phase = Phase.CONNECTING
        status.next_attempt_at = None
        try:
            await self._talk()
            why = "the runtime closed the connection"
        except (OSError, ClosedError, WireError, StatusError) as error:
            why = str(error)
        except Exception as error:  # the isolation boundary: the next session may do better
            why = f"{type(error).__name__}: {error}"
            log.exception("nri.session-failed")
        finally:
            self._session = None
        status.failed(why)
        if status.sessions > before:
            status.since = time.time()
            log.warning("nri.connection-lost", socket=status.socket, error=why)
            self._said = ""
        else:
            status.attempts_failed += 1
            if why != self._said:
                self._said = why
                log.warning("nri.cannot-connect", socket=status.socket, error=why)

    async def _talk(self) -> None:
        reader, writer = await asyncio.open_unix_connection(self._options.socket)
        from koordlet.nri.events import Events
        from koordlet.nri.session import Session

        if self._events is None:
            self._events = Events(self._ask, self._reported, self._held)
        self._session = Session(reader, writer, self._events, self.status, self._options)
        await self._session.run()
