"""A disk that fills, refuses, forgets or rots."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb import Store
from koordlet.tsdb.archive import FIRST_RETRY_MS, LAST_RETRY_MS
from koordlet.tsdb.files import DiskFiles, Read

T0 = 1_700_000_400_000


class FaultyFiles(DiskFiles):
    """``fault`` maps an operation to the errno it fails with; ``room`` bytes are left."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.fault: dict[str, int] = {}
        self.room: int | None = None
        self.calls: list[str] = []

    def _check(self, operation: str, name: str) -> None:
        self.calls.append(operation)
        if operation in self.fault:
            code = self.fault[operation]
            raise OSError(code, os.strerror(code), f"{self.directory}/{name}")

    def prepare(self) -> None:
        self._check("prepare", "")
        super().prepare()

    def append(self, name: str, data: bytes) -> None:
        self._check("append", name)
        if self.room is not None:
            super().append(name, data[: self.room])
            self.room -= min(len(data), self.room)
            if self.room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        else:
            super().append(name, data)

    def sync(self, name: str) -> None:
        self._check("sync", name)
        super().sync(name)

    def unlink(self, name: str) -> None:
        self._check("unlink", name)
        super().unlink(name)

    @contextmanager
    def reader(self, name: str) -> Iterator[Read]:
        with super().reader(name) as read:

            def checked(offset: int, length: int) -> bytes:
                self._check("read", name)
                return read(offset, length)

            yield checked


