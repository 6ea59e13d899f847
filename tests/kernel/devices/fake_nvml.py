"""The stand-in for libnvidia-ml.so.1, compiled here, and the file that says what it tells."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.kernel.devices.nvml import Nvml

SOURCE = Path(__file__).with_name("fake_nvml.c")
SONAME = "libnvidia-ml.so.1"
"""Whoever loads a library of this name finds the one that is loaded already."""
A, B = "GPU-aaaaaaaa", "GPU-bbbbbbbb"
TWO = (
    f"gpu {A} 0 00000000:3B:00.0 81920 600 NVIDIA_H100_80GB_HBM3",
    f"gpu {B} 1 00000000:86:00.0 81920 600 NVIDIA_H100_80GB_HBM3",
)


def until(is_so: Callable[[], bool]) -> None:
    """Within a minute, whatever else the machine does."""
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


class FakeNvml:
    """``lines``: see ``fake_nvml.c``. Each change is in force at the next call."""

    def __init__(self, library: Path, file: Path) -> None:
        self.library = library
        self.file = file
        self.lines: list[str] = []
        self.say()

    def say(self, *lines: str) -> None:
        """These instead of all others."""
        self.lines = list(lines)
        self._write()

    def add(self, *lines: str) -> None:
        self.lines += lines
        self._write()

    def drop(self, beginning: str) -> None:
        self.lines = [line for line in self.lines if not line.startswith(beginning)]
        self._write()

    def load(self) -> Nvml:
        return Nvml(ctypes.CDLL(str(self.library)))

    @property
    def sessions(self) -> int:
        """Those that were begun and not ended, in this process."""
        return int(ctypes.CDLL(str(self.library)).fakeSessions())

    def _write(self) -> None:
        new = self.file.with_suffix(".new")
        new.write_text("".join(f"{line}\n" for line in self.lines))
        new.rename(self.file)


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the stand-in of libnvidia-ml.so.1 (apt install gcc)")
    library = tmp_path_factory.mktemp("nvml") / SONAME
    options = ("-shared", "-fPIC", "-O1", "-Wall", "-Werror", f"-Wl,-soname,{SONAME}", "-pthread")
    subprocess.run([compiler, *options, "-o", str(library), str(SOURCE)], check=True)
    return library


@pytest.fixture
def fake_nvml(
    nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeNvml]:
    """Without any GPU at first. No session is left open."""
    file = tmp_path / "nvml"
    monkeypatch.setenv("FAKE_NVML", str(file))
    assert os.environ["FAKE_NVML"] == str(file)
    fake = FakeNvml(nvml_library, file)
    others = set(threading.enumerate())
    yield fake
    fake.drop("hang")
    fake.drop("fail")
    # A thread of this test that ends later would end a session of the next one.
    until(lambda: all(t.name != "gpu-health" or t in others for t in threading.enumerate()))
    library = ctypes.CDLL(str(nvml_library))
    while library.fakeSessions() > 0:
        library.nvmlShutdown()
