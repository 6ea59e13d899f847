"""Flow control of one connection's requests: what the client sends, what the runtime gets of it."""

from __future__ import annotations

from typing import Final, TypeAlias

from koordlet.runtimeproxy.http2.inbound import Inbound
from koordlet.runtimeproxy.http2.limits import Account
from koordlet.runtimeproxy.http2.outbound import Outbound
from koordlet.runtimeproxy.streams import Stream
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import ENHANCE_YOUR_CALM, Frame, ProtocolError

_STREAM_CREDIT_BYTES: Final = 16 << 10
"""Held DATA is given back in pieces of this size; the window of its stream is 64 KiB or more."""

_WITHHELD_BYTES: Final = 8 << 10
_PLENTY_BYTES: Final = 40 << 10

Raw: TypeAlias = bytes | memoryview


class Flow:
    """``to_backend`` and ``to_client`` give the frames that are to be sent now."""

    def __init__(self, account: Account) -> None:
        self.inbound = Inbound()
        self.outbound = Outbound()
        self._account = account
        self._credit: list[bytes] = []
        self.response_bytes = 0
        """Of DATA that went to the client."""
        self._response_window = frames.DEFAULT_WINDOW_BYTES
        self._withheld = 0

    def arrived(self, stream: Stream | None, size: int) -> None:
        """DATA of ``size`` bytes. Raises ProtocolError when the client must not send so much."""
        self.inbound.spend(size)
        if stream is not None:
            stream.window -= size
            self.inbound.check(stream.window)

    def hold(self, stream: Stream) -> None:
        """The proxy takes the DATA of this stream and sends its own."""
        self.outbound.hold(stream.id)
        missing = frames.DEFAULT_WINDOW_BYTES - self.inbound.initial
        if missing > 0:
            self._give(stream, missing)

    def absorbed(self, stream: Stream, size: int) -> None:
        """DATA went no further: the client may send as much again."""
        self.inbound.owed += size
        stream.owed += size
        if stream.owed >= _STREAM_CREDIT_BYTES and not stream.half_closed:
            self._give(stream, stream.owed)
            stream.owed = 0

    def pass_on(self, frame: Frame, stream: Stream, size: int) -> Raw | None:
        """DATA for the backend as it came; None where it has to wait. Raises ProtocolError."""
        if self.outbound.passes(stream.id, size):
            return frame.raw
        payload = frames.data_of(frame)
        self.absorbed(stream, size - len(payload))
        self.outbound.put(stream.id, payload, end=stream.half_closed)
        if not self._account.wait(self.outbound.waiting_bytes):
            raise ProtocolError(ENHANCE_YOUR_CALM, "too many bytes wait for the runtime")
        return None

    def pass_late(self, frame: Frame, size: int) -> Raw | None:
        """The same of a stream that has ended: the client may not know that yet."""
        if self.outbound.passes(frame.stream, size):
            return frame.raw
        self.inbound.owed += size
        return None

    def dropped(self, stream: int) -> None:
        """The stream has ended; what waited of it is not sent."""
        self.inbound.owed += self.outbound.forget(stream)

    def paid(self, frame: Frame, stream: Stream | None) -> Raw | None:
        """WINDOW_UPDATE of the backend, for the client. Raises ProtocolError."""
        increment = frames.increment_of(frame)
        if not frame.stream:
            self.inbound.paid(self.outbound.paid(increment))
            return None
        if self.outbound.paid_stream(frame.stream, increment):
            return None
        if stream is not None:
            stream.window += increment
        return frame.raw

    def responded(self, size: int) -> None:
        """DATA of a response went to the client."""
        self.response_bytes += size
        self._response_window -= size

    def credited(self, size: int) -> bool:
        """The client gave credit for the connection; whether the backend should have it at once. It
        is not worth waking it up for a little, of which it has enough."""
        self._response_window += size
        self._withheld += size
        if self._withheld < _WITHHELD_BYTES and self._response_window > _PLENTY_BYTES:
            return False
        self._withheld = 0
        return True

    def settings_acknowledged(self) -> None:
        """The client goes by the settings of the backend, which counts on it from then on: a window
        that grew before that would not be there yet for what the proxy sends."""
        initial = self.inbound.acknowledged()
        if initial is not None:
            self.outbound.announce(initial)

    def to_backend(self) -> list[bytes]:
        """DATA that waited and fits now."""
        found = self.outbound.flush()
        self._account.wait(self.outbound.waiting_bytes)
        return found

    @property
    def owes(self) -> bool:
        """Whether the client has credit to come."""
        return bool(self._credit or self.inbound.owed)

    def to_client(self, *, with_others: bool) -> list[bytes]:
        """Credit. ``with_others``: the client gets other frames now anyway."""
        found, self._credit = self._credit, []
        credit = self.inbound.credit(with_others=with_others or bool(found))
        if credit:
            found.append(credit)
        return found

    def _give(self, stream: Stream, size: int) -> None:
        stream.window += size
        self._credit.append(frames.window_update(stream.id, size))
