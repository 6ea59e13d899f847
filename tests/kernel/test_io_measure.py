"""Requests of a measured load reach the file, stay inside it, and errors come out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from koordlet.decision.snapshot import BlockDevices
from koordlet.kernel.block import read_block_devices
from koordlet.kernel.io_measure import (
    SMALL_BYTES,
    Load,
    disks_under,
    measure,
    open_device,
    open_nameless,
)
from koordlet.kernel.linux import LinuxHost

_SIZE = 1 << 20
LOADS = [Load(1 << 17), Load(SMALL_BYTES, is_random=True), Load(SMALL_BYTES, is_write=True)]


@pytest.fixture
def descriptor(tmp_path: Path):
    try:
        found = open_nameless(str(tmp_path), _SIZE)
    except OSError as error:
        pytest.skip(f"no direct I/O to nameless files in {tmp_path}: {error}")
    yield found
    os.close(found)


@pytest.mark.parametrize("load", LOADS)
def test_a_load_is_measured(descriptor: int, load: Load) -> None:
    rate = measure(descriptor, _SIZE, load, 0.1, threads=2)
    assert rate.per_s > 0
    assert rate.bytes_per_s == rate.per_s * load.request_bytes
    assert os.fstat(descriptor).st_size == _SIZE


def test_the_file_is_whole_and_has_no_name(descriptor: int, tmp_path: Path) -> None:
    stat = os.fstat(descriptor)
    assert (stat.st_size, stat.st_nlink) == (_SIZE, 0)
    assert stat.st_blocks * 512 >= _SIZE
    assert list(tmp_path.iterdir()) == []


def test_a_disk_as_fast_as_this_process_is_a_lower_bound() -> None:
    descriptor = os.open("/dev/zero", os.O_RDONLY)
    try:
        assert measure(descriptor, _SIZE, Load(SMALL_BYTES), 0.2, threads=2).own_limit
    finally:
        os.close(descriptor)


def test_each_kind_asks_for_other_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for is_random in (False, True):
        asked: list[int] = []

        def noted(descriptor: int, buffers: object, offset: int, asked=asked) -> int:
            asked.append(offset)
            return SMALL_BYTES

        monkeypatch.setattr("koordlet.kernel.io_measure.os.preadv", noted)
        measure(-1, 8 * SMALL_BYTES, Load(SMALL_BYTES, is_random=is_random), 0.05, threads=1)
        places = [offset // SMALL_BYTES for offset in asked[:16]]
        assert set(places) <= set(range(8))
        assert (places == [*range(8), *range(8)]) is not is_random


def test_errors_come_out(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(bytes(_SIZE))
    descriptor = os.open(file, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="Bad file descriptor"):
            measure(descriptor, _SIZE, Load(SMALL_BYTES, is_write=True), 0.1, threads=2)
        with pytest.raises(ValueError, match="less than one request"):
            measure(descriptor, 100, Load(SMALL_BYTES), 0.1)
    finally:
        os.close(descriptor)


def test_a_device_without_a_medium_is_told(tmp_path: Path) -> None:
    """Such as a loop device without a file."""
    empty = tmp_path / "loop"
    empty.touch()
    with pytest.raises(OSError, match="it holds 0 bytes"):
        open_device(str(empty))


def test_a_file_system_without_nameless_files_is_told() -> None:
    with pytest.raises(OSError, match="choose a directory on ext4"):
        open_nameless("/sys", _SIZE)


def test_the_disk_below_a_directory(tmp_path: Path) -> None:
    devices = read_block_devices(LinuxHost())
    below = disks_under(str(tmp_path), devices)
    assert below is None or set(below) <= {n for disks in devices.disks.values() for n in disks}
    assert disks_under("/proc", devices) is None
    assert disks_under(str(tmp_path), BlockDevices()) is None
