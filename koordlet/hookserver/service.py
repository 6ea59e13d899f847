"""The hook API on gRPC (spec/hooks.md 4.5). Imported at the first connection only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import structlog

from koordlet.decision.answer import HookFailedError
from koordlet.decision.strategy import Stage
from koordlet.hookserver.answers import SANDBOX_STAGES, Answers
from koordlet.hookserver.facts import InvalidRequestError
from koordlet.wire.pb import hook_pb2 as pb

SERVICE = "runtime.v1alpha1.RuntimeHookService"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # as between kubelet and a runtime

log = structlog.get_logger()
Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler = Callable[[Any, Context], Awaitable[Any]]


def _handler(answers: Answers, stage: Stage) -> _Handler:
    async def handle(request: Any, context: Context) -> Any:
        try:
            return answers.answer(stage, request)
        except InvalidRequestError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except HookFailedError as error:
            # The code that a plain error of the reference's Go server has.
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except Exception as error:
            # Isolation boundary: a defect behind one call must not end the daemon.
            log.exception("hook call failed", stage=stage)
            await context.abort(grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}")

    return handle


def _method(answers: Answers, stage: Stage) -> Any:
    message = pb.PodSandboxHookRequest if stage in SANDBOX_STAGES else _CONTAINER_REQUEST
    return grpc.unary_unary_rpc_method_handler(
        _handler(answers, stage),
        request_deserializer=message.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )


_CONTAINER_REQUEST = pb.ContainerResourceHookRequest
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
