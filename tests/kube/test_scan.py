"""Whatever the JSON, the scanner finds the same brackets as a decoder, without recursion."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.kube.objects import Page
from koordlet.kube.scan import UnbalancedError, shallow, split_list
from tests.fakekube.broken import nested

Value = Any
texts = st.text(alphabet='ab{}[]"\\,: \n€', max_size=6)
values: st.SearchStrategy[Value] = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=60,
)


def below(value: Value) -> list[Value]:
    found = list(value.values()) if isinstance(value, dict) else value
    return [each for each in found if isinstance(each, dict | list)]


def cut(value: Value, levels: int) -> Value:
    if not isinstance(value, dict | list):
        return value
    if levels == 1 and below(value):
        return None
    if isinstance(value, dict):
        return {key: cut(each, levels - 1) for key, each in value.items()}
    return [cut(each, levels - 1) for each in value]


@given(values, st.integers(2, 8), st.booleans())
def test_what_is_deeper_is_null(value: Value, levels: int, ascii_only: bool) -> None:
    text = json.dumps({"a": value}, ensure_ascii=ascii_only).encode()
    found = shallow(text, levels)
    if text.count(b"{") + text.count(b"[") > levels:
        assert json.loads(found) == cut({"a": value}, levels)
    else:
        assert found == text


@given(st.lists(st.dictionaries(texts, values, max_size=3), max_size=5), texts)
def test_a_list_is_split_as_a_decoder_splits_it(items: list[Value], version: str) -> None:
    tree = {"kind": "L", "metadata": {"resourceVersion": version, "x": {"y": []}}, "items": items}
    text = json.dumps(tree).encode()
    head, found = split_list(text, 10)
    page = msgspec.json.decode(text, type=Page)
    assert found == [bytes(each) for each in page.items or ()]
    assert msgspec.json.decode(head, type=Page).metadata == page.metadata


@pytest.mark.parametrize(
    "text", [b"", b"{", b'{"a":[}', b"]", b"{" * 100_000, b'{"a' * 1000, b'{"' + b"[" * 5_000_000]
)
def test_what_is_no_json_ends_soon(text: bytes) -> None:
    with pytest.raises(UnbalancedError):
        split_list(text, 10)
    if text.count(b"{") > 64:
        with pytest.raises(UnbalancedError):
            shallow(text)


def test_deep_and_wide() -> None:
    wide = ",".join(['{"b":{}}'] * 100_000)
    text = f'{{"deep":{nested(9000)},"wide":[{wide}],"last":1}}'.encode()
    found = json.loads(shallow(text))
    assert found["last"] == 1
    assert len(found["wide"]) == 100_000


def test_no_more_objects_than_were_asked_for() -> None:
    text = b'{"items":[' + b",".join([b"{}"] * 11) + b"]}"
    assert len(split_list(text, 11).items) == 11
    with pytest.raises(UnbalancedError, match="more than the 10"):
        split_list(text, 10)
