"""Referenced bits: one pod after the other on the fake kernel, and their parser."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs import FakeHost

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.cold import clear_refs
from koordlet.kernel.cold.clear_refs import ClearRefs, Mapped, parse
from koordlet.kernel.cold.cold import Cold, NotAvailable
from koordlet.kernel.parse import ParseError
from tests.kernel.cold.driven import scanned

MIB = 1 << 20
# Linux 6.12, of a shell; two processes share what is more in Rss than in Pss.
TEXT = b"""\
55d0c0a00000-7ffd3a9fe000 ---p 00000000 00:00 0                          [rollup]
Rss:                1000 kB
Pss:                 400 kB
Pss_Dirty:            90 kB
Shared_Clean:        800 kB
Private_Clean:        50 kB
Private_Dirty:       150 kB
Referenced:          750 kB
Anonymous:            90 kB
LazyFree:              0 kB
Locked:                0 kB
"""


def furnished(layout: str = "hybrid") -> tuple[FakeHost, ClearRefs]:
    host = FakeHost(layout)
    for pod, size, cold in (("a", 16, 12), ("b", 8, 2)):
        host.make_cgroup(f"pods/{pod}/c")
        host.spawn(f"pods/{pod}/c", memory_bytes=size * MIB).cold_bytes = cold * MIB
    return host, ClearRefs(host, Cgroups(host, detect(host)))


def test_what_is_not_referenced_is_private_as_far_as_it_can_be() -> None:
    mapped = parse(TEXT)
    assert mapped == Mapped(1000 * 1024, 400 * 1024, 200 * 1024, 750 * 1024)
    # 250 kB: 200 are private, and of the 50 that are shared a quarter is its own.
    assert mapped.cold_bytes == int(212.5 * 1024)
    assert mapped._replace(referenced_bytes=900 * 1024).cold_bytes == 100 * 1024
    assert parse(b"").cold_bytes == 0
    assert Mapped(1000, 1000, 1000, 1200).cold_bytes == 0  # read while it grew


@pytest.mark.parametrize(
    "text", [b"[rollup]\n", TEXT.replace(b"Pss: ", b"X: "), TEXT.replace(b"750", b"-75")]
)
def test_any_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="smaps_rollup"):
        parse(text, "smaps_rollup")


@pytest.mark.parametrize("layout", ["hybrid", "v2"])
def test_one_pod_each_time_in_turn(layout: str) -> None:
    _, method = furnished(layout)
    pods = ("pods/a", "pods/a/c", "pods/b")
    assert scanned(method, *pods) == {}
    assert scanned(method, *pods) == {"pods/a": Cold(mapped_bytes=12 * MIB)}
    assert scanned(method, *pods) == {"pods/b": Cold(mapped_bytes=2 * MIB)}
    assert scanned(method, *pods) == {"pods/a": Cold(mapped_bytes=12 * MIB)}


def test_a_process_that_ended_or_came_since_counts_as_hot() -> None:
    host, method = furnished()
    first = host.spawn("pods/a/c", memory_bytes=4 * MIB)
    first.cold_bytes = 4 * MIB
    scanned(method, "pods/a")
    host.exit(first)
    host.advance(60)
    host.machine.next_pid = first.pid  # its number goes to somebody else
    later = host.spawn("pods/a/c", memory_bytes=4 * MIB)
    later.cold_bytes, later.cleared = 4 * MIB, True
    assert later.pid == first.pid
    assert scanned(method, "pods/a") == {"pods/a": Cold(mapped_bytes=12 * MIB)}


def test_a_pod_that_went_is_forgotten() -> None:
    host, method = furnished()
    scanned(method, "pods/a", "pods/b")
    host.remove_cgroup("pods/a")
    assert scanned(method, "pods/b") == {}
    assert scanned(method, "pods/b") == {"pods/b": Cold(mapped_bytes=2 * MIB)}
    assert scanned(method) == {}


def test_a_pod_with_too_many_processes_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clear_refs, "MOST_PROCESSES", 1)
    host, method = furnished()
    host.spawn("pods/a/c", memory_bytes=MIB)
    scanned(method, "pods/a")
    assert scanned(method, "pods/a") == {}
    assert not [path for path, _ in host.written if path.endswith("clear_refs")]


def test_a_refusal_of_the_kernel_is_raised() -> None:
    host, method = furnished()
    host.faults.add("*/clear_refs", op="write", errno=errno.EPERM)
    with pytest.raises(PermissionError):
        scanned(method, "pods/a")


def test_the_probe_clears_nothing() -> None:
    host, method = furnished()
    assert "not written" in method.check()
    assert not host.written
    host.faults.hide("/proc/self/clear_refs")
    with pytest.raises(NotAvailable, match="CONFIG_PROC_PAGE_MONITOR"):
        method.check()
