"""What the daemon makes of a child that compiles with BCC, and of each way in which it may fail."""

from __future__ import annotations

import ast
import errno
import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet.kernel.background import GivenUpError, ThreadBackground
from koordlet.kernel.bpf import bcc, bcc_child, objects
from koordlet.kernel.bpf.bcc import NAMES, BccRunQueue, LoadError, load
from koordlet.kernel.bpf.need import NeedError
from koordlet.kernel.bpf.objects import PROGRAMS
from koordlet.kernel.linux import LinuxHost

Child = Callable[[str], None]

_HEAD = """\
import array, json, os, signal, socket, subprocess, sys, time
sock = socket.socket(fileno=int(sys.argv[1]))
def send(message, count=0):
    fds = array.array("i", [os.open("/dev/null", os.O_RDONLY) for _ in range(count)])
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)] if count else []
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    sock.sendmsg([data], rights)
"""


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Child:
    """Sets what the child does."""
    script = tmp_path / "child.py"
    monkeypatch.setattr(bcc, "CHILD", str(script))
    monkeypatch.setattr(bcc, "PYTHON", sys.executable)

    def does(code: str) -> None:
        script.write_text(_HEAD + code)

    return does


@pytest.fixture(autouse=True)
def _no_descriptor_stays() -> object:
    gc.collect()  # or what earlier tests have left open is closed meanwhile
    before = _descriptors()
    yield
    assert _descriptors() == before


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def _refusal(limit_s: float = 30.0) -> LoadError:
    with pytest.raises(LoadError) as raised:
        load(by_cpu_controller=True, limit_s=limit_s)
    return raised.value


def test_descriptors_come_by_name(child: Child) -> None:
    child(f"send({{'fds': {list(NAMES)!r}}}, {len(NAMES)})")
    fds = load(by_cpu_controller=True, limit_s=30.0)
    assert fds.keys() == set(NAMES)
    for fd in fds.values():
        assert not os.get_inheritable(fd)
        os.close(fd)


def test_closing_closes_all(child: Child) -> None:
    child(f"send({{'fds': {list(NAMES)!r}}}, {len(NAMES)})")
    before = _descriptors()
    queue = BccRunQueue(by_cpu_controller=False)
    assert _descriptors() == before + len(NAMES)
    queue.close()
    queue.close()
    assert _descriptors() == before


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("send(b'not json')", "answered b'not json'"),
        ("send([1])", "answered b'[1]'"),
        ("send({'lacks': 5})", "answered"),
        ("send({'lacks': [['one']]})", "answered"),
        ("send({'fds': ['watched']}, 1)", "sent 1 descriptors, not the 8 expected"),
        (f"send({{'fds': {list(NAMES)!r}}}, 3)", "sent 3 descriptors"),
        ("send({'fds': [[]]}, 1)", "sent 1 descriptors"),
        ("send({})", "sent 0 descriptors"),
        ("sys.exit(3)", "ended with 3"),
        ("sys.exit('no such thing')", "ended with 1 (no such thing)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "ended with -11"),
        ("sock.close(); os.close(2); time.sleep(0.2)", "ended with"),
        ("send({'error': 'Failed to compile'})", "BCC: Failed to compile"),
        (
            "os.write(2, b'y.h:3: error: no field\\nlast\\n'); send({'error': 'Failed'})",
            "BCC: Failed (y.h:3: error: no field)",
        ),
        ("os.write(2, b'e\\xff' * 100_000); sys.exit(1)", "ended with 1 (e\ufffd"),
    ],
)
def test_each_failure_is_told(child: Child, code: str, told: str) -> None:
    child(code)
    error = _refusal()
    assert told in str(error)
    assert len(str(error)) < 1000
    assert error.packages == ()


