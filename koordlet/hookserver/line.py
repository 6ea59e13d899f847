"""The hook API for koordlet's own proxy, without gRPC (``wire/hook_line.py``)."""

from __future__ import annotations

import asyncio

import structlog

from koordlet.decision.strategy import Stage
from koordlet.hookserver.answers import Answers
from koordlet.hookserver.outcome import INVALID_ARGUMENT, OK, Outcome, outcome_of_bytes
from koordlet.wire import hook_line

_CHUNK_BYTES = 64 * 1024


async def serve(
    answers: Answers, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Until the caller goes, or sends what is not of the line. Both have sent their greeting."""
    frames = hook_line.Reader()
    try:
        while data := await reader.read(_CHUNK_BYTES):
            for number, code, payload in frames.feed(data):
                writer.write(_reply(number, _outcome(answers, code, payload)))
                await asyncio.sleep(0)  # an alarm waits for one answer at most
            await writer.drain()
    except hook_line.LineError as error:
        structlog.get_logger().warning("hook line broken off", error=str(error))
    finally:
        writer.transport.abort()


def _outcome(answers: Answers, code: int, message: bytes) -> Outcome:
    if code >= len(hook_line.HOOKS):
        return Outcome(INVALID_ARGUMENT, error=f"hook {code} is not known")
    return outcome_of_bytes(answers, Stage(hook_line.HOOKS[code]), message, whole=False)


def _reply(number: int, found: Outcome) -> bytes:
    payload = found.response.SerializeToString() if found.status == OK else found.error.encode()
    return hook_line.frame(number, found.status, payload)
