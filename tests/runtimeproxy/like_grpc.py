"""A client that runs calls again as grpc-go does: by itself, without its caller's knowledge.

grpc-go (``shouldRetry`` of its client streams) starts a call anew when the server did not process
it: its stream is above the number in GOAWAY, was refused with REFUSED_STREAM, or was never written.
A call whose connection breaks off otherwise fails with Unavailable.
"""

from __future__ import annotations

import asyncio

from koordlet.runtimeproxy import grpc_message
from koordlet.runtimeproxy.http2.headers import HeaderReader, status_of
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, make
from tests.runtimeproxy.attack import headers

UNAVAILABLE = 14
_REFUSED_STREAM = 0x7
_AGAIN_S = 0.02


class NotProcessedError(Exception):
    """The server has not begun the call and never will."""


class Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next = 1
        self._calls: dict[int, asyncio.Future[int | None]] = {}
        self.usable = True
        writer.write(frames.PREFACE + make(frames.SETTINGS, 0, 0))
        self._task = asyncio.get_running_loop().create_task(self._read())

    async def call(self, path: str, message: bytes) -> int | None:
        """The status. Raises NotProcessedError."""
        if self._writer.is_closing():
            self.usable = False
            raise NotProcessedError
        number, self._next = self._next, self._next + 2
        done = self._calls[number] = asyncio.get_running_loop().create_future()
        body = make(frames.DATA, frames.END_STREAM, number, grpc_message.wrap(message))
        self._writer.write(headers(number, path) + body)
        return await done

    async def _read(self) -> None:
        frames_in, table = FrameReader(from_client=False), HeaderReader()
        try:
            while data := await self._reader.read(1 << 16):
                for frame in frames_in.feed(data):
                    self._take(frame, table)
        except OSError:
            pass
        self.usable = False
        for done in self._calls.values():
            if not done.done():
                done.set_result(UNAVAILABLE)
        self._writer.close()

    def _take(self, frame: Frame, table: HeaderReader) -> None:
        if self._writer.is_closing():
            return
        number = frame.stream
        if frame.kind == frames.HEADERS:
            found = table.read(frame)
            if frame.flags & frames.END_STREAM:
                self._end(number, status_of(found))
        elif frame.kind == frames.DATA and len(frame.raw) > frames.HEAD_BYTES:
            self._writer.write(frames.window_update(0, len(frame.raw) - frames.HEAD_BYTES))
        elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
            self._writer.write(make(frames.SETTINGS, frames.ACK, 0))
        elif frame.kind == frames.PING and not frame.flags & frames.ACK:
            payload = frame.raw[frames.HEAD_BYTES :]
            self._writer.write(make(frames.PING, frames.ACK, 0, payload))
        elif frame.kind == frames.RST_STREAM:
            code = int.from_bytes(frame.raw[frames.HEAD_BYTES :])
            self._end(number, None if code == _REFUSED_STREAM else UNAVAILABLE)
        elif frame.kind == frames.GOAWAY:
            self.usable = False
            begin = frames.HEAD_BYTES
            last = int.from_bytes(frame.raw[begin : begin + 4]) & frames.MAX_WINDOW_BYTES
            for above in [each for each in self._calls if each > last]:
                self._end(above, None)

    def _end(self, number: int, status: int | None) -> None:
        """``status``: None where the call was not processed."""
        done = self._calls.pop(number, None)
        if done is None or done.done():
            return
        if status is None:
            done.set_exception(NotProcessedError())
        else:
            done.set_result(status)
        if not self.usable and not self._calls:
            self._writer.close()

    async def close(self) -> None:
        self._writer.transport.abort()
        await self._task


class Client:
    """``again``: how many calls it ran a second time by itself."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self.again = 0

    async def call(self, path: str, message: bytes) -> int | None:
        while True:
            connection = await self._connected()
            try:
                return await connection.call(path, message)
            except NotProcessedError:
                self.again += 1

    async def _connected(self) -> Connection:
        async with self._connecting:
            while self._connection is None or not self._connection.usable:
                try:
                    pair = await asyncio.open_unix_connection(self._path)
                except OSError:
                    await asyncio.sleep(_AGAIN_S)
                else:
                    self._connection = Connection(*pair)
            return self._connection

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
