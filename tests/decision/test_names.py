from __future__ import annotations

import os
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from koordlet.decision import names
from koordlet.decision.names import encodable, encodable_all, harmless, meant, mentions, shown


@given(st.binary(max_size=40))
@example(b"\xff")
@example(b"a\\xff")
@example(b"\\\\x41\\x4")
def test_a_shown_name_is_printable_and_means_the_same_bytes(name: bytes) -> None:
    text = shown(os.fsdecode(name))
    assert text.isprintable()
    assert text.encode().decode() == text
    assert os.fsencode(meant(text)) == name


@given(st.text(max_size=40))
def test_a_message_becomes_harmless_once(text: str) -> None:
    found = harmless(text)
    assert found.isprintable()
    assert found.encode().decode() == found == harmless(found)


@given(st.binary(max_size=40))
def test_a_shown_name_in_a_message_stays_as_it_is(name: bytes) -> None:
    text = shown(os.fsdecode(name))
    assert harmless(text) == text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (b"kubepods/besteffort/podX", "kubepods/besteffort/podX"),
        (b"two words", "two words"),
        ("größe".encode(), "größe"),
        (b"caf\xe9", r"caf\xe9"),
        (b"a\nb\x1b[31m", r"a\x0ab\x1b[31m"),
        (rb"system-a\x2db.slice", r"system-a\\x2db.slice"),
        ("\u202eevil".encode(), r"\xe2\x80\xaeevil"),
    ],
)
def test_how_names_look(name: bytes, text: str) -> None:
    assert shown(os.fsdecode(name)) == text
    assert os.fsencode(meant(text)) == name


def test_a_backslash_that_begins_no_escape_stands_for_itself() -> None:
    assert meant(r"a\b\x4") == r"a\b\x4"


def test_half_a_surrogate_pair_that_is_no_byte_is_harmless_too() -> None:
    assert shown("\ud800").isprintable() and harmless("x\ud800").isprintable()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@given(st.binary(max_size=20))
def test_every_locale_shows_a_name_alike(encoding: str, name: bytes) -> None:
    """The daemon and the command need not have the same."""
    there = (encoding, "surrogateescape")
    text = shown(os.fsdecode(name))
    with mock.patch.object(names, "_NAMES", there):
        assert shown(name.decode(*there)) == text
        assert meant(text).encode(*there) == name


@given(st.text(max_size=20) | st.binary(max_size=20).map(os.fsdecode))
def test_what_is_encodable_keeps_its_text(text: str) -> None:
    found = encodable(text)
    assert found.encode().decode() == found
    if not any("\ud800" <= each <= "\udfff" for each in text):
        assert found == text
    assert encodable_all({"a": [text, 1, (text,)]}) == {"a": [found, 1, [found]]}


@pytest.mark.parametrize(
    ("text", "is_meant"),
    [
        ("web waits", True),
        ("it is web.", True),
        ("web: gone", True),
        ("web/main waits", True),
        ("(web)", True),
        ("web-0 waits", False),
        ("shop/web waits", False),
        ("my-web waits", False),
        ("web.service waits", False),
        ("shop/web-0 because of web", True),
        ("webs", False),
    ],
)
def test_a_name_is_mentioned_as_a_whole(text: str, is_meant: bool) -> None:
    assert mentions(text, "web") == is_meant
