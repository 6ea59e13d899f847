"""Which way is taken, refaults, and kdamonds."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.cold import kdamond
from koordlet.kernel.cold.methods import AUTO, METHODS, Machine, find
from koordlet.kernel.cold.refault import refault_pages
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError
from tests.kernel.cold.driven import lacks

V1_STAT = b"""\
workingset_refault_anon 1
workingset_refault_file 1
hierarchical_memory_limit 9
total_workingset_refault_anon 5
total_workingset_refault_file 60
"""


def machine(layout: str = "hybrid", **options: object) -> Machine:
    host = FakeHost(layout, **options)
    return Machine(host, Cgroups(host, detect(host)), 120.0)


def scanning(found: Machine) -> Machine:
    for name in ("scan_period_in_seconds", "use_hierarchy"):
        found.host.write(f"/sys/kernel/mm/kidled/{name}", b"1")
    return found


def name_of(found: Machine) -> str:
    method, why = find(AUTO, found)
    assert (method is None) == bool(why)
    return method.name if method is not None else why


def test_the_cheapest_way_there_is() -> None:
    everything = {"anolis": True, "lru_gen": True, "page_idle": True}
    assert name_of(scanning(machine(**everything))) == "kidled"
    assert name_of(machine(**everything)) == "mglru"
    assert name_of(machine(lru_gen=True, lockdown=True, page_idle=True)) == "page-idle"


def test_referenced_bits_are_cleared_on_request_alone() -> None:
    assert "clear-refs" in METHODS and "clear-refs" not in AUTO
    found, why = find(("clear-refs",), machine())
    assert found is not None and found.name == "clear-refs" and not why


def test_without_any_each_says_why() -> None:
    reasons = name_of(machine(kdamond=True)).split("; ")
    assert [each.partition(":")[0] for each in reasons if ": /" in each] == list(AUTO)


def test_a_guest_that_lacks_what_it_is_there_for_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage of ``make test-vm`` passes with skips."""
    for guest, name, outcome in (
        ("cold", "mglru", pytest.fail.Exception),
        ("core", "page-idle", pytest.fail.Exception),
        ("cold", "page-idle", pytest.skip.Exception),
        ("", "mglru", pytest.skip.Exception),
    ):
        monkeypatch.setenv("KOORDLET_GUEST", guest)
        with pytest.raises(outcome):
            lacks(name, "why")


def test_kdamonds_that_are_on() -> None:
    state = "/sys/kernel/mm/damon/admin/kdamonds/0/state"
    found = machine(kdamond=True)
    assert kdamond.running(found.host) == (f"{state} is on",)
    assert kdamond.running(machine().host) == ()
    found.host.faults.add(state, op="read", errno=errno.EIO, times=None)
    assert kdamond.running(found.host) == (f"{state} cannot be read (EIO)",)


@pytest.mark.parametrize("module", ["damon_reclaim", "damon_lru_sort", "damon_stat"])
def test_kdamonds_of_the_kernel_itself(tmp_path: Path, module: str) -> None:
    enabled = tmp_path / f"module/{module}/parameters/enabled"
    enabled.parent.mkdir(parents=True)
    enabled.write_text("N\n")
    host = LinuxHost()
    assert kdamond.running(host, str(tmp_path)) == ()
    enabled.write_text("Y\n")
    assert kdamond.running(host, str(tmp_path)) == (f"{enabled} is Y",)


@pytest.mark.parametrize(
    ("text", "pages"),
    [
        (b"anon 1\nworkingset_refault_anon 3\nworkingset_refault_file 40\npgscan 1\n", 43),
        (V1_STAT, 65),
        (b"anon 1\nworkingset_refault 7\nworkingset_activate 3\n", 7),
    ],
)
def test_refaults_of_v2_v1_and_before_5_9(text: bytes, pages: int) -> None:
    assert refault_pages(text) == pages


def test_a_kernel_that_does_not_count_them_is_no_zero() -> None:
    assert refault_pages(b"cache 1\nrss 2\n", "memory.stat") is None
    with pytest.raises(ParseError, match="workingset_refault_file"):
        refault_pages(b"workingset_refault_anon 1\n", "memory.stat")
