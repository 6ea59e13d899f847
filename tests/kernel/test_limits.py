"""Limits of memory for which the kernel reclaims before the call returns."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path

import pytest

from koordlet.kernel import limits
from koordlet.kernel.limits import THREADS, LimitWriter, knows_nonblock

OLD, NEW = "6.12.43-amd64", "6.16.0-1-cloud-amd64"
Kernel = Callable[[str, bytes], None]


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """The kernel has reclaimed."""
    event = threading.Event()
    yield event
    event.set()


def slow(release: threading.Event, *, takes_first: bool) -> Kernel:
    """A kernel that reclaims for long, after it has taken the value (v2) or before (v1)."""

    def write(path: str, data: bytes) -> None:
        if takes_first:
            Path(path).write_bytes(data)
        release.wait(10)
        Path(path).write_bytes(data)

    return write


@pytest.mark.parametrize(
    ("kernel", "expected"), [(OLD, False), (NEW, True), ("7.2.1", True), ("odd", False)]
)
def test_which_kernel_knows_the_flag(kernel: str, expected: bool) -> None:
    assert knows_nonblock(kernel) is expected


def test_who_writes_does_not_wait_while_an_older_kernel_reclaims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(limits, "_write", slow(release, takes_first=True))
    monkeypatch.setattr(limits, "WAIT_S", 0.5)  # for a machine that starts threads slowly
    file = tmp_path / "memory.high"
    file.write_bytes(b"max\n")
    began = time.perf_counter()
    LimitWriter(OLD).write(str(file), b"4096")
    assert file.read_bytes() == b"4096" and time.perf_counter() - began < 5


def test_a_value_that_the_kernel_has_not_taken_yet_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    monkeypatch.setattr(limits, "_write", slow(release, takes_first=False))
    file = tmp_path / "memory.limit_in_bytes"
    file.write_bytes(b"max\n")
    writer = LimitWriter(OLD)
    for _ in range(THREADS + 2):
        with pytest.raises(OSError, match="reclaims") as caught:
            writer.write(str(file), b"4096")
        assert caught.value.errno == errno.EAGAIN and caught.value.filename == str(file)


def test_while_all_threads_wait_for_the_kernel_nobody_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: threading.Event
) -> None:
    """A turn may have hundreds of limits to write."""
    monkeypatch.setattr(limits, "_write", slow(release, takes_first=False))
    file = tmp_path / "memory.limit_in_bytes"
    file.write_bytes(b"max\n")
    writer = LimitWriter(OLD)
    for _ in range(THREADS):
        with pytest.raises(BlockingIOError):
            writer.write(str(file), b"4096")
    monkeypatch.setattr(limits, "WAIT_S", 60.0)
    with pytest.raises(BlockingIOError):
        writer.write(str(file), b"4096")
    release.set()
    wait(writer._waiting)
    for _ in range(2 * THREADS):
        writer.write(str(file), b"8192")
    assert file.read_bytes() == b"8192"


@pytest.mark.parametrize(
    ("limit", "value", "used", "by_itself"),
    [
        ("memory.high", b"4096", {"memory.current": "0\n"}, True),
        ("memory.max", b"4096", {"memory.current": "3000\n"}, True),
        ("memory.max", b"4096", {"memory.current": "4000\n"}, False),
        ("memory.high", b"4096", {"memory.current": "9000\n"}, False),
        ("memory.high", b"4096", {"memory.current": "odd"}, False),
        ("memory.high", b"4096", {}, False),
        ("memory.high", b"max", {"memory.current": "9000\n"}, True),
        ("memory.limit_in_bytes", b"4096", {"memory.usage_in_bytes": "0\n"}, True),
        ("memory.limit_in_bytes", b"4096", {"memory.usage_in_bytes": "9000\n"}, False),
        ("memory.limit_in_bytes", b"-1", {}, True),
    ],
)
def test_who_uses_much_less_makes_nobody_wait(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: bytes,
    used: dict[str, str],
    by_itself: bool,
) -> None:
    """A thread that gets no CPU for ``WAIT_S`` must not look like a kernel that reclaims."""
    writers = []

    def write(path: str, data: bytes) -> None:
        writers.append(threading.current_thread())
        Path(path).write_bytes(data)

    monkeypatch.setattr(limits, "_write", write)
    monkeypatch.setattr(limits, "WAIT_S", 10)
    for name, text in {limit: "max\n", **used}.items():
        (tmp_path / name).write_text(text)
    LimitWriter(OLD).write(str(tmp_path / limit), value)
    assert (writers == [threading.current_thread()]) is by_itself


@pytest.mark.parametrize("kernel", [OLD, NEW])
def test_a_refusal_is_that_of_the_kernel(tmp_path: Path, kernel: str) -> None:
    with pytest.raises(OSError, match="No such file") as caught:
        LimitWriter(kernel).write(str(tmp_path / "gone"), b"1")
    assert caught.value.filename == str(tmp_path / "gone")
