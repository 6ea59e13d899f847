"""Calls to one hook server (spec/hooks.md 4.5). grpc is loaded with the first of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog
from google.protobuf.message import DecodeError

from koordlet.decision.strategy import Stage
from koordlet.runtimeproxy.breaker import Breaker
from koordlet.wire.pb import hook_pb2 as hook

if TYPE_CHECKING:
    import grpc.aio

SERVICE: Final = "/runtime.v1alpha1.RuntimeHookService/"
MAX_ANSWER_BYTES: Final = 4 << 20
_POD_STAGES: Final = frozenset((Stage.RUN_POD_SANDBOX, Stage.STOP_POD_SANDBOX))
_OPTIONS: Final = (
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", 16 << 20),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2000),  # also how long gRPC gives a connection to be made
    ("grpc.max_reconnect_backoff_ms", 1000),
)


class HookError(Exception):
    """The hook server gave no usable answer; the text says which one and why."""


class AwayError(HookError):
    """It is down, hangs or talks nonsense. The client logs when that begins and when it ends."""


class HookClient:
    """``budget_s``: what one call may take. ``unasked``: calls since it is away."""

    def __init__(self, socket: str, budget_s: float) -> None:
        self.socket = socket
        self.breaker = Breaker()
        self.unasked = 0
        self._budget_s = budget_s
        self._channel: grpc.aio.Channel | None = None
        self._log = structlog.get_logger()

    async def call(self, stage: Stage, request: Any) -> Any:
        """Raises HookError."""
        loop = asyncio.get_running_loop()
        if not self.breaker.admits(loop.time()):
            wait_s = max(self.breaker.until_s - loop.time(), 0)
            self.unasked += 1
            raise AwayError(f"{self.breaker.error}; not asked for another {wait_s:.1f} s")
        try:
            return await self._call(stage, request)
        except asyncio.CancelledError:
            self.breaker.gave_up()
            raise

    async def _call(self, stage: Stage, request: Any) -> Any:
        import grpc

        method = self._open().unary_unary(f"{SERVICE}{stage}Hook", None, None)
        try:
            answer = await method(request.SerializeToString(), timeout=self._budget_s)
        except grpc.aio.AioRpcError as error:
            text = f"{self.socket}: {stage}: {error.code().name}: {error.details()}"
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                raise self._away(text, at_once=True) from error
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                away = self._away(text, at_once=False)
                await self._forget_channel()
                raise away from error
            self._answers()  # it lives, and says no to this call
            raise HookError(text) from error
        response = (
            hook.PodSandboxHookResponse()
            if stage in _POD_STAGES
            else hook.ContainerResourceHookResponse()
        )
        try:
            response.ParseFromString(answer)
        except DecodeError as error:
            text = f"{self.socket}: {stage}: the answer is no {type(response).__name__}"
            raise self._away(text, at_once=False) from error
        self._answers()
        return response

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

    async def close(self) -> None:
        await self._forget_channel()

    def _open(self) -> grpc.aio.Channel:
        if self._channel is None:
            import grpc.aio

            self._channel = grpc.aio.insecure_channel(f"unix://{self.socket}", options=_OPTIONS)
        return self._channel

    async def _forget_channel(self) -> None:
        """What hangs may be a process that was replaced: the next call connects anew."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close(None)