class Writer:
    """A store that gets a round of two series each second and is maintained each ten."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.ids = [store.series("k", (("id", name),)) for name in "ab"]
        self.second = 0

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            now = T0 + self.second * 1000
            self.store.append(now, self.ids, [float(self.second % 500), 1.0])
            self.second += 1
            if self.second % 10 == 0:
                self.store.maintain(now)

    def count(self) -> float:
        result = self.store.aggregate(self.ids[:1], T0, T0 + 10**9, Aggregate.COUNT)
        assert result is not None
        return result.value


@pytest.fixture
def files(tmp_path: Path) -> FaultyFiles:
    return FaultyFiles(str(tmp_path / "tsdb"))


def open_store(files: FaultyFiles) -> Store:
    return Store(files.directory, files=files, hot_window_s=60, coarse_step_s=20)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_refusing_disk_means_memory_and_then_disk_again(files: FaultyFiles, code: int) -> None:
    writer = Writer(open_store(files))
    writer.run(100)
    assert writer.store.status().mode == "disk"
    files.fault["append"] = code
    writer.run(20)
    status = writer.store.status()
    assert status.mode == "memory"
    assert os.strerror(code) in status.why
    assert files.directory in status.why
    writer.run(400)
    assert writer.count() == 520, "what was on disk and what is in memory answer together"
    files.fault.clear()
    writer.run(LAST_RETRY_MS // 1000 + 20)
    status = writer.store.status()
    assert (status.mode, status.why, status.lost_rounds) == ("disk", "", 0)
    assert writer.count() == writer.second
    writer.store.close()
    again = Writer(open_store(files))
    assert again.count() == writer.second, "memory's segments went to disk"
    assert again.store.status().damage_count == 0


def test_a_failing_disk_is_asked_less_and_less(files: FaultyFiles) -> None:
    writer = Writer(open_store(files))
    files.fault["append"] = errno.ENOSPC
    writer.run(3600)
    tries = files.calls.count("append")
    assert 5 <= tries <= 3_600_000 // LAST_RETRY_MS + 8
    assert 10 * tries < 3_600_000 // FIRST_RETRY_MS


def test_a_disk_that_fills_in_the_middle_of_a_frame(files: FaultyFiles) -> None:
    writer = Writer(open_store(files))
    writer.run(40)
    files.room = 100
    writer.run(40)
    assert writer.store.status().mode == "memory"
    files.room = None
    writer.run(120)
    assert writer.store.status().mode == "disk"
    assert writer.count() == 200
    writer.store.close()
    again = Writer(open_store(files))
    assert again.count() == 200
    (damage,) = again.store.status().damaged
    assert "torn" in damage


def test_a_disk_that_does_not_sync(files: FaultyFiles) -> None:
    writer = Writer(open_store(files))
    files.fault["sync"] = errno.EIO
    writer.run(60)
    assert writer.store.status().mode == "memory"
    assert writer.count() == 60, "the frame that was written is not there twice"
    files.fault.clear()
    writer.run(100)
    assert writer.store.status().mode == "disk"
    assert writer.count() == 160


def test_a_directory_that_cannot_be_made_is_tried_again(files: FaultyFiles) -> None:
    files.fault["prepare"] = errno.EACCES
    writer = Writer(open_store(files))
    status = writer.store.status()
    assert (status.mode, os.strerror(errno.EACCES) in status.why) == ("memory", True)
    writer.run(60)
    files.fault.clear()
    writer.run(60)
    assert writer.store.status().mode == "disk"
    assert writer.count() == 120


def test_a_path_below_a_file_is_memory_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status = Store(str(tmp_path / "file" / "tsdb")).status()
    assert status.mode == "memory"
    assert "Not a directory" in status.why


def test_sectors_that_cannot_be_read_cost_what_is_on_them(files: FaultyFiles) -> None:
    writer = Writer(open_store(files))
    writer.run(300)
    files.fault["read"] = errno.EIO
    assert 60 <= writer.count() < 100, "the hot window answers"
    status = writer.store.status()
    assert any("Input/output error" in damage for damage in status.damaged)
    files.fault.clear()
    assert writer.count() == 300


def test_files_that_vanish_are_no_error(files: FaultyFiles) -> None:
    writer = Writer(open_store(files))
    writer.run(300)
    for name in os.listdir(files.directory):
        os.unlink(f"{files.directory}/{name}")
    assert 60 <= writer.count() < 100
    writer.run(300)
    assert writer.store.status().mode == "disk"


def test_files_that_cannot_be_removed_do_not_stop_retention(files: FaultyFiles) -> None:
    store = Store(files.directory, files=files, hot_window_s=60, retention_s=200, coarse_step_s=6)
    files.fault["unlink"] = errno.EROFS
    writer = Writer(store)
    writer.run(600)
    assert store.status().mode == "disk"
    assert store.status().lost_rounds == 0


def test_damage_in_a_segment_costs_only_what_it_hits(tmp_path: Path) -> None:
    directory = tmp_path / "tsdb"
    writer = Writer(Store(str(directory), hot_window_s=60, coarse_step_s=20))
    writer.run(160)
    writer.store.close()
    name = directory / "full-00000001.kts"
    whole = name.read_bytes()
    for position in range(0, len(whole), 7):
        data = bytearray(whole)
        data[position] ^= 0x55
        name.write_bytes(data)
        again = Writer(Store(str(directory), hot_window_s=60, coarse_step_s=20))
        count = again.count()
        assert count == 140
        status = again.store.status()
        assert status.damage_count == 1
        assert status.damaged[0].startswith("full-00000001.kts: byte ")


def mounted(directory: Path) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.kernel
def test_a_real_full_file_system(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not mounted(tmp_path):
        pytest.skip("needs root and the right to mount a tmpfs")
    try:
        store = Store(f"{tmp_path}/tsdb", hot_window_s=60, coarse_step_s=20)
        writer = Writer(store)
        (tmp_path / "ballast").write_bytes(bytes(228 << 10))
        seconds = 0
        while store.status().mode == "disk" and seconds < 20_000:
            writer.run(100)
            seconds += 100
        status = store.status()
        assert status.mode == "memory"
        assert os.strerror(errno.ENOSPC) in status.why
        writer.run(300)
        assert writer.count() == writer.second
        (tmp_path / "ballast").unlink()
        writer.run(LAST_RETRY_MS // 1000 + 20)
        assert store.status().mode == "disk"
        assert writer.count() == writer.second
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
