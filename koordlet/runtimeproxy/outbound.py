"""Sending DATA to the backend within its windows (RFC 9113 section 5.2).

Most DATA passes as it came: the client keeps to the windows the backend gave it. For a held
stream the proxy is the sender instead. Both share the window of the connection, which the client
sees larger than it is by what the proxy sent for held streams and the backend has not paid yet:

    client's view = real window + debt + what waits here

So what the backend pays goes to the debt first, and what does not fit waits here. When the client
sees nothing left, nothing is owed either, so it never waits for more than a direct one would.
"""

from __future__ import annotations

from collections import deque

from koordlet.runtimeproxy import frames
from koordlet.runtimeproxy.frames import FLOW_CONTROL_ERROR, MAX_WINDOW_BYTES, ProtocolError


class Outbound:
    def __init__(self) -> None:
        self.window = frames.DEFAULT_WINDOW_BYTES
        self.debt = 0
        self._initial = frames.DEFAULT_WINDOW_BYTES
        self._windows: dict[int, int] = {}  # of held streams
        self._waiting: dict[int, deque[tuple[memoryview, bool]]] = {}

    def hold(self, stream: int) -> None:
        """The proxy will send this stream's DATA."""
        self._windows[stream] = self._initial

    def passes(self, stream: int, size: int) -> bool:
        """Whether a DATA frame of the client may go on as it is, now; then it is counted."""
        if size > self.window or stream in self._waiting:
            return False
        self.window -= size
        return True

    def put(self, stream: int, payload: bytes | memoryview, *, end: bool) -> None:
        """To be sent when it fits."""
        self._waiting.setdefault(stream, deque()).append((memoryview(payload), end))

    def waits(self, stream: int) -> bool:
        return stream in self._waiting

    def forget(self, stream: int) -> int:
        """The stream has ended: bytes that waited and that the client's view must get back."""
        held = self._windows.pop(stream, None) is not None
        waiting = self._waiting.pop(stream, ())
        return 0 if held else sum(len(payload) for payload, _ in waiting)

    def announce(self, initial_bytes: int) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE moves the windows of open streams too."""
        if initial_bytes > MAX_WINDOW_BYTES:
            raise ProtocolError(FLOW_CONTROL_ERROR, "initial window above 2^31-1")
        change = initial_bytes - self._initial
        self._initial = initial_bytes
        for stream in self._windows:
            self._windows[stream] += change

    def paid(self, increment: int) -> int:
        """The backend's WINDOW_UPDATE of the connection: how much of it the client may get."""
        self.window = _grown(self.window, increment)
        swallowed = min(increment, self.debt)
        self.debt -= swallowed
        return increment - swallowed

    def paid_stream(self, stream: int, increment: int) -> bool:
        """Of one stream: whether it was for the proxy, not for the client."""
        if stream not in self._windows:
            return False
        self._windows[stream] = _grown(self._windows[stream], increment)
        return True

    def flush(self) -> list[bytes]:
        """Frames that fit now."""
        found: list[bytes] = []
        for stream in tuple(self._waiting):
            queue = self._waiting[stream]
            while queue:
                payload, end = queue[0]
                held = self._windows.get(stream)
                room = min(self.window, self.window if held is None else held, frames.DATA_BYTES)
                size = min(len(payload), max(room, 0))
                if payload and not size:
                    break
                last = size == len(payload)
                flags = frames.END_STREAM if last and end else 0
                found.append(frames.make(frames.DATA, flags, stream, bytes(payload[:size])))
                self.window -= size
                if held is not None:
                    self._windows[stream] = held - size
                    self.debt += size
                if last:
                    queue.popleft()
                else:
                    queue[0] = (payload[size:], end)
            if not queue:
                del self._waiting[stream]
        return found


def _grown(window: int, increment: int) -> int:
    if window + increment > MAX_WINDOW_BYTES:
        raise ProtocolError(FLOW_CONTROL_ERROR, "WINDOW_UPDATE above 2^31-1")
    return window + increment
