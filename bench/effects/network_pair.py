"""Two network namespaces joined by a veth pair, and packets between them.

A namespace belongs to a thread and ends with it, also when the test fails: nothing has a name on
the host. A socket stays in the namespace of the thread that made it.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

_libc = ctypes.CDLL(None, use_errno=True)
_T = TypeVar("_T")
_CLONE_NEWNET = 0x40000000
PACKET = bytes(1400)


class Namespace:
    """``run(work)``: by the thread whose network it is."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self.tid = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.run(self._enter)

    def run(self, work: Callable[[], _T]) -> _T:
        if threading.get_native_id() == self.tid:
            return work()
        future: Future[_T] = Future()
        self._queue.put((future, work))
        return future.result(timeout=60)

    def ip(self, *lines: str) -> None:
        text = "\n".join(lines)
        self.run(
            lambda: subprocess.run(
                ["ip", "-batch", "-"], input=text, text=True, check=True, capture_output=True
            )
        )

    def shell(self, command: Sequence[str]) -> str:
        return self.run(
            lambda: subprocess.run(command, text=True, check=True, capture_output=True).stdout
        )

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _enter(self) -> None:
        if _libc.unshare(_CLONE_NEWNET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "unshare(CLONE_NEWNET)")
        self.tid = threading.get_native_id()

    def _serve(self) -> None:
        while (item := self._queue.get()) is not None:
            future, work = item
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)


NODE_IPS = ("10.9.0.1", "10.9.0.11", "10.9.0.12", "10.9.0.13")
NODE_IPS6 = ("fd09::1", "fd09::11", "fd09::12", "fd09::13")
PEER_IP, PEER_IP6 = "10.9.0.2", "fd09::2"


class Pair:
    """``node`` has the device ``v0`` with all addresses of NODE_IPS and a default route to
    ``peer``."""

    def __init__(self, node: Namespace, peer: Namespace) -> None:
        self.node, self.peer = node, peer
        self.device = "v0"
        node.ip(
            "link set lo up",
            f"link add v0 type veth peer name v1 netns {peer.tid}",
            "link set v0 up",
            *(f"addr add {ip}/24 dev v0" for ip in NODE_IPS),
            *(f"addr add {ip}/64 dev v0 nodad" for ip in NODE_IPS6),
        )
        peer.ip(
            "link set v1 up",
            f"addr add {PEER_IP}/24 dev v1",
            f"addr add {PEER_IP6}/64 dev v1 nodad",
        )
        node.ip(
            f"route add default via {PEER_IP}",
            f"route add default via {PEER_IP6}",
        )


@contextmanager
def pair() -> Iterator[Pair]:
    """Raises OSError where the host does not let us (no root, no namespaces, no iproute2)."""
    with ExitStack() as stack:
        node, peer = (stack.enter_context(closing(Namespace())) for _ in range(2))
        yield Pair(node, peer)


def udp(namespace: Namespace, address: str) -> socket.socket:
    """Bound to ``address`` and a free port."""

    def make() -> socket.socket:
        found = socket.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
        )
        found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        found.bind((address, 0))
        found.settimeout(0.2)
        return found

    return namespace.run(make)


class Flow:
    """As many packets as ``source`` can send, at most ``bps`` where that is set, counted where
    they arrive."""

    def __init__(self, source: socket.socket, sink: socket.socket, bps: int = 0) -> None:
        self._source, self._sink, self._bps = source, sink, bps
        self.received = 0
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=w, daemon=True) for w in (self._send, self._take)]
        source.connect(sink.getsockname())

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()
        self._source.close()
        self._sink.close()

    def _send(self) -> None:
        started, sent = time.monotonic(), 0
        while not self._ends.is_set():
            ahead = sent * 8 / self._bps - (time.monotonic() - started) if self._bps else 0
            if ahead > 0:
                time.sleep(ahead + 0.002)
                continue
            try:
                sent += self._source.send(PACKET)
            except (TimeoutError, BlockingIOError):
                continue
            except OSError:  # no buffers: the queue is full
                time.sleep(0.001)

    def _take(self) -> None:
        while not self._ends.is_set():
            try:
                self.received += self._sink.recv_into(bytearray(2048))
            except TimeoutError:
                continue


def rates_bps(flows: Sequence[Flow], warm_s: float = 0.7, measure_s: float = 2.5) -> list[float]:
    """Payload rates of flows that run at the same time, after what they may send at once."""
    try:
        for flow in flows:
            flow.start()
        time.sleep(warm_s)
        before = [flow.received for flow in flows]
        began = time.monotonic()
        time.sleep(measure_s)
        seconds = time.monotonic() - began
        return [
            8 * (flow.received - first) / seconds for flow, first in zip(flows, before, strict=True)
        ]
    finally:
        for flow in flows:
            flow.stop()
