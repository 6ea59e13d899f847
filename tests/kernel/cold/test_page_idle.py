"""Idle page tracking: frames, words and samples on the fake kernel."""

from __future__ import annotations

import random

import pytest
from koordlet_fakefs import FakeHost

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.cold import page_idle
from koordlet.kernel.cold.cold import Cold, NotAvailable
from koordlet.kernel.cold.page_flags import (
    HEAD,
    LRU,
    NOBODY,
    SWAP_BACKED,
    TAIL,
    Head,
    Tally,
    head_before,
    page_ranges,
)
from koordlet.kernel.cold.page_idle import PageIdle, _sample, _words
from koordlet.kernel.parse import ParseError
from tests.kernel.cold.driven import scanned

MIB = 1 << 20
BITMAP = "/sys/kernel/mm/page_idle/bitmap"
ZONEINFO = b"""\
Node 0, zone      DMA
        spanned  4095
        present  3998
  start_pfn:           1
Node 0, zone    DMA32
        spanned  1044480
  start_pfn:           4096
Node 0, zone  Movable
        spanned  0
  start_pfn:           0
"""


class Flags:
    def __init__(self, **pages: int) -> None:
        self.pages = {int(pfn[1:]): flag for pfn, flag in pages.items()}

    def read(self, first: int, count: int) -> tuple[int, ...]:
        return tuple(self.pages.get(pfn, 0) for pfn in range(first, first + count))


def machine(sampled_words: int = 1 << 20, **options: object) -> tuple[FakeHost, PageIdle]:
    host = FakeHost("v2", page_idle=True, memory_bytes=256 * MIB, **options)
    return host, PageIdle(host, Cgroups(host, detect(host)), sampled_words=sampled_words)


def furnished(sampled_words: int = 1 << 20) -> tuple[FakeHost, PageIdle]:
    """24 of 32 MiB of anonymous memory are in huge pages that are cold, 3 of 8 MiB of cache."""
    host, idle = machine(sampled_words)
    host.make_cgroup("pods/a/c")
    host.make_cgroup("other")
    host.spawn("pods/a/c", memory_bytes=32 * MIB, cache_bytes=8 * MIB)
    host.cool("pods/a/c", anon_bytes=24 * MIB, file_bytes=3 * MIB)
    host.spawn("other", memory_bytes=16 * MIB)
    return host, idle


@pytest.mark.parametrize(("below", "is_found"), [(4, True), (5, False)])
def test_of_a_pod_with_very_many_cgroups_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, below: int, is_found: bool
) -> None:
    """Rather than of a part of them."""
    monkeypatch.setattr(page_idle, "_MOST_BELOW", 4)
    host, idle = furnished()
    for number in range(below - 1):
        host.make_cgroup(f"pods/a/c/{number}")
    scanned(idle, "pods/a", "other")
    host.advance(120)
    assert scanned(idle, "pods/a", "other").keys() == {"", "other", *(["pods/a"] * is_found)}


def test_zones_with_pages_are_ranges() -> None:
    assert page_ranges(ZONEINFO) == (range(1, 4096), range(4096, 1048576))
    with pytest.raises(ParseError, match="no zone with pages"):
        page_ranges(b"Node 0, zone DMA\n")
    with pytest.raises(ParseError, match="zoneinfo:1"):
        page_ranges(b"  spanned -1\n", "zoneinfo")


def test_words_of_two_zones_are_there_once_and_the_last_may_be_partial() -> None:
    assert _words((range(1, 100), range(100, 201))) == [range(2), range(2, 4)]
    assert _words((range(640, 650),)) == [range(10, 11)]


def test_a_sample_has_one_word_of_each_part() -> None:
    spans = [range(10), range(100, 190)]
    found = list(_sample(spans, 20, random.Random(1)))
    assert len(found) == len(set(found)) == 20
    places = [word if word < 10 else word - 90 for word in found]
    assert [place // 5 for place in places] == list(range(20))
    assert list(_sample(spans, 100, random.Random(2))) == [*range(10), *range(100, 190)]


def test_tails_are_what_their_head_is() -> None:
    flags = (TAIL, TAIL, LRU | HEAD, TAIL, LRU, LRU | SWAP_BACKED, LRU, 0)
    tally = Tally()
    tally.add(flags, (0, 0, 8, 0, 9, 9, 9, 9), 0b10110000, Head(LRU, 7, True))
    assert tally.seen == {7: 2, 8: 2, 9: 3}
    assert tally.file == {7: 2, 9: 1}  # the last one is idle and of no list
    assert tally.anon == {9: 1}


def test_the_head_before_a_word_is_at_a_multiple_of_the_size() -> None:
    assert head_before(Flags(p1024=HEAD, p1536=TAIL), 1536) == 1024  # type: ignore[arg-type]
    assert head_before(Flags(p512=HEAD, p1024=HEAD), 1088) == 1024  # type: ignore[arg-type]
    assert head_before(Flags(), 1536) == NOBODY  # type: ignore[arg-type]


def test_idle_pages_belong_to_their_cgroup_and_those_above() -> None:
    host, idle = furnished()
    assert scanned(idle, "pods/a") == {}
    host.advance(120)
    cold = Cold(anon_bytes=24 * MIB, file_bytes=3 * MIB)
    assert scanned(idle, "pods/a", "pods/a/c", "other", "gone") == {
        "": cold,
        "pods/a": cold,
        "pods/a/c": cold,
        "other": Cold(anon_bytes=0, file_bytes=0),
    }


def test_a_sample_is_scaled_and_finds_huge_pages_by_any_of_their_words() -> None:
    _, idle = furnished(sampled_words=512)  # of 1,024
    idle._random = random.Random(42)
    scanned(idle, "pods/a")
    found = scanned(idle, "pods/a")["pods/a"]
    assert found.anon_bytes == pytest.approx(24 * MIB, rel=0.15)
    assert found.file_bytes == pytest.approx(3 * MIB, rel=0.3)


def test_only_words_of_the_sample_and_heads_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    host, idle = machine()
    host.make_cgroup("a")
    host.spawn("a", memory_bytes=8 * MIB)
    host.cool("a", anon_bytes=8 * MIB)
    first = 4096 // 64  # the first huge page has eight words, and its head is in this one
    monkeypatch.setattr(page_idle, "_sample", lambda *_: iter([first + 2]))
    scanned(idle)
    bits = host.words(BITMAP).read(0, 1000)
    assert {word: bits for word, bits in enumerate(bits) if bits} == {first: 1}


def test_a_cgroup_with_few_pages_in_the_sample_is_left_out() -> None:
    host, idle = furnished()
    host.make_cgroup("tiny")
    host.spawn("tiny", memory_bytes=40 * 4096)
    scanned(idle, "tiny")
    assert set(scanned(idle, "tiny")) == {""}


def test_the_probe_sets_no_bit() -> None:
    host, idle = machine()
    assert idle.check() == f"read {BITMAP} and wrote a word without a bit to it"
    with pytest.raises(NotAvailable, match="CONFIG_IDLE_PAGE_TRACKING"):
        host = FakeHost("v2")
        PageIdle(host, Cgroups(host, detect(host))).check()


def test_a_kdamond_of_others_stands_in_the_way_and_is_left_alone() -> None:
    host, idle = machine(kdamond=True)
    with pytest.raises(NotAvailable, match=r"kdamonds/0/state is on.*never stops a kdamond"):
        idle.check()
    with pytest.raises(NotAvailable):
        scanned(idle)
    assert not host.written
