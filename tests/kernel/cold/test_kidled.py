"""kidled: its table, its settings, and pods on the fake kernel."""

from __future__ import annotations

import pytest
from koordlet_fakefs import FakeHost

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.cold.cold import Cold, NotAvailable
from koordlet.kernel.cold.kidled import COLD_SCANS, Kidled, parse, scans
from koordlet.kernel.parse import ParseError
from tests.kernel.cold.driven import scanned

MIB = 1 << 20
SETTINGS = "/sys/kernel/mm/kidled"
HEADER = """\
# version: 1.0
# scans: 1380
# scan_period_in_seconds: 5
# use_hierarchy: 1
# buckets: 1,2,5,15,30,60,120,240
#
#   _-----=> clean/dirty
#  / _----=> swap/file
# | / _---=> evict/unevict
# || / _--=> inactive/active
# ||| /
"""


def table(**rows: str) -> bytes:
    names = "csei dsei cfei dfei csui dsui cfui dfui csea dsea cfea dfea csua dsua cfua dfua slab"
    lines = [f"  {name} {rows.get(name, '0 0 0 0 0 0 0 0')}" for name in names.split()]
    return (HEADER + "\n".join(lines) + "\n").encode()


def machine(*, scanning: bool = True) -> tuple[FakeHost, Kidled]:
    host = FakeHost("hybrid", anolis=True)
    if scanning:
        host.write(f"{SETTINGS}/scan_period_in_seconds", b"5")
        host.write(f"{SETTINGS}/use_hierarchy", b"1")
        host.advance(COLD_SCANS * 5)
    return host, Kidled(host, Cgroups(host, detect(host)))


def test_inactive_pages_idle_for_sixty_scans_count_by_what_they_are() -> None:
    text = table(
        cfei="1 2 4 8 16 32 64 128",  # 224
        dfei="0 0 0 0 999 1 0 0",  # 1
        cfui="0 0 0 0 0 0 2 0",  # 2
        dfui="0 0 0 0 0 0 0 4",  # 4
        cfea="9 9 9 9 9 9 9 9",  # active: not cold
        csei="5 5 5 5 5 10 0 0",  # 10
        dsui="0 0 0 0 0 0 0 20",  # 20
        slab="7 7 7 7 7 7 7 7",
    )
    assert parse(text) == Cold(anon_bytes=30, file_bytes=231)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        table().replace(b"dfui", b"xxxx"),
        table(cfei="1 2 3"),
        table(cfei="1 2 3 4 5 -6 7 8"),
        table(cfei="1 2 3 4 5 6 7 " + "9" * 30),
    ],
)
def test_any_other_text_is_refused(text: bytes) -> None:
    with pytest.raises(ParseError, match="no line"):
        parse(text, "memory.idle_page_stats")


def test_a_kernel_without_it_says_which_file_is_missing() -> None:
    host = FakeHost("hybrid")
    with pytest.raises(NotAvailable, match=r"scan_period_in_seconds does not exist \(ENOENT\)"):
        Kidled(host, Cgroups(host, detect(host))).check()


def test_a_kidled_that_stands_still_names_the_switch() -> None:
    host, kidled = machine(scanning=False)
    with pytest.raises(NotAvailable, match=r"is 0; set strategies.kidled.enable = true"):
        kidled.check()
    host.write(f"{SETTINGS}/scan_period_in_seconds", b"5")
    with pytest.raises(NotAvailable, match="without its containers"):
        kidled.check()
    host.write(f"{SETTINGS}/use_hierarchy", b"1")
    assert "within 5 s" in kidled.check()


def test_nothing_is_known_before_sixty_scans_or_when_it_was_switched_off() -> None:
    host, kidled = machine()
    host.make_cgroup("a")
    assert scanned(kidled, "a").keys() == {"", "a"}
    host.write(f"{SETTINGS}/scan_period_in_seconds", b"0")
    with pytest.raises(NotAvailable, match=r"is 0; set strategies.kidled.enable = true"):
        scanned(kidled, "a")
    host.write(f"{SETTINGS}/scan_period_in_seconds", b"5")
    assert scanned(kidled, "a") == {}
    host.advance(COLD_SCANS * 5 - 1)
    assert scanned(kidled, "a") == {}
    host.advance(1)
    assert scanned(kidled, "a").keys() == {"", "a"}


def test_how_often_it_has_scanned() -> None:
    assert scans(table()) == 1380
    assert scans(b"# version: 1.0\n\t# page_scans: 24\n\t# slab_scans: 0\n") == 24
    assert scans(b"# version: 1.0\n# scan_period_in_seconds: 5\n") is None
    with pytest.raises(ParseError):
        scans(b"# scans: many\n")


def test_the_node_and_each_cgroup_and_none_that_went() -> None:
    host, kidled = machine()
    host.make_cgroup("pods/a/c")
    host.spawn("pods/a/c", memory_bytes=8 * MIB, cache_bytes=4 * MIB)
    host.cool("pods/a/c", anon_bytes=2 * MIB, file_bytes=3 * MIB)
    cold = Cold(anon_bytes=2 * MIB, file_bytes=3 * MIB)
    found = scanned(kidled, "pods/a", "pods/a/c", "pods/gone")
    assert found == {"": cold, "pods/a": cold, "pods/a/c": cold}
