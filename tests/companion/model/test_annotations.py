"""What a Binding may add to the annotations of a pod."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.model.annotations import MOST_BYTES, bytes_of, unbearable

A = {"koordinator.sh/a": "x" * 100}


@pytest.mark.parametrize(
    ("there_bytes", "added", "words"),
    [
        (0, {}, ""),
        (MOST_BYTES, {}, ""),
        (MOST_BYTES, A, ""),  # takes the place of one that is there
        (MOST_BYTES + 1, A, f"{MOST_BYTES + 1} bytes, of which {MOST_BYTES} are allowed"),
        (MOST_BYTES - 2, {"b": "y"}, ""),
        (MOST_BYTES - 2, {"b": "é"}, "are allowed"),
        (0, {"b": "x" * MOST_BYTES}, "are allowed"),
        (0, {"Example.com/A_b.C": "y"}, ""),
        (0, {"example.com/": "y"}, "a bad name: 'example.com/'"),
        (0, {"": "y"}, "a bad name"),
        (0, {"a b": "y"}, "a bad name"),
        (0, {"a/b/c": "y"}, "a bad name"),
        (0, {"x" * 64: "y"}, "a bad name"),
        (0, {f"{'x' * 254}/a": "y"}, "a bad name"),
        (0, {"-a": "y"}, "a bad name"),
        (0, {"a\n": "y"}, "a bad name"),
        (0, {"a": 1}, "whose value is no text"),
        (0, {"a": "\ud800"}, "whose value is no text"),
    ],
)
def test_what_a_binding_may_add(there_bytes: int, added: Any, words: str) -> None:
    found = unbearable(A, there_bytes, added)
    assert words in found and bool(words) == bool(found)


def test_bytes_count_as_in_utf8() -> None:
    assert bytes_of({"a": "é", "b": ""}) == 4
