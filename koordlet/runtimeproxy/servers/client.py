"""Calls to one hook server
(docs/reference/hooks.md 4.5): on koordlet's own line where it knows it, on gRPC
otherwise.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import structlog
from google.protobuf.message import DecodeError

from koordlet.decision.strategy import Stage
from koordlet.runtimeproxy.http2.headers import GRPC_DEADLINE_EXCEEDED, GRPC_UNAVAILABLE
from koordlet.runtimeproxy.servers import line
from koordlet.runtimeproxy.servers.breaker import Breaker
from koordlet.runtimeproxy.unary import CallError, Unary, expired, in_future
from koordlet.runtimeproxy.unary import Cancel as _Cancel
from koordlet.runtimeproxy.unary import Ended as _Ended
from koordlet.wire.pb import hook_pb2 as hook

_METHODS: Final = {stage: f"/runtime.v1alpha1.RuntimeHookService/{stage}Hook" for stage in Stage}
MAX_ANSWER_BYTES: Final = 4 << 20
_GREETING_SHARE: Final = 0.25
"""Of the time budget: for how long a server that says nothing is waited for."""
_POD_STAGES: Final = frozenset((Stage.RUN_POD_SANDBOX, Stage.STOP_POD_SANDBOX, Stage.UPDATE_POD))


class HookError(Exception):
    """The hook server gave no usable answer; the text says which one and why."""


class AwayError(HookError):
    """It is down, hangs or talks nonsense. The client logs when that begins and when it ends."""


Ended: TypeAlias = Callable[[Any], None]
"""Called once with the response message or a HookError."""


class HookClient:
    """``budget_s``: what one call may take. ``unasked``: calls since it is away."""

    def __init__(self, socket: str, budget_s: float) -> None:
        self.socket = socket
        self.breaker = Breaker()
        self.unasked = 0
        self._budget_s = budget_s
        self._line: line.Line | None = None
        self._unary: Unary | None = None
        self._not_ours: tuple[int, int] | None = None  # the socket that does not know the line
        self._connecting = asyncio.Lock()
        self._log = structlog.get_logger()

    def start(self, stage: Stage, request: Any, ended: Ended) -> Callable[[], None] | None:
        """Ask at once, where there is a connection; what is returned cancels the call. None: use
        ``call``. Raises AwayError."""
        if not self._connected:
            return None
        self._admit()

        def end(found: bytes | CallError) -> None:
            try:
                ended(self._response(stage, found))
            except HookError as error:
                ended(error)

        stop = self._ask(stage, request.SerializeToString(), self._budget_s, end)

        def cancel() -> None:
            self.breaker.gave_up()
            stop()

        return cancel

    async def call(self, stage: Stage, request: Any) -> Any:
        """The response message. Raises HookError."""
        self._admit()
        message = request.SerializeToString()
        try:
            found: bytes | CallError = await self._ask_with_patience(stage, message)
        except CallError as error:
            found = error
        except asyncio.CancelledError:
            self.breaker.gave_up()
            raise
        return self._response(stage, found)

    def _admit(self) -> None:
        if not self.breaker.error:
            return
        now_s = asyncio.get_running_loop().time()
        if not self.breaker.admits(now_s):
            wait_s = max(self.breaker.until_s - now_s, 0)
            self.unasked += 1
            raise AwayError(f"{self.breaker.error}; not asked for another {wait_s:.1f} s")

    def _response(self, stage: Stage, found: bytes | CallError) -> Any:
        """Raises HookError."""
        if isinstance(found, CallError):
            raise self._failure(stage, found) from found
        response = (
            hook.PodSandboxHookResponse()
            if stage in _POD_STAGES
            else hook.ContainerResourceHookResponse()
        )
        try:
            response.ParseFromString(found)
        except DecodeError as error:
            text = f"{self.socket}: {stage}: the answer is no {type(response).__name__}"
            raise self._away(text, at_once=False) from error
        self._answers()
        return response

    def _failure(self, stage: Stage, error: CallError) -> HookError:
        text = f"{self.socket}: {stage}: {error}"
        if error.status == GRPC_UNAVAILABLE:
            return self._away(text, at_once=True)
        if error.status == GRPC_DEADLINE_EXCEEDED:
            self.close()  # what hangs may be a process that was replaced
            return self._away(text, at_once=False)
        self._answers()  # it lives, and says no to this call
        return HookError(text)

    @property
    def _connected(self) -> bool:
        own, other = self._line, self._unary
        return (own is not None and own.usable) or (other is not None and other.usable)

    def _ask(self, stage: Stage, message: bytes, timeout_s: float, ended: _Ended) -> _Cancel:
        """Needs a connection."""
        if self._line is not None and self._line.usable:
            return self._line.start(stage, message, timeout_s, ended)
        assert self._unary is not None
        return self._unary.start(_METHODS[stage], message, timeout_s, ended)

    async def _ask_with_patience(self, stage: Stage, message: bytes) -> bytes:
        """Raises CallError."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._budget_s
        async with self._connecting:
            if not self._connected:
                await self._connect()
        left_s = max(until_s - loop.time(), 0.001)
        return await in_future(lambda ended: self._ask(stage, message, left_s, ended))

    async def _connect(self) -> None:
        """Raises CallError."""
        self._line = None
        identity = _identity(self.socket)
        if identity is None or identity != self._not_ours:
            try:
                self._line = await line.connect(self.socket, self._budget_s * _GREETING_SHARE)
            except line.SilentError:
                pass
            except line.NotOursError:
                self._not_ours = identity
            else:
                return
        if self._unary is None:
            self._unary = Unary(self.socket, MAX_ANSWER_BYTES)
        try:
            async with asyncio.timeout(self._budget_s):
                await self._unary.connect()
        except TimeoutError:
            raise expired(self._budget_s) from None

    def _away(self, error: str, *, at_once: bool) -> AwayError:
        if not self.breaker.error:
            self._log.warning("hook_server_away", socket=self.socket, error=error)
        self.unasked += 1
        self.breaker.failed(asyncio.get_running_loop().time(), error, at_once=at_once)
        return AwayError(error)

    def _answers(self) -> None:
        if self.breaker.error:
            self._log.info("hook_server_back", socket=self.socket, calls_without_it=self.unasked)
        self.unasked = 0
        self.breaker.succeeded()

    def close(self) -> None:
        """The next call connects anew; those that run end with Unavailable."""
        if self._line is not None:
            self._line.close()
        if self._unary is not None:
            self._unary.close()
        self._line = self._unary = None


def _identity(path: str) -> tuple[int, int] | None:
    """Of the socket that is at ``path`` now."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns
