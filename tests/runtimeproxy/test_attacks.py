"""Whoever may open the socket may be hostile: each attack is played against the whole proxy.

The bounds are of CPU time and of memory at its peak, never of wall time. What an attack sends is
chosen so that a proxy that does not defend itself is far beyond them.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from koordlet.wire import http2_frames as frames
from koordlet.wire.http2_frames import make
from tests.runtimeproxy.attack import (
    FREE,
    HELD,
    MAX_RSS_BYTES,
    VERSION,
    Attacker,
    Target,
    block,
    headers,
    target,
)
from tests.runtimeproxy.rig import in_loop, until

CALM, FLOW_CONTROL, FRAME_SIZE = 0xB, 0x3, 0x6
RESOURCE_EXHAUSTED = 8


async def survived(place: Target, *, cpu_s: float) -> None:
    used_s, peak_bytes = place.cpu_s(), place.peak_bytes()
    print(f"{used_s:.2f} CPU-s, {peak_bytes >> 20} MiB")
    assert used_s < cpu_s
    assert peak_bytes < MAX_RSS_BYTES
    await place.still_serves()


async def refused(attacker: Attacker, code: int) -> None:
    await until(lambda: attacker.ended)
    assert attacker.code == code


@in_loop
async def test_a_header_block_in_many_small_pieces(tmp_path: Path) -> None:
    """Joined anew with each piece, 1 MiB took 10 CPU-s."""
    async with target(tmp_path) as place:
        attacker = await place.attacker()
        piece = make(frames.CONTINUATION, 0, 1, bytes(8))
        await attacker.send(make(frames.HEADERS, 0, 1, bytes(8)))
        for _ in range(64):
            if not await attacker.send(piece * 2048):
                break
        await refused(attacker, CALM)
        await survived(place, cpu_s=1.5)


@in_loop
async def test_header_blocks_that_never_end(tmp_path: Path) -> None:
    """On as many connections as somebody can open."""
    async with target(tmp_path) as place:
        part = make(frames.HEADERS, 0, 1, bytes(frames.DATA_BYTES))
        more = make(frames.CONTINUATION, 0, 1, bytes(frames.DATA_BYTES))
        attackers = []
        for _ in range(400):
            attackers.append(await place.attacker(listens=False))
            await attackers[-1].send(part, more, more, more)
        await survived(place, cpu_s=5)
        for attacker in attackers:
            await attacker.close()


async def _pour(attacker: Attacker, streams: list[int], total: int, size: int) -> int:
    """DATA on these streams in turn, as far as their windows go; how many bytes it were."""
    sent = 0
    left = {stream: total // len(streams) for stream in streams}
    while left and not attacker.ended:
        moved = 0
        for stream in tuple(left):
            room = min(attacker.room(stream), left[stream], size)
            if stream in attacker.status or stream in attacker.resets or not left[stream]:
                del left[stream]
            elif room > 0:
                attacker.window -= room
                attacker.windows[stream] = attacker.windows.get(stream, 0) - room
                left[stream] -= room
                moved += room
                if not await attacker.send(make(frames.DATA, 0, stream, bytes(room))):
                    return sent
        sent += moved
        if not moved and left:
            try:
                await attacker.change()
            except TimeoutError:
                return sent
    return sent


@in_loop
async def test_requests_that_never_end(tmp_path: Path) -> None:
    """512 MiB of requests of a method that hooks may see, each within its windows."""
    async with target(tmp_path) as place:
        attackers = [await place.attacker() for _ in range(4)]
        streams = list(range(1, 17, 2))
        for attacker in attackers:
            await attacker.send(*(headers(stream, HELD) for stream in streams))
        sent = await asyncio.gather(
            *(_pour(attacker, streams, 128 << 20, frames.DATA_BYTES) for attacker in attackers)
        )
        assert sum(sent) < 512 << 20
        refusals = [code for attacker in attackers for code in attacker.status.values()]
        assert refusals and set(refusals) == {RESOURCE_EXHAUSTED}
        await survived(place, cpu_s=6)
        for attacker in attackers:
            await attacker.close()
        await place.still_serves()


@in_loop
async def test_data_beyond_the_windows(tmp_path: Path) -> None:
    """Of a method that passes, to a runtime that takes no more than the first window."""
    async with target(tmp_path, credit=False) as place:
        attacker = await place.attacker()
        data = make(frames.DATA, 0, 1, bytes(frames.DATA_BYTES))
        await attacker.send(headers(1, FREE))
        for _ in range(256):  # 64 MiB
            if not await attacker.send(data * 16):
                break
        await refused(attacker, FLOW_CONTROL)
        await survived(place, cpu_s=1.5)


@in_loop
async def test_data_that_nobody_asked_for(tmp_path: Path) -> None:
    """Of a method that stops here: where the proxy keeps up, the windows never end."""
    async with target(tmp_path) as place:
        attacker = await place.attacker()
        data = make(frames.DATA, 0, 1, bytes(frames.DATA_BYTES))
        await attacker.send(headers(1, HELD))
        for _ in range(256):
            if not await attacker.send(data * 16):
                break
        await until(
            lambda: attacker.code == FLOW_CONTROL or attacker.status == {1: RESOURCE_EXHAUSTED}
        )
        await survived(place, cpu_s=1.5)


@in_loop
async def test_frames_larger_than_allowed(tmp_path: Path) -> None:
    async with target(tmp_path) as place:
        attackers = []
        for _ in range(16):
            attackers.append(attacker := await place.attacker())
            await attacker.send(headers(1, HELD))
            head = b"\xff\xff\xff\0\0\0\0\0\1"  # DATA of 16 MiB less one byte
            for number in range(16):
                if not await attacker.send(head if not number else bytes(1 << 20)):
                    break
        for attacker in attackers:
            await refused(attacker, FRAME_SIZE)
        await survived(place, cpu_s=1.5)


@pytest.mark.parametrize("path", [HELD, FREE])
@in_loop
async def test_data_of_one_byte(tmp_path: Path, path: str) -> None:
    """Each costs its sender ten bytes, and costs whoever looks at it much more."""
    async with target(tmp_path) as place:
        attacker = await place.attacker()
        await attacker.send(headers(1, path))
        for _ in range(128):  # a million
            room = min(attacker.room(1), 8192)
            if not room:
                await attacker.change()
            attacker.window -= room
            attacker.windows[1] = attacker.windows.get(1, 0) - room
            if not await attacker.send(make(frames.DATA, 0, 1, b"x") * room):
                break
        await refused(attacker, CALM)
        await survived(place, cpu_s=1.5)


@in_loop
async def test_paths_that_somebody_made_up(tmp_path: Path) -> None:
    """They are no labels of metrics, and nothing is kept of them."""
    async with target(tmp_path) as place:
        attacker = await place.attacker()
        for begin in range(1, 20_001, 200):
            calls = []
            for number in range(begin, begin + 200, 2):
                path = b"/made.up/" + os.urandom(1000).hex().encode()
                calls.append(make(frames.HEADERS, frames.END_HEADERS, number, block(path)))
                calls.append(make(frames.DATA, frames.END_STREAM, number, bytes(5)))
            assert await attacker.send(*calls)
            while begin + 198 not in attacker.status:
                await attacker.change()
        reader, writer = await asyncio.open_unix_connection(place.status_path)
        writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
        page = (await reader.read()).decode()
        writer.close()
        assert 'calls_total{method="other"} 10000' in page
        assert "made.up" not in page
        assert len(page) < 100_000
        await survived(place, cpu_s=10)
        await attacker.close()


_FLOODS = {
    "ping": make(frames.PING, 0, 0, bytes(8)),
    "settings": make(frames.SETTINGS, 0, 0, bytes([0, 4, 0, 1, 0, 0])),
    "empty settings": make(frames.SETTINGS, 0, 0),
    "priority": make(frames.PRIORITY, 0, 3, bytes(5)),
    "window": make(frames.WINDOW_UPDATE, 0, 0, bytes([0, 0, 0, 1])),
    "empty data": make(frames.DATA, 0, 1),
    "padding": make(frames.DATA, frames.PADDED, 1, b"\0"),
    "unknown": make(0xEE, 0, 0, b"x"),
    "reset": make(frames.RST_STREAM, 0, 1, bytes(4)),
}


@pytest.mark.parametrize("raw", _FLOODS.values(), ids=_FLOODS.keys())
@in_loop
async def test_frames_that_cost_their_sender_nothing(tmp_path: Path, raw: bytes) -> None:
    async with target(tmp_path) as place:
        attacker = await place.attacker()
        await attacker.send(headers(1, HELD))
        for _ in range(200):  # 400,000 of them
            if not await attacker.send(raw * 2000):
                break
        await until(lambda: attacker.ended)
        await survived(place, cpu_s=1.5)


@in_loop
async def test_calls_that_are_reset_at_once(tmp_path: Path) -> None:
    """Rapid reset (CVE-2023-44487)."""
    async with target(tmp_path) as place:
        attacker = await place.attacker()
        number = 1
        for _ in range(200):  # 100,000
            calls = []
            for _ in range(500):
                calls += [headers(number, HELD), make(frames.RST_STREAM, 0, number, bytes(4))]
                number += 2
            if not await attacker.send(*calls):
                break
        await until(lambda: attacker.ended)
        await survived(place, cpu_s=6)


@in_loop
async def test_more_calls_at_a_time_than_announced(tmp_path: Path) -> None:
    async with target(tmp_path) as place:
        attackers = [await place.attacker() for _ in range(8)]
        for attacker in attackers:
            for begin in range(1, 8001, 2000):
                streams = range(begin, begin + 2000, 2)
                await attacker.send(*(headers(stream, HELD) for stream in streams))
        await until(lambda: all(len(attacker.resets) >= 3000 for attacker in attackers))
        assert {code for each in attackers for code in each.resets.values()} == {0x7}
        await survived(place, cpu_s=10)
        for attacker in attackers:
            await attacker.close()


@in_loop
async def test_a_client_that_never_reads(tmp_path: Path) -> None:
    """What it causes to be sent to it piles up somewhere: not here."""
    async with target(tmp_path) as place:
        attacker = await place.attacker(listens=False)
        number, stuck = 1, False
        while number < 200_000 and not stuck:
            calls = []
            for _ in range(200):
                calls.append(headers(number, "/made.up/Method"))
                calls.append(make(frames.DATA, frames.END_STREAM, number, bytes(5)))
                number += 2
            try:
                async with asyncio.timeout(2):
                    stuck = not await attacker.send(*calls)
            except TimeoutError:
                stuck = True
        assert stuck
        await survived(place, cpu_s=10)
        await attacker.close()


@in_loop
async def test_more_connections_than_anybody_needs(tmp_path: Path) -> None:
    """Idle ones make room, so that kubelet is never locked out."""
    async with target(tmp_path) as place:
        attackers = [await place.attacker() for _ in range(600)]
        await until(lambda: place.open_files() < 2 * 256 + 64)
        await survived(place, cpu_s=8)
        for attacker in attackers:
            await attacker.close()


@in_loop
async def test_a_header_block_that_unpacks_to_much(tmp_path: Path) -> None:
    """Sixteen thousand references to one long entry of the table."""
    async with target(tmp_path) as place:
        attacker = await place.attacker()
        entry = b"\x40\x01a\x7f\xa1\x1e" + bytes(4000)
        bomb = entry + b"\xbe" * 12_000
        await attacker.send(make(frames.HEADERS, frames.END_HEADERS, 1, bomb))
        await refused(attacker, 0x9)
        await survived(place, cpu_s=1.5)


@in_loop
async def test_the_same_while_there_is_no_runtime(tmp_path: Path) -> None:
    async with target(tmp_path, with_runtime=False) as place:
        for raw in (_FLOODS["ping"], _FLOODS["settings"], _FLOODS["empty data"]):
            attacker = await place.attacker(listens=False)
            await attacker.send(headers(1, VERSION))
            for _ in range(200):
                if not await attacker.send(raw * 2000):
                    break
            await attacker.close()
        used_s, peak_bytes = place.cpu_s(), place.peak_bytes()
        assert used_s < 5 and peak_bytes < MAX_RSS_BYTES
