"""Answers of the kernel, played by a socket of the test: errors, interrupted dumps, nonsense."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Iterator
from contextlib import closing

import pytest

from koordlet.kernel.net import netlink as nl
from koordlet.kernel.net.tc import TrafficControl

_HEADER = struct.Struct("=IHHII")
_NEWLINK, _GETLINK, _ERROR, _DONE = 16, 18, 2, 3
_MULTI, _INTERRUPTED, _CAPPED, _HAS_TEXT = 0x02, 0x10, 0x100, 0x200


class Kernel:
    """Answers the next requests as the test says, each with several messages at once."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.netlink = nl.Socket(nl.ROUTE)
        self.netlink._socket.close()
        self.netlink._socket = ours
        self._sequence = 0

    def close(self) -> None:
        self.netlink.close()
        self._theirs.close()

    def answer(self, *messages: tuple[int, int, bytes], request: int = 1) -> None:
        """(kind, flags, payload) of each. ``request``: to which after the last answered."""
        self._sequence += request
        data = b""
        for kind, flags, payload in messages:
            size = _HEADER.size + len(payload)
            data += _HEADER.pack(size, kind, flags, self._sequence, 0) + payload
        self._theirs.send(data)

    def links(self) -> list[int]:
        return [each["index"] for each in self.netlink.dump(_GETLINK, {}, "devices")]


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    with closing(Kernel()) as made:
        yield made


def link(index: int) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, 0, 0)


def error(code: int, text: str = "") -> bytes:
    """With the head of the request alone, as NETLINK_CAP_ACK has it."""
    data = struct.pack("=i", -code) + _HEADER.pack(500, _NEWLINK, 0x605, 1, 0)
    if text:
        words = text.encode() + b"\0"
        data += struct.pack("=HH", 4 + len(words), 1) + words + bytes(-len(words) % 4)
    return data


DONE = (_DONE, _MULTI, bytes(4))


def test_a_dump_that_was_interrupted_is_made_again(kernel: Kernel) -> None:
    for flags in (_INTERRUPTED, 0):
        kernel.answer((_NEWLINK, _MULTI, link(7)), (_NEWLINK, _MULTI | flags, link(8)), DONE)
    assert kernel.links() == [7, 8]


def test_also_where_only_its_end_says_so(kernel: Kernel) -> None:
    kernel.answer((_NEWLINK, _MULTI, link(7)), (_DONE, _MULTI | _INTERRUPTED, bytes(4)))
    kernel.answer((_NEWLINK, _MULTI, link(7)), (_NEWLINK, _MULTI, link(8)), DONE)
    assert kernel.links() == [7, 8]


def test_a_dump_that_is_always_interrupted_fails(kernel: Kernel) -> None:
    for _ in range(5):
        kernel.answer((_NEWLINK, _MULTI | _INTERRUPTED, link(7)), DONE)
    with pytest.raises(InterruptedError, match="devices: changed during each of 5 attempts"):
        kernel.links()


def test_an_answer_to_an_earlier_request_is_passed_over(kernel: Kernel) -> None:
    kernel.answer((_NEWLINK, _MULTI, link(3)), DONE, request=0)
    kernel.answer((_NEWLINK, _MULTI, link(7)), DONE)
    assert kernel.links() == [7]


@pytest.mark.parametrize(
    ("text", "filename"), [("", "v0"), ("No such thing", "v0 (No such thing)")]
)
def test_a_refusal_has_the_words_of_the_kernel(kernel: Kernel, text: str, filename: str) -> None:
    kernel.answer((_ERROR, _CAPPED | (_HAS_TEXT if text else 0), error(errno.EBUSY, text)))
    with pytest.raises(OSError, match="busy") as caught:
        kernel.netlink.request(_NEWLINK, {}, "v0")
    assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, filename)


def test_the_first_error_of_a_batch_counts(kernel: Kernel) -> None:
    """The kernel tells of each message that fails, and at the end of the one that asked."""
    for code in (errno.ENOENT, errno.EEXIST):
        kernel.answer((_ERROR, _CAPPED, error(code)))
    kernel.answer((_ERROR, 0, error(0)))
    messages = [(_NEWLINK, 0, {}), (_NEWLINK, 0, {}), (_NEWLINK, nl.ACK, {})]
    with pytest.raises(FileNotFoundError):
        kernel.netlink.batch(messages, "batch")


@pytest.mark.parametrize("size", [0, 15, 17, 0xFFFFFFFF])
def test_a_message_of_an_impossible_size_is_refused(kernel: Kernel, size: int) -> None:
    kernel._theirs.send(_HEADER.pack(size, _NEWLINK, _MULTI, 1, 0))
    with pytest.raises(ValueError, match=f"netlink message of {size} bytes"):
        kernel.links()


def test_a_kernel_that_does_not_answer_is_not_waited_for(kernel: Kernel) -> None:
    kernel.netlink._socket.settimeout(0.01)
    with pytest.raises(TimeoutError):
        kernel.links()
    assert nl._TIMEOUT_S == 10
    with closing(nl.Socket(nl.ROUTE)) as real:
        assert real._socket.gettimeout() == nl._TIMEOUT_S


def test_a_thread_with_an_event_loop_may_ask() -> None:
    """The daemon's restores on its loop, where pyroute2's own sockets raise RuntimeError."""

    async def links() -> set[str]:
        with closing(TrafficControl()) as control:
            return set(control.links())

    assert "lo" in asyncio.run(links())