def test_a_child_that_hangs_is_ended_with_all_that_it_started(child: Child, tmp_path: Path) -> None:
    """Also one that closed what it was heard by."""
    pids = tmp_path / "pids"
    child(
        f"grandchild = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{grandchild.pid}}')\n"
        f"os.write(2, b'compiling\\n')\ntime.sleep(60)"
    )
    began = time.monotonic()
    error = _refusal(limit_s=1.5)
    assert time.monotonic() - began < 20
    assert "took more than 1.5 s (compiling)" in str(error)
    for pid in map(int, pids.read_text().split()):
        while _runs(pid):  # it dies a moment after it is told to
            assert time.monotonic() - began < 20
            time.sleep(0.01)


def test_a_child_for_which_nobody_waits_any_more_is_ended(child: Child) -> None:
    """The daemon stops while it compiles."""
    child("time.sleep(60)")
    background = ThreadBackground("bcc")
    job = background.submit(lambda pause: load(by_cpu_controller=True, pause=pause, limit_s=60.0))
    time.sleep(0.3)
    background.close(lambda: None)
    with pytest.raises(GivenUpError):
        job.result(timeout=10)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def test_without_the_distributions_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcc, "PYTHON", "/nonexistent/python3")
    with pytest.raises(NeedError) as raised:
        BccRunQueue(by_cpu_controller=True)
    error = raised.value
    assert error.errno == errno.ENOENT
    assert error.filename == objects.BTF
    assert error.strerror == (
        "the kernel has no BTF (CONFIG_DEBUG_INFO_BTF); instead of it: "
        "/nonexistent/python3: No such file or directory"
    )
    assert error.remedy == (
        "install python3-bpfcc, or use a kernel with CONFIG_DEBUG_INFO_BTF, 5.12 or later"
    )


def test_what_is_lacking_is_said_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the real child, under a Python that has no such module."""
    empty = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", empty], check=True)
    monkeypatch.setattr(bcc, "PYTHON", f"{empty}/bin/python")
    monkeypatch.setenv("BCC_KERNEL_SOURCE", "/nonexistent/headers")
    with pytest.raises(NeedError) as raised:
        BccRunQueue(by_cpu_controller=True)
    release = os.uname().release
    assert str(raised.value.strerror).endswith(
        f"{empty}/bin/python has no module bcc; no headers in /nonexistent/headers"
    )
    assert raised.value.remedy.startswith(f"install python3-bpfcc and linux-headers-{release}, or ")


def test_a_child_whose_parent_is_another_gives_up() -> None:
    done = subprocess.run(
        [sys.executable, "-I", bcc.CHILD, "0", "1", bcc.SOURCE, "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "the parent is gone" in done.stderr


def test_a_kernel_without_btf_is_tried_through_bcc(
    monkeypatch: pytest.MonkeyPatch, child: Child
) -> None:
    monkeypatch.setattr(objects, "BTF", "/nonexistent/btf")
    child("send({'lacks': [['python3-bpfcc', 'no module']]})")
    with pytest.raises(NeedError, match="no module") as raised:
        LinuxHost().run_queue(by_cpu_controller=True)
    assert raised.value.filename == "/nonexistent/btf"
    child(f"send({{'fds': {list(NAMES)!r}}}, {len(NAMES)})")
    queue = LinuxHost().run_queue(by_cpu_controller=True)
    assert not queue.has_matrix
    queue.close()


def test_both_programs_measure_lengths_alike() -> None:
    """The layout of a distribution and the slot of a length are written down twice."""
    core, ours = ((PROGRAMS / name).read_text() for name in ("core.h", "run_queue.bcc.c"))
    for pattern in (
        r"#define SLOTS.*",
        r"struct distribution \{.*?\};",
        r"static \S+ u32 slot_of.*?\n\}",
    ):
        (one,), (other,) = (re.findall(pattern, text, re.DOTALL) for text in (core, ours))
        assert one.splitlines()[0] == other.splitlines()[0]
        assert one.partition("\n\n")[0] == other.partition("\n\n")[0]


def test_the_child_runs_on_python_3_9() -> None:
    """Nothing of koordlet and no newer grammar."""
    tree = ast.parse(Path(bcc_child.__file__).read_text(), feature_version=(3, 9))
    names = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {
        str(node.module).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert names <= sys.stdlib_module_names
