"""The real proxy process under attack: what it may use of CPU and memory, and a client that keeps
to HTTP/2 no more than it has to."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from koordlet.runtimeproxy.http2.headers import HeaderReader, status_of
from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import Frame, FrameReader, make
from tests.runtimeproxy.plain_runtime import plain_runtime
from tests.runtimeproxy.rig import RUNTIME, channel

VERSION = f"{RUNTIME}Version"
HELD = f"{RUNTIME}CreateContainer"
FREE = f"{RUNTIME}ExecSync"
MAX_RSS_BYTES = 128 << 20
# What is kept in step by both ends is not touched: literals without indexing (RFC 7541, 6.2.2).
_FIXED = ((b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"))


def block(path: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Headers that leave the tables of compression alone."""
    pairs = (*_FIXED, (b":path", path), (b"te", b"trailers"))
    pairs += ((b"content-type", b"application/grpc"), *more)
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in pairs)


def _text(text: bytes) -> bytes:
    size = len(text)
    if size < 127:
        return bytes([size]) + text
    size -= 127
    found = b"\x7f"
    while size >= 128:
        found += bytes([size % 128 + 128])
        size //= 128
    return found + bytes([size]) + text


def headers(stream: int, path: str, flags: int = frames.END_HEADERS) -> bytes:
    return make(frames.HEADERS, flags, stream, block(path.encode()))


@dataclass
class Attacker:
    """``take`` is called with each frame that comes back; credit is counted for whoever cares."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    window: int = frames.DEFAULT_WINDOW_BYTES
    windows: dict[int, int] = field(default_factory=dict)
    status: dict[int, int | None] = field(default_factory=dict)
    resets: dict[int, int] = field(default_factory=dict)
    goaway: bytes = b""
    initial: int = frames.DEFAULT_WINDOW_BYTES
    _reader: FrameReader = field(default_factory=lambda: FrameReader(from_client=False))
    _headers: HeaderReader = field(default_factory=HeaderReader)
    _reading: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def listen(self) -> None:
        self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        try:
            while part := await self.reader.read(1 << 16):
                for frame in self._reader.feed(part):
                    self._take(frame)
                self._changed.set()
        except OSError:
            pass
        self._changed.set()

    def _take(self, frame: Frame) -> None:
        if frame.kind == frames.WINDOW_UPDATE:
            size = frames.increment_of(frame)
            if frame.stream:
                self.windows[frame.stream] = self.windows.get(frame.stream, 0) + size
            else:
                self.window += size
        elif frame.kind == frames.HEADERS:
            found = self._headers.read(frame)
            if frame.flags & frames.END_STREAM:
                self.status[frame.stream] = status_of(found)
        elif frame.kind == frames.SETTINGS and not frame.flags & frames.ACK:
            told = dict(frames.settings_of(frame))
            self.initial = told.get(frames.SETTING_INITIAL_WINDOW_SIZE, self.initial)
            self.writer.write(make(frames.SETTINGS, frames.ACK, 0))
        elif frame.kind == frames.RST_STREAM:
            self.resets[frame.stream] = int.from_bytes(frame.raw[9:13])
        elif frame.kind == frames.GOAWAY:
            self.goaway = bytes(frame.raw[frames.HEAD_BYTES :])

    @property
    def code(self) -> int | None:
        """Of the GOAWAY."""
        return int.from_bytes(self.goaway[4:8]) if self.goaway else None

    @property
    def ended(self) -> bool:
        return self._reading is not None and self._reading.done()

    def room(self, stream: int) -> int:
        return min(self.window, self.initial + self.windows.get(stream, 0), frames.DATA_BYTES)

    async def change(self, at_most_s: float = 5.0) -> None:
        """Until something came back."""
        self._changed.clear()
        if not self.ended:
            async with asyncio.timeout(at_most_s):
                await self._changed.wait()

    async def send(self, *raw: bytes) -> bool:
        """Whether the connection still stands; waits where the proxy does not read."""
        try:
            self.writer.write(b"".join(raw))
            await self.writer.drain()
        except OSError:
            return False
        return not self.writer.is_closing()

    async def close(self) -> None:
        self.writer.transport.abort()
        if self._reading is not None:
            await self._reading


@dataclass
class Target:
    path: str
    status_path: str
    pid: int
    began_s: float = 0.0

    def cpu_s(self) -> float:
        """Since the attack began, of all threads, by the scheduler's own account."""
        total_ns = 0
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            text = Path(f"/proc/{self.pid}/task/{thread}/schedstat").read_text()
            total_ns += int(text.split()[0])
        return total_ns / 1e9 - self.began_s

    def peak_bytes(self) -> int:
        """The most memory it ever had."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise AssertionError("the proxy has ended")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    async def attacker(self, *, listens: bool = True) -> Attacker:
        made = Attacker(*await asyncio.open_unix_connection(self.path))
        if listens:
            made.listen()
        await made.send(frames.PREFACE, make(frames.SETTINGS, 0, 0))
        return made

    async def still_serves(self) -> None:
        """Somebody else, who comes now, is served."""
        async with channel(self.path) as client:
            call = client.unary_unary(VERSION)
            assert await call(b"x", wait_for_ready=True, timeout=60) == b"x"


@asynccontextmanager
async def target(
    directory: Path, *, with_runtime: bool = True, credit: bool = True
) -> AsyncIterator[Target]:
    """The proxy as a process, with a runtime that answers what it is asked. ``credit``: it takes
    more than the first window."""
    path, status = str(directory / "run" / "proxy.sock"), str(directory / "run" / "status.sock")
    command = (
        *(sys.executable, "-m", "koordlet", "runtime-proxy"),
        f"--koord-runtimeproxy-endpoint={path}",
        f"--remote-runtime-service-endpoint={directory}/runtime.sock",
        f"--hook-config-dir={directory}/hooks.d",
        f"--status-socket={status}",
    )
    where = str(directory / "runtime.sock")
    async with plain_runtime(where, credit=credit) if with_runtime else nullcontext():
        running = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        try:
            found = Target(path, status, running.pid)
            while not os.path.exists(path):
                await asyncio.sleep(0.02)
            if with_runtime:
                await found.still_serves()
            found.began_s = found.cpu_s()
            yield found
            assert running.returncode is None, "the proxy has ended"
        finally:
            if running.returncode is None:
                running.kill()
            await running.wait()
