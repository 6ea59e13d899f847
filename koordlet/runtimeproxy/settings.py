"""SETTINGS on their way through (RFC 9113 section 6.5): what the proxy cannot hold to is reduced.

A value below the one that a peer announced is always one that this peer can live with.
"""

from __future__ import annotations

from typing import Final

from koordlet.runtimeproxy.flow import Flow
from koordlet.runtimeproxy.http2.headers import HeaderReader
from koordlet.runtimeproxy.http2.limits import MAX_STREAMS
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, ProtocolError

MAX_TABLE_BYTES: Final = 64 << 10
"""Of a table of header compression; the default is 4 KiB."""
_MAX_SETTINGS: Final = 64
_HIGHEST: Final = {
    frames.SETTING_HEADER_TABLE_SIZE: MAX_TABLE_BYTES,
    frames.SETTING_MAX_FRAME_SIZE: frames.DATA_BYTES,
}


class Settings:
    """Of one link; those who must know of a setting are told."""

    def __init__(self, requests: HeaderReader, responses: HeaderReader, flow: Flow) -> None:
        self._requests = requests
        self._responses = responses
        self._flow = flow
        self._streams = MAX_STREAMS

    def of_client(self, frame: Frame) -> bytes | memoryview:
        """What the backend gets instead. Raises ProtocolError."""
        if frame.flags & frames.ACK:
            self._flow.settings_acknowledged()
            return frame.raw
        found = _reduced(frame)
        self._responses.allow_table(found.get(frames.SETTING_HEADER_TABLE_SIZE, 0))
        return frames.settings(found)

    def of_backend(self, frame: Frame) -> bytes | memoryview:
        """What the client gets instead. Raises ProtocolError."""
        if frame.flags & frames.ACK:
            return frame.raw
        found = _reduced(frame)
        self._requests.allow_table(found.get(frames.SETTING_HEADER_TABLE_SIZE, 0))
        self._flow.inbound.announce(found.get(frames.SETTING_INITIAL_WINDOW_SIZE))
        name = frames.SETTING_MAX_CONCURRENT_STREAMS
        self._streams = found[name] = min(found.get(name, self._streams), MAX_STREAMS)
        return frames.settings(found)


def _reduced(frame: Frame) -> dict[int, int]:
    """Of a setting that comes twice, the last."""
    if len(frame.raw) > frames.HEAD_BYTES + _MAX_SETTINGS * frames.SETTING_BYTES:
        raise ProtocolError(frames.ENHANCE_YOUR_CALM, f"more than {_MAX_SETTINGS} settings")
    return {
        name: min(value, _HIGHEST.get(name, value)) for name, value in frames.settings_of(frame)
    }
