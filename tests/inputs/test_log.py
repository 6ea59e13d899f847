from __future__ import annotations

import errno
import os

import pytest

from koordlet.inputs.frame import pack
from koordlet.inputs.log import LONGEST_PAUSE, MOST_WAITING, Log
from koordlet.inputs.model import Answers, Begin, Changes, Minute, StoreShape
from koordlet.inputs.reader import log_files, minutes
from koordlet.tsdb.files import MemoryFiles

BEGIN = Begin("1.0", StoreShape(300.0, 1.0, 60))
HOUR_MS = 3_600_000


def minute(number: int, *, whole: bool = False) -> Minute:
    """``number`` can be told from what it holds."""
    begin = BEGIN if whole else None
    return Minute(bytes(8), bytes(8), (number,), (0,), {}, {}, {}, None, begin)


def numbers(files: MemoryFiles) -> list[list[int]]:
    """By file."""
    return [
        [each.rounds[0] for _, each in minutes(files, file)] for file in log_files(files, "/log")
    ]


class FailingFiles(MemoryFiles):
    fails = False

    def append(self, name: str, data: bytes) -> None:
        if self.fails:
            super().append(name, data[:10])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        super().append(name, data)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


def log(files: MemoryFiles, max_bytes: int = 1 << 20, retention_s: float = 3600) -> Log:
    return Log(files, "/log", max_bytes=max_bytes, retention_s=retention_s)


def take(to: Log, number: int, *, whole: bool = False, at_ms: int = 0) -> None:
    to.take(minute(number, whole=whole), at_ms, at_ms)


def test_a_whole_frame_begins_a_file(files: FailingFiles) -> None:
    found = log(files)
    for number in range(5):
        take(found, number, whole=number in (0, 3))
    found.write(0)
    assert numbers(files) == [[0, 1, 2], [3, 4]]
    again = log(files)
    take(again, 5, whole=True)
    again.write(0)
    assert numbers(files) == [[0, 1, 2], [3, 4], [5]]
    assert again.bytes == sum(size for _, size in files.list())


def test_what_is_not_fetched_for_long_is_dropped(files: FailingFiles) -> None:
    """And what would continue it, since it makes no sense after a gap."""
    found = log(files)
    take(found, 0, whole=True)
    found.write(0)
    for number in range(1, MOST_WAITING + 2):
        take(found, number)
    assert found.wants_new_file()
    take(found, 99, whole=True)
    found.write(0)
    assert numbers(files) == [[0], [99]]
    assert found.lost == MOST_WAITING + 1
    assert not found.wants_new_file()


def test_a_full_disk(files: FailingFiles) -> None:
    found = log(files)
    take(found, 0, whole=True)
    take(found, 1)
    found.write(0)
    files.fails = True
    take(found, 2)
    found.write(0)
    assert found.problem == "/log: the inputs log was not written: No space left on device"
    assert found.wants_new_file()
    assert not found.ready()
    assert found.ready()
    files.fails = False
    take(found, 3)  # of the file that broke
    take(found, 4, whole=True)
    found.write(0)
    assert found.problem == ""
    # What stood in the first file before is still there, also with a torn end.
    assert numbers(files) == [[0, 1], [4]]


def test_a_minute_that_cannot_be_read_back_is_not_written(files: FailingFiles) -> None:
    """Else all that follows in its file would be lost with it, and nothing would say so."""
    found = log(files)
    take(found, 0, whole=True)
    found.write(0)
    changes = Changes(answers=Answers(found=(2**70,)))
    found.take(Minute(bytes(8), bytes(8), (1,), (0,), {}, {0: changes}, {}), 0, 0)
    found.write(0)
    assert found.problem.endswith("a number in this minute of inputs is beyond 64 bits")
    assert found.wants_new_file()
    take(found, 2)
    take(found, 3, whole=True)
    found.write(0)
    assert found.problem == ""
    assert numbers(files) == [[0], [3]]
    assert found.lost == 2


def test_it_waits_longer_each_time(files: FailingFiles) -> None:
    files.fails = True
    found, waited = log(files), []
    for number in range(7):
        take(found, number, whole=True)
        found.write(0)
        count = 0
        while not found.ready():
            count += 1
        waited.append(count)
    assert waited == [1, 2, 4, 8, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_old_files_go(files: FailingFiles) -> None:
    found = log(files, retention_s=3600)
    for hour in range(4):
        take(found, hour, whole=True, at_ms=hour * HOUR_MS)
        found.write(hour * HOUR_MS)
    assert numbers(files) == [[2], [3]]
    log(files).write(100 * HOUR_MS)
    assert numbers(files) == [[2], [3]]  # nothing is looked at before there is something to write
    later = log(files)
    take(later, 9, whole=True, at_ms=100 * HOUR_MS)
    later.write(100 * HOUR_MS)
    assert numbers(files) == [[9]]


def test_too_many_bytes(files: FailingFiles) -> None:
    size = len(pack(minute(0, whole=True), 0, 0))
    found = log(files, max_bytes=3 * size + 30)
    for number in range(6):
        take(found, number, whole=True)
        found.write(0)
    assert numbers(files) == [[3], [4], [5]]


def test_a_large_file_is_followed_by_another(files: FailingFiles) -> None:
    """So that the bound is kept by dropping a quarter of it."""
    size = len(pack(minute(0, whole=True), 0, 0))
    found = log(files, max_bytes=4 * size + 30)
    take(found, 0, whole=True)
    found.write(0)
    assert not found.wants_new_file()
    take(found, 1)
    found.write(0)
    assert found.wants_new_file()


def test_a_file_that_vanishes(files: FailingFiles) -> None:
    found = log(files, retention_s=3600)
    take(found, 0, whole=True)
    take(found, 1, whole=True)
    found.write(0)
    files.unlink("inputs-00000001.kin")
    take(found, 2, whole=True, at_ms=9 * HOUR_MS)
    found.write(9 * HOUR_MS)
    assert numbers(files) == [[2]]
    assert found.problem == ""
