"""MGLRU: lists by generation, what is cold in them, and aging on the fake kernel."""

from __future__ import annotations

import errno

import pytest
from koordlet_fakefs import FakeHost, shape

from koordlet.kernel.cold.cold import Cold, NotAvailable
from koordlet.kernel.cold.mglru import Generation, Lruvec, Mglru, cold_pages, parse
from koordlet.kernel.parse import ParseError
from tests.kernel.cold.driven import scanned

MIB = 1 << 20
PATH = "/sys/kernel/debug/lru_gen"
# As Linux 6.12 writes it (mm/vmscan.c, lru_gen_seq_show).
TEXT = b"""\
memcg     1 /
 node     0
          0     904311          0        6201 \n\
          1     904311        120           0 \n\
memcg    37 /system.slice/a b.service
 node     0
          4     361000         10          20 \n\
          5     240000         11          21 \n\
          6     120000         12          22 \n\
          7        400         13          23 \n\
 node     1
          3        400          1           2 \n\
"""


def test_lists_by_memcg_and_node() -> None:
    root, first, second = parse(TEXT, PATH)
    assert root == Lruvec(1, "", 0, (Generation(0, 904311, 0, 6201), Generation(1, 904311, 120, 0)))
    assert (first.memcg, first.cgroup, first.node) == (37, "system.slice/a b.service", 0)
    assert [each.number for each in first.generations] == [4, 5, 6, 7]
    assert first.pages == 132
    assert (second.memcg, second.node) == (37, 1)
    assert second.generations == (Generation(3, 400, 1, 2),)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"          4     361000         10          20\n", 1),
        (b"memcg     1 /\n          4     361000         10          20\n", 2),
        (b"memcg     x /\n", 1),
        (b"memcg     1 /\n node     0\n          4     361000         10\n", 3),
        (b"memcg     1 /\n node     0\n          4     361000         10         -2\n", 3),
    ],
)
def test_any_other_text_is_refused_with_its_line(text: bytes, line: int) -> None:
    with pytest.raises(ParseError) as refused:
        list(parse(text, PATH))
    assert refused.value.line_no == line


def test_cold_is_what_a_whole_interval_between_two_agings_did_not_touch() -> None:
    # Aged 0.4 s, 120 s and 240 s ago. What is in 6 was accessed in the last interval, what is in 5
    # 120 s before the last aging, what is in 4 240 s before.
    generations = next(each for each in parse(TEXT) if each.node == 0 and each.memcg == 37)
    assert cold_pages(generations.generations, 108_000) == (21, 41)
    assert cold_pages(generations.generations, 200_000) == (10, 20)
    assert cold_pages(generations.generations, 300_000) == (0, 0)
    assert cold_pages((), 1) == (0, 0)


def test_what_the_kernel_has_aged_itself_a_moment_before_is_not_cold() -> None:
    generations = (
        Generation(1, 900_000, 50, 0),
        Generation(2, 1_000, 7, 0),  # born 0.5 s before the last aging
        Generation(3, 500, 3, 0),
    )
    assert cold_pages(generations, 108_000) == (0, 0)


def machine(**options: object) -> tuple[FakeHost, Mglru]:
    host = FakeHost("v2", lru_gen=True, topology=shape(sockets=2), **options)
    return host, Mglru(host, 120.0)


def furnished() -> tuple[FakeHost, Mglru]:
    host, mglru = machine()
    host.make_cgroup("pods/a/c1")
    host.make_cgroup("pods/a/c2")
    host.make_cgroup("other")
    host.spawn("pods/a/c1", memory_bytes=80 * MIB, cache_bytes=40 * MIB)
    host.spawn("pods/a/c2", memory_bytes=16 * MIB)
    host.spawn("other", memory_bytes=16 * MIB)
    host.cool("pods/a/c1", anon_bytes=20 * MIB, file_bytes=10 * MIB)
    host.cool("pods/a/c2", anon_bytes=8 * MIB)
    host.cool("other", anon_bytes=4 * MIB)
    return host, mglru


def test_known_after_the_second_scan_for_cgroups_above_and_the_node() -> None:
    host, mglru = furnished()
    wanted = ("pods/a", "pods/a/c1", "pods/none")
    assert scanned(mglru, *wanted) == {}
    host.advance(120)
    assert scanned(mglru, *wanted) == {
        "": Cold(anon_bytes=32 * MIB, file_bytes=10 * MIB),
        "pods/a": Cold(anon_bytes=28 * MIB, file_bytes=10 * MIB),
        "pods/a/c1": Cold(anon_bytes=20 * MIB, file_bytes=10 * MIB),
    }


