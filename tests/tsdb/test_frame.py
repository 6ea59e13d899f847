"""Frames on disk: damage at any byte costs what it hits and nothing else."""

from __future__ import annotations

from array import array

import pytest

from koordlet.tsdb import frame as frames
from koordlet.tsdb.files import Read
from koordlet.tsdb.frame import DamagedError, Frame, Key

KEYS: list[Key] = [("cpu", (("id", "a"),)), ("cpu", (("id", "b"),)), ("mem", ())]
ROWS = 5


def column(number: int, series: int) -> array[float]:
    return array("f", [float(number * 100 + series * 10 + row) for row in range(ROWS)])


def block(number: int) -> bytes:
    times = array("q", range(number * 1000, number * 1000 + ROWS))
    floats = b"".join(column(number, series).tobytes() for series in range(len(KEYS)))
    return frames.assemble(times, KEYS, [frames.pack_group(floats, ROWS)])


def reader(data: bytes) -> Read:
    return lambda offset, length: data[offset : offset + length]


def content(data: bytes) -> dict[int, list[array[float]]]:
    """Everything readable, by the first time of its frame."""
    read = reader(data)
    found = {}
    for frame in frames.scan(read, len(data))[0]:
        try:
            directory = frames.read_directory(read, frame)
            planes = frames.read_group(read, directory, 0)
        except DamagedError:
            continue
        assert list(frames.parse_dictionary(directory.dictionary)) == KEYS
        found[directory.times[0]] = [
            frames.column_of(planes, frame.rows, series) for series in range(frame.series)
        ]
    return found


WHOLE = {n * 1000: [column(n, series) for series in range(len(KEYS))] for n in (1, 2, 3)}
FILE = b"".join(map(block, (1, 2, 3)))
ENDS = [len(b"".join(map(block, range(1, n + 1)))) for n in (1, 2, 3)]


def test_round_trip() -> None:
    assert content(FILE) == WHOLE
    found, damaged = frames.scan(reader(FILE), len(FILE))
    assert damaged == []
    assert [(f.offset, f.offset + f.length) for f in found] == list(
        zip([0, *ENDS], ENDS, strict=False)
    )
    assert found[1][2:5] == Frame(0, 0, ROWS, 3, 1, 0, 0, 0, 0)[2:5]
    assert (found[1].first_ms, found[1].last_ms) == (2000, 2004)


@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_a_flipped_byte_costs_its_frame(flip: int) -> None:
    for position in range(len(FILE)):
        data = bytearray(FILE)
        data[position] ^= flip
        hit = 1 + sum(end <= position for end in ENDS)
        assert content(bytes(data)) == {k: v for k, v in WHOLE.items() if k != hit * 1000}


def test_a_torn_tail_is_cut_and_named() -> None:
    for length in range(len(FILE)):
        data = FILE[:length]
        whole = sum(end <= length for end in ENDS)
        assert content(data) == {n * 1000: WHOLE[n * 1000] for n in range(1, whole + 1)}
        _, damaged = frames.scan(reader(data), length)
        clean = length in (0, *ENDS)
        assert len(damaged) == (0 if clean else 1)
        assert clean or damaged[0].startswith(f"byte {[0, *ENDS][whole]}: torn")


def test_a_lost_stretch_in_the_middle_costs_the_frames_it_hits() -> None:
    data = FILE[: ENDS[0] - 7] + FILE[ENDS[0] + 9 :]
    assert content(data) == {3000: WHOLE[3000]}


def test_another_format_version_is_named() -> None:
    data = bytearray(block(1))
    data[4] = 99
    head = bytes(data[: frames.HEADER_BYTES - 4])
    data[frames.HEADER_BYTES - 4 : frames.HEADER_BYTES] = frames.zlib.crc32(head).to_bytes(
        4, "little"
    )
    found, damaged = frames.scan(reader(bytes(data)), len(data))
    assert found == []
    assert damaged == ["byte 0: format version 99, this koordlet reads 1"]


def test_a_frame_of_many_groups() -> None:
    keys: list[Key] = [("k", (("id", str(n)),)) for n in range(150)]
    columns = [array("f", [float(n)] * ROWS).tobytes() for n in range(150)]
    size = frames.GROUP_COLUMNS
    groups = [
        frames.pack_group(b"".join(columns[start : start + size]), ROWS)
        for start in range(0, 150, size)
    ]
    data = frames.assemble(array("q", range(ROWS)), keys, groups)
    (frame,), _ = frames.scan(reader(data), len(data))
    directory = frames.read_directory(reader(data), frame)
    for key, number in frames.parse_dictionary(directory.dictionary).items():
        planes = frames.read_group(reader(data), directory, number // size)
        assert key == keys[number]
        assert frames.column_of(planes, ROWS, number % size).tolist() == [float(number)] * ROWS
