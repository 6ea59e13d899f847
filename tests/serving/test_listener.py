"""Turns, places of connections, and the listener that gives them."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from koordlet.serving import listener
from koordlet.serving.listener import Listener, Pace, Slots


def test_a_pace_has_a_burst_and_then_its_rate() -> None:
    now = 100.0
    pace = Pace(10, 5, lambda: now)
    assert [pace.wait_s() for _ in range(5)] == [0.0] * 5
    assert pace.left == pytest.approx(0)
    assert [pace.wait_s() for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    assert pace.left == pytest.approx(-3)
    now = 100.3
    assert pace.wait_s() == pytest.approx(0.1)
    now = 200.0
    assert pace.left == pytest.approx(5), "an idle time gives no more than the burst"
    assert pace.wait_s(7) == pytest.approx(0.2), "seven turns at once"


def test_the_owner_with_the_most_places_loses_its_idlest() -> None:
    dropped: list[str] = []
    slots = Slots(4)

    def take(owner: str, name: str) -> listener.Slot | None:
        return slots.take(owner, lambda: dropped.append(name))

    follower = take("alice", "alice-1")
    many = [take("bob", f"bob-{n}") for n in range(3)]
    assert None not in (follower, *many)
    assert follower is not None
    follower.idle_since = 0.0  # idle for an hour, and still not bob's to take
    for place, slot in enumerate(many):
        assert slot is not None
        slot.idle_since = 1.0 + place
    take("bob", "bob-3")
    take("carol", "carol-1")
    assert dropped == ["bob-0", "bob-1"]
    # alice 1, bob 2, carol 1: alice's second one makes her no worse than bob.
    take("carol", "carol-2")
    assert dropped[2:] == ["bob-2"]
    assert (len(slots), slots.dropped) == (4, 3)


def test_nobody_is_dropped_who_is_being_worked_for() -> None:
    slots = Slots(2)
    first, second = (slots.take(None, lambda: pytest.fail("dropped")) for _ in range(2))
    assert first is not None
    assert second is not None
    first.progress(spare_s=3600)
    second.progress(spare_s=3600)
    assert slots.take(None, lambda: None) is None
    slots.leave(first)
    assert slots.take(None, lambda: None) is not None


def test_connections_in_a_loop_are_accepted_at_a_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The burst is served at once; whoever comes after it waits in the kernel's queue."""
    monkeypatch.setattr(listener, "SERVED_PER_S", 0.001)
    monkeypatch.setattr(listener, "SERVED_BURST", 5)
    served = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal served
        served += 1

    async def body() -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "s"))
        found = Listener(sock, serve, limit_bytes=1024, backlog=64)
        for _ in range(5):
            reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            assert await reader.read() == b""
            writer.close()
        waiting = [await asyncio.open_unix_connection(str(tmp_path / "s")) for _ in range(20)]
        await asyncio.sleep(0.05)
        assert served == 5
        await found.stop()
        for reader, writer in waiting:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(asyncio.wait_for(body(), 30))


def test_one_connection_that_fails_fails_alone(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word = await reader.readline()
        if word == b"crash\n":
            raise RuntimeError("a defect")
        writer.write(word)
        await writer.drain()

    async def ask(word: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
        writer.write(word)
        try:
            return await reader.read()
        finally:
            writer.close()

    async def body() -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(str(tmp_path / "s"))
        found = Listener(sock, serve, limit_bytes=1024, backlog=64)
        assert await ask(b"crash\n") == b""
        assert await ask(b"hello\n") == b"hello\n"
        before = len(asyncio.all_tasks())
        await found.stop()
        assert len(asyncio.all_tasks()) == before - 1  # the one that accepts

    asyncio.run(asyncio.wait_for(body(), 30))
