"""The requests of one connection that stop here until their hooks have spoken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from koordlet.runtimeproxy import grpc_message
from koordlet.runtimeproxy.contract import Answer, Interceptor, Meter, Refusal
from koordlet.runtimeproxy.http2.headers import GRPC_DEADLINE_EXCEEDED, GRPC_RESOURCE_EXHAUSTED
from koordlet.runtimeproxy.http2.limits import MAX_REQUEST_S, Account
from koordlet.runtimeproxy.http2.outbound import Outbound
from koordlet.runtimeproxy.streams import Held, Stream

_MAX_BODY_BYTES = grpc_message.MAX_MESSAGE_BYTES + grpc_message.PREFIX_BYTES
_TOO_LARGE = Refusal(
    GRPC_RESOURCE_EXHAUSTED,
    f"koordlet runtime-proxy: request above the {grpc_message.MAX_MESSAGE_BYTES} bytes of CRI",
)
_TOO_MUCH = Refusal(
    GRPC_RESOURCE_EXHAUSTED,
    "koordlet runtime-proxy: too many bytes of requests wait here already; try again",
)
_TOO_SLOW = Refusal(
    GRPC_DEADLINE_EXCEEDED,
    f"koordlet runtime-proxy: the request was not complete within {MAX_REQUEST_S:g} s",
)


class HeldCalls:
    """``refuse`` ends a call, ``send`` takes frames for the backend, ``flush`` sends them."""

    def __init__(
        self,
        interceptor: Interceptor,
        meter: Meter,
        account: Account,
        outbound: Outbound,
        refuse: Callable[[Stream, Refusal], None],
        send: Callable[[bytes], None],
        flush: Callable[[], None],
    ) -> None:
        self._interceptor = interceptor
        self._meter = meter
        self._account = account
        self._outbound = outbound
        self._refuse = refuse
        self._send_now = send
        self._flush = flush
        self._loop = asyncio.get_running_loop()
        self._ended: list[tuple[Held, int | None]] = []
        self._incomplete: dict[int, Stream] = {}  # in the order of their beginning

    def begin(self, stream: Stream) -> None:
        stream.held = Held(until_s=self._loop.time() + MAX_REQUEST_S)
        self._incomplete[stream.id] = stream

    def refuse_overdue(self) -> None:
        """Whoever never ends a request must not keep others from beginning one."""
        now = self._loop.time()
        for stream in tuple(self._incomplete.values()):
            if stream.held is None or stream.held.until_s > now:
                return
            self._refuse(stream, _TOO_SLOW)

    def collect(self, stream: Stream, payload: bytes | memoryview, *, end: bool) -> None:
        held = stream.held
        assert held is not None
        if len(held.body) + len(payload) > _MAX_BODY_BYTES:
            self._refuse(stream, _TOO_LARGE)
            return
        if not self._account.take(len(payload)):
            self._refuse(stream, _TOO_MUCH)
            return
        held.charged += len(payload)
        held.body += payload
        if end:
            self._complete(stream, held)

    def drop(self, stream: Stream, held: Held, status: int | None) -> None:
        """The stream has ended, for whatever reason."""
        self._incomplete.pop(stream.id, None)
        self._account.release(held.charged)
        held.charged = 0
        held.body.clear()
        if held.question is not None:
            held.question.cancel()
        if held.call is not None:
            self._ended.append((held, status))

    def finish(self) -> None:
        """What there is to do for calls that have ended, when their clients know it."""
        while self._ended:
            held, status = self._ended.pop(0)
            assert held.call is not None
            if held.sent:
                held.call.ended(status, grpc_message.unwrap(held.response))
            held.call.close()

    def _complete(self, stream: Stream, held: Held) -> None:
        held.complete_at = self._loop.time()
        del self._incomplete[stream.id]
        message = grpc_message.only(held.body)
        if isinstance(message, Refusal):
            self._refuse(stream, message)
            return
        held.body.clear()
        held.call = self._interceptor.begin(stream.path, message)
        question = held.call.ask()
        if question is None:
            self._send(stream, held, message)
            return
        held.question = question
        question.then(lambda answer: self._decided(stream, held, message, answer))

    def _decided(self, stream: Stream, held: Held, message: bytes, answer: Answer) -> None:
        held.question = None
        if isinstance(answer, Refusal):
            self._refuse(stream, answer)
            self._flush()
        else:
            self._send(stream, held, message if answer is None else answer)

    def _send(self, stream: Stream, held: Held, message: bytes) -> None:
        held.sent = True
        body = grpc_message.wrap(message)
        whole = self._outbound.whole(stream.id, body)
        if whole is None:
            self._outbound.put(stream.id, body, end=True)
        else:
            self._send_now(whole)
        self._flush()
        self._account.release(held.charged)
        held.charged = 0
        seconds = self._loop.time() - held.complete_at
        self._meter.added(stream.path, held=True, seconds=seconds)
