"""What is shipped is what the sources say, and what cannot be loaded says why."""

from __future__ import annotations

import errno
import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from koordlet.kernel.bpf import objects
from koordlet.kernel.bpf.objects import PROGRAMS, BpfObject, load, path_of
from koordlet.kernel.bpf.run_queue import MOST_WATCHED, _table

ROOT = Path(__file__).resolve().parents[3]
SOURCES = sorted(PROGRAMS.glob("*.bpf.c"))


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_every_source_has_its_object() -> None:
    assert SOURCES
    assert {path.name[:-1] + "o" for path in SOURCES} == {
        path.name for path in PROGRAMS.glob("*.bpf.o")
    }


def test_the_objects_are_those_of_debians_clang_14(tmp_path: Path) -> None:
    """Built in another folder: nothing of this machine is in them."""
    if not shutil.which("clang") or not shutil.which("llvm-strip"):
        pytest.skip("needs clang and llvm-strip")
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True)
    if "clang version 14." not in version.stdout:
        pytest.skip(f"needs clang 14: another makes other bytes; this is {version.stdout[:40]!r}")
    if not Path("/usr/include/bpf/bpf_helpers.h").exists():
        pytest.skip("needs libbpf-dev")
    copy = tmp_path / "elsewhere"
    copied = copy / PROGRAMS.relative_to(ROOT)
    shutil.copytree(PROGRAMS, copied)
    shutil.copytree(ROOT / "tools", copy / "tools")
    for path in copied.glob("*.bpf.o"):
        path.unlink()
    subprocess.run([copy / "tools/bpf"], check=True)
    assert {path.name: _sha256(path) for path in copied.glob("*.bpf.o")} == {
        path.name: _sha256(path) for path in PROGRAMS.glob("*.bpf.o")
    }


def test_a_kernel_without_btf_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "library", lambda: None)
    monkeypatch.setattr(objects, "BTF", "/nonexistent/btf")
    with pytest.raises(OSError, match="CONFIG_DEBUG_INFO_BTF") as raised:
        load("run_queue")
    assert raised.value.errno == errno.ENOENT
    assert raised.value.filename == "/nonexistent/btf"


def test_a_machine_without_libbpf_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "LIBRARY", "libbpf.so.none")
    objects.library.cache_clear()
    try:
        with pytest.raises(OSError, match=r"libbpf\.so\.none") as raised:
            load("run_queue")
    finally:
        objects.library.cache_clear()
    assert raised.value.filename == "libbpf.so.none"


@pytest.mark.kernel
def test_options_of_another_size_are_refused() -> None:
    if not Path(objects.BTF).exists():
        pytest.skip("needs BTF")
    with pytest.raises(OSError, match="options take 8 bytes, not 3") as raised:
        load("run_queue", options=b"abc")
    assert raised.value.filename == path_of("run_queue")


class _Refusing:
    """As libbpf, where the kernel refuses the second program."""

    def __init__(self) -> None:
        self.links: list[int] = []

    def bpf_program__attach(self, program: int) -> int:
        if len(self.links) == 1:
            return 0
        self.links.append(program)
        return program

    def bpf_link__destroy(self, link: int) -> None:
        self.links.remove(link)


def test_an_object_is_attached_as_a_whole_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    lib = _Refusing()
    monkeypatch.setattr(objects, "library", lambda: lib)
    with pytest.raises(OSError, match="attach on_second"):
        BpfObject(1, "some", {"on_first": 11, "on_second": 12}, frozenset()).attach()
    assert lib.links == []


def test_the_first_cgroups_have_room_and_keep_their_places() -> None:
    table, left = _table({7: 3}, [7, 7 + 1024, 7 + 2048, 7 + 3072, 7 + 4096, 9])
    places = {cgroup: place for cgroup, place in table if cgroup}
    assert places == {7: 3, 1031: 0, 2055: 1, 3079: 2, 9: 4}
    assert left == 1  # five of them end in the same bits
    assert _table({}, range(10, 5000))[1] == 4990 - MOST_WATCHED
