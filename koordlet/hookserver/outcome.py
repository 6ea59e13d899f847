"""What a call of the hook API comes to, whichever way it was made."""

from __future__ import annotations

from typing import Any, NamedTuple

import structlog
from google.protobuf.message import DecodeError

from koordlet.decision.answer import HookFailedError
from koordlet.decision.strategy import Stage
from koordlet.hookserver.answers import SANDBOX_STAGES, Answers
from koordlet.hookserver.facts import InvalidRequestError
from koordlet.wire.pb import hook_pb2 as pb

MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # as between kubelet and a runtime

# Statuses of gRPC.
OK, UNKNOWN, INVALID_ARGUMENT, INTERNAL = 0, 2, 3, 13


class Outcome(NamedTuple):
    """``response``: where the status is OK, otherwise ``error`` says why not."""

    status: int
    response: Any = None
    error: str = ""


def request_type(stage: Stage) -> Any:
    return pb.PodSandboxHookRequest if stage in SANDBOX_STAGES else pb.ContainerResourceHookRequest


def outcome(answers: Answers, stage: Stage, request: Any, *, whole: bool) -> Outcome:
    """``whole``: see ``Answers.answer``."""
    try:
        return Outcome(OK, answers.answer(stage, request, whole=whole))
    except InvalidRequestError as error:
        return Outcome(INVALID_ARGUMENT, error=str(error))
    except HookFailedError as error:
        # The code that a plain error of the reference's Go server has.
        return Outcome(UNKNOWN, error=str(error))
    except Exception as error:
        # Isolation boundary: a defect behind one call must not end the daemon.
        structlog.get_logger().exception("hook call failed", stage=stage)
        return Outcome(INTERNAL, error=f"{type(error).__name__}: {error}")


def outcome_of_bytes(answers: Answers, stage: Stage, message: bytes, *, whole: bool) -> Outcome:
    try:
        request = request_type(stage).FromString(message)
    except DecodeError:
        return Outcome(INVALID_ARGUMENT, error=f"{stage}: the request cannot be decoded")
    return outcome(answers, stage, request, whole=whole)
