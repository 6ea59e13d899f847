"""The hook API on gRPC (docs/reference/hooks.md 4.5). Imported at the first connection only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc

from koordlet.decision.strategy import Stage
from koordlet.hookserver.answers import Answers
from koordlet.hookserver.outcome import (
    INTERNAL,
    INVALID_ARGUMENT,
    MAX_MESSAGE_BYTES,
    OK,
    UNKNOWN,
    outcome,
    request_type,
)

SERVICE = "runtime.v1alpha1.RuntimeHookService"
_CODES = {
    UNKNOWN: grpc.StatusCode.UNKNOWN,
    INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    INTERNAL: grpc.StatusCode.INTERNAL,
}

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler = Callable[[Any, Context], Awaitable[Any]]


def _handler(answers: Answers, stage: Stage) -> _Handler:
    async def handle(request: Any, context: Context) -> Any:
        found = outcome(answers, stage, request, whole=True)
        if found.status != OK:
            await context.abort(_CODES[found.status], found.error)
        return found.response

    return handle


def _method(answers: Answers, stage: Stage) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        _handler(answers, stage),
        request_deserializer=request_type(stage).FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


# NRI alone asks at the removal of a sandbox.
METHODS = {f"{stage}Hook": stage for stage in Stage if stage is not Stage.REMOVE_POD_SANDBOX}


async def start(answers: Answers, path: str) -> grpc.aio.Server:
    """A gRPC server on the private socket ``path``."""
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
    )
    methods = {name: _method(answers, stage) for name, stage in METHODS.items()}
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, methods)])
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server
