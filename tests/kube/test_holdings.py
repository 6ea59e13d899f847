"""Bytes of large objects: what is kept counts, also what had to stay."""

from __future__ import annotations

from koordlet.kube.holdings import Holdings


def test_what_stays_counts_where_a_list_left_it_no_room() -> None:
    holdings = Holdings(100)
    share = holdings.share()
    assert share.keep("old", 60) and not share.keep("new", 50)
    listed = share.successor()
    assert listed.keep("new", 50) and not listed.keep("old", 70)
    listed.stays("old")
    listed.listed()
    assert holdings.bytes == 110 and not listed.keep("more", 1)
    listed.drop("new")
    assert holdings.bytes == 60 and listed.keep("more", 40)
