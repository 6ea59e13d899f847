"""Devices of the device mapper without dmsetup (Linux ``include/uapi/linux/dm-ioctl.h``)."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

CONTROL = "/dev/mapper/control"
_CREATE, _REMOVE, _RESUME, _LOAD = 3, 4, 6, 9
_HEAD = struct.Struct("=3I I I I i I I I Q 128s 129s 7x".replace(" ", ""))
_TARGET = struct.Struct("=QQiI16s")
_SIZE = _HEAD.size + 512
SECTOR_BYTES = 512


def _call(command: int, name: str, uuid: str = "", target: bytes = b"", count: int = 0) -> None:
    """Raises OSError."""
    # Version 4.0.0; the answer is not looked at.
    head = _HEAD.pack(
        4, 0, 0, _SIZE, _HEAD.size, count, 0, 0, 0, 0, 0, name.encode(), uuid.encode()
    )
    request = 0xC0000000 | _HEAD.size << 16 | 0xFD << 8 | command
    control = os.open(CONTROL, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(control, request, bytearray((head + target).ljust(_SIZE, b"\0")))
    finally:
        os.close(control)


@contextmanager
def linear(name: str, uuid: str, device: str, sectors: int) -> Iterator[str]:
    """``name`` is all of ``device``, as a volume of LVM on one disk is. Its ``MAJ:MIN``."""
    parameters = f"{device} 0".encode() + b"\0"
    target = _TARGET.pack(0, sectors, 0, _TARGET.size + len(parameters), b"linear") + parameters
    _call(_CREATE, name, uuid)
    try:
        _call(_LOAD, name, target=target, count=1)
        _call(_RESUME, name)
        made = [d for d in Path("/sys/block").glob("dm-*") if _text(d / "dm/name") == name]
        yield _text(made[0] / "dev")
    finally:
        _call(_REMOVE, name)


def _text(path: Path) -> str:
    return path.read_text().strip()


@contextmanager
def loop_device(directory: Path, size_bytes: int) -> Iterator[str]:
    """Its path. Skips where the machine has no device mapper or loop devices."""
    if os.geteuid():
        pytest.skip("needs root")
    if shutil.which("losetup") is None:
        pytest.skip("losetup is not installed")
    for module in ("loop", "dm_mod"):
        with suppress(OSError):
            subprocess.run(["modprobe", "-q", module], check=False)
    if not os.path.exists(CONTROL):
        pytest.skip(f"{CONTROL} does not exist: the kernel has no device mapper")
    file = directory / "disk"
    file.write_bytes(b"")
    os.truncate(file, size_bytes)
    found = subprocess.run(
        ["losetup", "-f", "--show", str(file)], capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.skip(f"no loop device: {found.stderr.strip()}")
    path = found.stdout.strip()
    try:
        yield path
    finally:
        subprocess.run(["losetup", "-d", path], check=True)
