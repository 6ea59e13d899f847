from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.inputs import frame
from koordlet.inputs.frame import HEADER_BYTES, DamagedError, pack, scan, unpack
from koordlet.inputs.model import Begin, Changes, Digests, Minute, StoreShape
from koordlet.inputs.reader import log_files, minutes
from koordlet.tsdb.files import DiskFiles

SHAPE = StoreShape(300.0, 1.0, 60)


def minute(turns: int = 2, **fields: object) -> Minute:
    times = array("d", [1e9 + turn for turn in range(turns)]).tobytes()
    given = {
        "now": times,
        "time": times,
        "rounds": (1,) * turns,
        "lags_ms": (3,) * turns,
        "wakes": {1: Wake(WakeKind.PSI, "caf\udce9")},
        "changes": {0: Changes(sources_synced=True)},
        "digests": {"cpu-suppress": Digests(bytes([1] * turns), bytes(4 * turns))},
    }
    return Minute(**given | fields)


WHOLE = minute(begin=Begin("1.0", SHAPE, is_start=True), memories={"cpu-suppress": b"\x90"})


def write(path: Path, *found: Minute) -> bytes:
    data = b"".join(pack(each, 10, 20) for each in found)
    path.write_bytes(data)
    return data


def read(directory: Path) -> list[Minute]:
    files = DiskFiles(str(directory))
    return [each for file in log_files(files, str(directory)) for _, each in minutes(files, file)]


def test_a_file_is_read_back(tmp_path: Path) -> None:
    write(tmp_path / "inputs-00000001.kin", WHOLE, minute(), minute(turns=0))
    write(tmp_path / "inputs-00000002.kin", WHOLE)
    write(tmp_path / "notes.txt", WHOLE)
    assert read(tmp_path) == [WHOLE, minute(), minute(turns=0), WHOLE]
    (first, second) = log_files(DiskFiles(str(tmp_path)), "/state/inputs")
    assert first.path == "/state/inputs/inputs-00000001.kin"
    assert [(f.is_whole, f.has_memories, f.is_start, f.turns) for f in first.frames] == [
        (True, True, True, 2),
        (False, False, False, 2),
        (False, False, False, 0),
    ]
    assert (second.frames[0].first_ms, second.frames[0].last_ms) == (10, 20)


def test_a_torn_end_costs_the_last_frame_alone(tmp_path: Path) -> None:
    """A kill tears an append anywhere."""
    file = tmp_path / "inputs-00000001.kin"
    first, second = len(pack(WHOLE, 10, 20)), len(pack(minute(), 10, 20))
    data = write(file, WHOLE, minute())
    for size in range(first, first + second):
        file.write_bytes(data[:size])
        assert read(tmp_path) == [WHOLE]
    for size in range(first):
        file.write_bytes(data[:size])
        assert read(tmp_path) == []


def test_any_changed_byte_is_told_with_its_file_and_frame(tmp_path: Path) -> None:
    file = tmp_path / "inputs-00000001.kin"
    first = len(pack(WHOLE, 10, 20))
    data = write(file, WHOLE, minute())
    for place in range(0, len(data), 3):
        broken = bytearray(data)
        broken[place] ^= 0x40
        file.write_bytes(broken)
        with pytest.raises(DamagedError) as found:
            read(tmp_path)
        assert found.value.path == str(file)
        assert found.value.offset == (0 if place < first else first)


def test_what_is_no_log_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "inputs-00000001.kin"
    file.write_bytes(b"x" * 200)
    with pytest.raises(DamagedError, match="byte 0: no header"):
        read(tmp_path)
    write(file, minute(), WHOLE)
    with pytest.raises(DamagedError, match="byte 0: its first frame is not whole"):
        read(tmp_path)


def test_another_format_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame, "_VERSION", 2)
    write(tmp_path / "inputs-00000001.kin", WHOLE)
    monkeypatch.undo()
    with pytest.raises(DamagedError, match="format 2, this koordlet reads 1"):
        read(tmp_path)


def test_more_than_a_frame_may_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack(WHOLE, 10, 20)
    monkeypatch.setattr(frame, "MAX_CONTENT_BYTES", 100)
    with pytest.raises(ValueError, match="more than a frame may"):
        pack(WHOLE, 10, 20)

    def whole(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    (found,) = scan(whole, "f")
    assert found.length == len(data) - HEADER_BYTES
    with pytest.raises(DamagedError, match="claims to hold"):
        unpack(whole, found, "f")


def test_columns_must_fit_together() -> None:
    data = pack(minute(lags_ms=(1,)), 10, 20)

    def whole(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    (found,) = scan(whole, "f")
    with pytest.raises(DamagedError, match="columns of different lengths"):
        unpack(whole, found, "f")