def test_a_cgroup_that_came_since_is_left_out_for_one_scan() -> None:
    host, mglru = furnished()
    scanned(mglru)
    host.make_cgroup("new")
    host.spawn("new", memory_bytes=16 * MIB)
    host.cool("new", anon_bytes=16 * MIB)
    host.advance(120)
    assert "new" not in scanned(mglru, "new")
    host.advance(120)
    assert scanned(mglru, "new")["new"] == Cold(anon_bytes=16 * MIB, file_bytes=0)


def test_one_that_went_while_it_was_aged_costs_nothing_else() -> None:
    host, mglru = furnished()
    scanned(mglru)
    host.advance(120)
    scan = mglru.scan(frozenset({"pods/a", "other"}))
    next(scan)
    host.remove_cgroup("other")
    with pytest.raises(StopIteration) as end:
        while True:
            next(scan)
    assert set(end.value.value) == {"", "pods/a"}


def test_an_aging_by_the_kernel_between_two_of_ours_changes_nothing() -> None:
    host, mglru = furnished()
    scanned(mglru, "other")
    host.advance(119.9)
    listed = next(each for each in parse(host.read(PATH)) if each.cgroup == "other")
    host.write(PATH, b"+ %d 0 %d 1 1\n" % (listed.memcg, listed.generations[-1].number))
    host.advance(0.1)
    # What is hot was put into a generation whose successor is 0.1 s old.
    assert scanned(mglru, "other")["other"] == Cold(anon_bytes=4 * MIB, file_bytes=0)


@pytest.mark.parametrize("feedback", [False, True])
def test_the_probe_ages_nothing_by_either_rule(feedback: bool) -> None:
    host, mglru = machine(lru_gen_feedback=feedback)
    before = host.read(PATH)
    assert mglru.check() == (
        f"wrote an aging to {PATH} of a generation that does not exist (EINVAL)"
    )
    assert host.read(PATH) == before


def test_the_probe_passes_any_other_refusal_on() -> None:
    host, mglru = machine()
    host.faults.add(PATH, op="write", errno=errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        mglru.check()


def test_what_the_kernel_ages_at_the_same_time_counts_as_aged() -> None:
    host, mglru = furnished()
    scanned(mglru, "other")
    host.advance(120)
    listed = next(each for each in parse(host.read(PATH)) if each.cgroup == "other")
    for node in (0, 1):
        order = b"+ %d %d %d 1 1\n" % (listed.memcg, node, listed.generations[-1].number)
        host.write(PATH, order)
    host.faults.add(PATH, op="write", errno=errno.EEXIST, times=None)
    assert scanned(mglru, "other")["other"] == Cold(anon_bytes=4 * MIB, file_bytes=0)


@pytest.mark.parametrize(
    ("options", "why", "remedy"),
    [
        ({}, "lru_gen/enabled does not exist (ENOENT)", "6.1 or later"),
        ({"lru_gen": True, "lockdown": True}, "cannot be opened (EPERM)", "lockdown=none"),
    ],
)
def test_what_is_missing_is_said_with_what_to_do(
    options: dict[str, bool], why: str, remedy: str
) -> None:
    with pytest.raises(NotAvailable) as missing:
        Mglru(FakeHost("v2", **options), 120.0).check()
    assert why in missing.value.why and remedy in missing.value.remedy


def test_debugfs_may_not_be_mounted_and_mglru_switched_off() -> None:
    host, mglru = machine()
    host.faults.hide(PATH)
    with pytest.raises(NotAvailable, match="mount -t debugfs debugfs /sys/kernel/debug"):
        mglru.check()
    host.write("/sys/kernel/mm/lru_gen/enabled", b"n")
    with pytest.raises(NotAvailable, match="is 0x0000: the kernel uses the older lists; echo y"):
        mglru.check()


def test_any_other_refusal_ends_the_scan() -> None:
    host, mglru = furnished()
    host.faults.add(PATH, op="write", errno=errno.ENOMEM)
    with pytest.raises(OSError, match="Cannot allocate memory"):
        scanned(mglru)
