"""How a connection ends without a call that runs twice (RFC 9113 section 6.8).

A client runs again, elsewhere, every stream above the number in GOAWAY. So none of them may have
reached the runtime. The number is settled in two steps: first the client learns that it should open
no more streams, then, when it has answered a PING and all its streams have arrived, which was the
last.
"""

from __future__ import annotations

from typing import Final

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame

_PING: Final = b"koordlet"


class Farewell:
    """``ceiling``: what the client sends on streams above it goes nowhere."""

    def __init__(self) -> None:
        self.ceiling = frames.MAX_STREAM
        self.begun = False
        self.settled = False
        self._said = frames.MAX_STREAM  # a later GOAWAY never has a higher number

    def begin(self) -> bytes:
        """The frames of the first step."""
        self.begun = True
        return frames.goaway(self._said, frames.NO_ERROR) + frames.make(frames.PING, 0, 0, _PING)

    def answered(self, frame: Frame) -> bool:
        """Whether this PING is the answer that the first step asked for."""
        is_ours = bool(frame.flags & frames.ACK) and frame.raw[frames.HEAD_BYTES :] == _PING
        return self.begun and not self.settled and is_ours

    def settle(self, last_stream: int, code: int = frames.NO_ERROR, text: str = "") -> bytes:
        """The GOAWAY that settles it."""
        self.settled = True
        self.ceiling = self._said = min(last_stream, self._said)
        return frames.goaway(self._said, code, text)

    def runtime_leaves(self, last_stream: int) -> None:
        """The client gets this GOAWAY of the runtime, which takes no stream above the number."""
        self.ceiling = self._said = min(last_stream, self._said)
