"""JSON taken apart by its strings and brackets alone.

msgspec decodes 1 MiB of pods in 4 ms but recurses, also into what it skips, and gives up some
hundred levels down. The API server stores more than that in ``managedFields``. This takes 25 ms a
MiB, whatever the depth: it serves where msgspec gave up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from koordlet.protocol.limits import JSON_DEPTH

_HEIGHT = 4
"""Levels that one match passes over, so that a million small objects cost no step of ours each. A
match that fails is begun again one level deeper: more would be slow for what is made to fail."""
_DEEPEST = 20_000
"""The API server refuses what goes deeper than 10,000 levels."""
_OPENS = b"{["


def _pattern(height: int) -> re.Pattern[bytes]:
    """One bracket, and before it whatever is at most ``height`` levels high."""
    flat = rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
    passed = flat
    for _ in range(height):
        passed = rb"%b|[{\[](?:%b)*+[}\]]" % (flat, passed)
    return re.compile(rb"(?:%b)*+([{}\[\]])" % passed, re.DOTALL)


_PATTERNS = tuple(map(_pattern, range(_HEIGHT + 1)))


Buffer = bytes | bytearray | msgspec.Raw


class UnbalancedError(ValueError):
    """Brackets that do not fit together, or too many of them."""


class Split(NamedTuple):
    """``head``: the list without its items."""

    head: bytes
    items: list[bytes]


def shallow(data: Buffer, levels: int = JSON_DEPTH) -> bytes:
    """Return the value with ``null`` for what goes deeper than ``levels``. Raises
    UnbalancedError."""
    text = bytes(data)
    if text.count(b"{") + text.count(b"[") <= levels:
        return text
    heights = (0, *(min(_HEIGHT, levels - depth) for depth in range(1, levels)), _HEIGHT)
    kept, done, begin = list[bytes](), 0, 0
    for start, end, depth in _brackets(text, heights):
        opens = text[start] in _OPENS
        if opens and depth == levels:  # one without any in it would have been passed over
            begin = start
        elif not opens and depth == levels - 1:
            kept += (text[done:begin], b"null")
            done = end
    return b"".join((*kept, text[done:])) if kept else text


def split_list(data: Buffer, most: int) -> Split:
    """Return the objects in the lists right below the top. Raises UnbalancedError, also for more
    than ``most`` of them."""
    text = bytes(data)
    items, head = list[bytes](), list[bytes]()
    done = begin = 0
    in_list = False
    for start, end, depth in _brackets(text, (0, 0, 0, _HEIGHT)):
        bracket = text[start]
        if depth == 2 and bracket in _OPENS:
            in_list = bracket == ord("[")
            if in_list:
                head.append(text[done:end])
        elif depth == 1 and bracket == ord("]"):
            done = start
        elif in_list and depth == 3 and bracket == ord("{"):
            begin = start
        elif in_list and depth == 2 and bracket == ord("}"):
            items.append(text[begin:end])
            if len(items) > most:
                raise UnbalancedError(f"more than the {most} objects that were asked for")
    return Split(b"".join((*head, text[done:])), items)


def _brackets(text: bytes, heights: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Where each begins and ends, and how many are open after it. ``heights``: what is passed over
    while so many are open; deeper, as the last one says."""
    patterns = [_PATTERNS[height].match for height in heights]
    last = len(patterns) - 1
    depth = end = 0
    while found := patterns[min(depth, last)](text, end):
        start, end = found.span(1)
        depth += 1 if text[start] in _OPENS else -1
        if not 0 <= depth <= _DEEPEST:
            break
        yield start, end, depth
        if not depth:
            return
    raise UnbalancedError("it is no JSON, or not all of it")
