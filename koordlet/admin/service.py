"""The gRPC service itself. Imports grpc: imported at the first connection only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, TypeAlias

import grpc
import msgspec
import structlog

from koordlet.admin import wire
from koordlet.admin.daemon import DaemonApi, InvalidError, NotFoundError
from koordlet.admin.pb import admin_pb2 as pb
from koordlet.admin.pb import admin_pb2_grpc as pb_grpc
from koordlet.decision.names import encodable
from koordlet.kernel.background import Pause
from koordlet.serving.caller import Caller, title
from koordlet.serving.unix_socket import Access

DEFAULT_EXPLAIN_LIMIT = 20
DEFAULT_BLAME_WINDOW_S = 60.0
MAX_EXPLAIN_LIMIT = 1000
DEFAULT_TOP_INTERVAL_S = 1.0
DEFAULT_CURVE_S = 6 * 3600.0
MIN_TOP_INTERVAL_S = 0.2
MAX_REQUEST_BYTES = 64 * 1024
MAX_CONCURRENT_CALLS = 64

_log = structlog.get_logger()
Callers: TypeAlias = Callable[[str], Caller | None]
_Work: TypeAlias = Callable[[Pause], msgspec.Struct]
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class AdminService(pb_grpc.AdminServicer):  # type: ignore[misc]  # generated code has no types
    """All calls for ``Access.FULL``; for ``Access.READ_ONLY`` those that change nothing.
    ``caller``: who is behind a peer of grpc."""

    def __init__(self, daemon: DaemonApi, access: Access, caller: Callers) -> None:
        self._daemon = daemon
        self._access = access
        self._caller = caller

    async def Status(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._look_up(context, pb.StatusView, self._daemon.look_up_status, quick=True)

    async def Pods(self, request: Any, context: Context) -> Any:  # noqa: N802
        def pods() -> _Work:
            look_up = self._daemon.pods()
            return lambda pause: _Pods(look_up(pause))

        return await self._look_up(context, pb.PodsView, pods)

    async def Explain(self, request: Any, context: Context) -> Any:  # noqa: N802
        limit = min(request.limit or DEFAULT_EXPLAIN_LIMIT, MAX_EXPLAIN_LIMIT)
        return await self._look_up(
            context, pb.ExplainView, lambda: self._daemon.explain(request.target, limit)
        )

    async def Why(self, request: Any, context: Context) -> Any:  # noqa: N802
        at = request.at if request.HasField("at") else None
        return await self._look_up(
            context, pb.WhyView, lambda: self._daemon.why(request.target, at)
        )

    async def Query(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._look_up(
            context,
            pb.QueryView,
            lambda: self._daemon.query(
                request.kind,
                dict(request.match),
                request.window_s,
                request.aggregate,
                request.until if request.HasField("until") else None,
            ),
        )

    async def Blame(self, request: Any, context: Context) -> Any:  # noqa: N802
        window_s = request.window_s or DEFAULT_BLAME_WINDOW_S
        return await self._look_up(
            context, pb.BlameView, lambda: self._daemon.blame(request.target, window_s)
        )

    async def QueryRange(self, request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: N802
        pieces = self._daemon.query_range(
            request.kind,
            dict(request.match),
            request.start,
            request.end,
            request.step_s,
            request.aggregate,
        )
        try:
            async for piece in pieces:
                yield await self._daemon.worker.run(partial(_encoded, pb.RangeView, piece))
        except Exception as error:
            await self._fail(context, pb.RangeView, error)

    async def Doctor(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._look_up(context, pb.DoctorView, self._daemon.doctor)

    async def ConfigShow(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(context, pb.ConfigView, self._daemon.config)

    async def Hooks(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(context, pb.HooksView, lambda: self._daemon.hooks(request.target))

    async def Nri(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(context, pb.NriView, self._daemon.nri)

    async def Strategies(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._look_up(
            context, pb.StrategiesView, lambda: self._daemon.strategies(request.name)
        )

    async def Devices(self, request: Any, context: Context) -> Any:  # noqa: N802
        return await self._answer(context, pb.DevicesView, self._daemon.devices)

    async def Predict(self, request: Any, context: Context) -> Any:  # noqa: N802
        window_s = request.window_s or DEFAULT_CURVE_S
        return await self._look_up(
            context, pb.PredictView, lambda: self._daemon.predict(request.target, window_s)
        )

    async def Restore(self, request: Any, context: Context) -> Any:  # noqa: N802
        if request.dry_run:
            return await self._answer(
                context,
                pb.RestoreView,
                lambda: self._daemon.restore(dry_run=True, force=request.force),
            )
        by = await self._who(context, "restore")
        return await self._answer(
            context,
            pb.RestoreView,
            lambda: self._daemon.restore(dry_run=False, force=request.force, by=by),
        )

    async def Pause(self, request: Any, context: Context) -> Any:  # noqa: N802
        by = await self._who(context, "pause")
        return await self._answer(
            context,
            pb.PausedView,
            lambda: self._daemon.pause(
                tuple(request.owners),
                tuple(request.cgroups),
                for_s=request.for_s if request.HasField("for_s") else None,
                reason=request.reason,
                by=by,
            ),
        )

    async def Resume(self, request: Any, context: Context) -> Any:  # noqa: N802
        by = await self._who(context, "resume")
        return await self._answer(
            context,
            pb.ResumedView,
            lambda: self._daemon.resume(tuple(request.owners), tuple(request.cgroups), by=by),
        )

    async def Reload(self, request: Any, context: Context) -> Any:  # noqa: N802
        await self._require_full(context, "config reload")
        return await self._answer(context, pb.ReloadView, self._daemon.reload)

    async def Top(self, request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: N802
        interval_s = max(request.interval_s or DEFAULT_TOP_INTERVAL_S, MIN_TOP_INTERVAL_S)
        while True:
            yield await self._look_up(context, pb.TopView, self._daemon.top)
            await asyncio.sleep(interval_s)

    async def Events(self, request: Any, context: Context) -> AsyncIterator[Any]:  # noqa: N802
        # gRPC waits for the client before it asks for the next one: a client that does not
        # read holds up its own iterator only.
        try:
            async for event in self._daemon.events(
                since=request.since,
                follow=request.follow,
                kinds=tuple(request.kinds),
                subject=request.subject,
            ):
                yield wire.to_message(pb.EventView(), event)
        except InvalidError as error:
            await self._fail(context, pb.EventView, error)

    async def _who(self, context: Context, what: str) -> str:
        """The caller in words, who must be allowed to change something."""
        await self._require_full(context, what)
        caller = self._caller(context.peer())
        # In a thread: names may come from a directory service.
        return await asyncio.to_thread(title, caller) if caller is not None else "somebody"

    async def _require_full(self, context: Context, what: str) -> None:
        if self._access is not Access.FULL:
            await context.abort(
                grpc.StatusCode.PERMISSION_DENIED,
                f"{what} changes the node and is for root; members of the socket's group may "
                "read only. Run it with sudo.",
            )

    async def _answer(
        self, context: Context, message: Any, ask: Callable[[], msgspec.Struct]
    ) -> Any:
        def known() -> _Work:
            view = ask()
            return lambda pause: view

        return await self._look_up(context, message, known, quick=True)

    async def _look_up(
        self, context: Context, message: Any, ask: Callable[[], _Work], *, quick: bool = False
    ) -> Any:
        """``ask`` is called here; what it returns, and the way into a message, are for the worker
        thread."""
        try:
            look_up = ask()
            return await self._daemon.worker.run(
                lambda pause: wire.to_message(message(), look_up(pause), pause), quick=quick
            )
        except Exception as error:
            await self._fail(context, message, error)

    async def _fail(self, context: Context, message: Any, error: Exception) -> None:
        """End the call with what the caller shall be told."""
        codes, text = grpc.StatusCode, encodable(str(error))
        if isinstance(error, NotFoundError):
            await context.abort(codes.NOT_FOUND, text)
        if isinstance(error, InvalidError):
            await context.abort(codes.INVALID_ARGUMENT, text)
        # Isolation boundary: a defect behind one call must not end the daemon.
        _log.error("admin call failed", answer=message.DESCRIPTOR.name, exc_info=error)
        await context.abort(codes.INTERNAL, encodable(f"{type(error).__name__}: {error}"))


def _encoded(message: Any, view: msgspec.Struct, pause: Pause) -> Any:
    return wire.to_message(message(), view, pause)


class _Pods(msgspec.Struct, frozen=True):
    pods: tuple[Any, ...]


async def start(daemon: DaemonApi, access: Access, path: str, caller: Callers) -> grpc.aio.Server:
    """A gRPC server on the private socket ``path``."""
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
            ("grpc.max_concurrent_streams", MAX_CONCURRENT_CALLS),
        ],
        maximum_concurrent_rpcs=MAX_CONCURRENT_CALLS,
    )
    pb_grpc.add_AdminServicer_to_server(AdminService(daemon, access, caller), server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server
