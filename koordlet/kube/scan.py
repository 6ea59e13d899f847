"""JSON taken apart by its strings and brackets alone.

msgspec decodes 1 MiB of pods in 4 ms but recurses, also into what it skips, and gives up some
hundred levels down. The API server stores more than that in ``managedFields``. This takes 20 to 30
ms a MiB, whatever the depth: it serves where msgspec gave up.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

import msgspec

from koordlet.protocol.limits import JSON_DEPTH

Buffer = bytes | bytearray | msgspec.Raw
_HEIGHT = 4
"""Levels that one match passes over, so that a million small objects cost no step of ours each. A
match that fails is begun again one level deeper: more would be slow for what is made to fail."""
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_OPENS = b"{["


def _passed(height: int) -> bytes:
    """Whatever is at most ``height`` levels high."""
    flat = rb'[^"{}\[\]]++|%b' % _STRING
    found = flat
    for _ in range(height):
        found = rb"%b|[{\[](?:%b)*+[}\]]" % (flat, found)
    return rb"(?:%b)*+" % found


_BRACKETS = tuple(
    re.compile(_passed(height) + rb"([{}\[\]])", re.DOTALL) for height in range(_HEIGHT + 1)
)
"""One bracket, and before it what is so many levels high."""
_UP = re.compile(rb"(?:%b[{\[])*+" % _passed(_HEIGHT), re.DOTALL)
_DOWN = re.compile(rb"(?:%b[}\]])*+" % _passed(_HEIGHT), re.DOTALL)
_ONE_DOWN = re.compile(_passed(_HEIGHT) + rb"[}\]]", re.DOTALL)
_OBJECT = re.compile(_passed(9), re.DOTALL)
"""Most objects of Kubernetes are lower than this."""
_STRINGS = re.compile(_STRING, re.DOTALL)


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
    kept, done = list[bytes](), 0
    depth = at = 0
    while True:
        start, at, opens = _bracket(text, at, min(_HEIGHT, levels - depth) if depth else 0)
        depth += 1 if opens else -1
        if depth == levels:  # one without any in it would have been passed over
            at = _end(text, at)
            kept += (text[done:start], b"null")
            done, depth = at, depth - 1
        elif not depth:
            return b"".join((*kept, text[done:])) if kept else text


def split_list(data: Buffer, most: int) -> Split:
    """Return the objects in the lists right below the top. Raises UnbalancedError, also for more
    than ``most`` of them."""
    text = bytes(data)
    items, head = list[bytes](), list[bytes]()
    done = depth = at = 0
    in_list = False
    while True:
        start, at, opens = _bracket(text, at, 0)
        depth += 1 if opens else -1
        if depth == 0:
            return Split(b"".join((*head, text[done:])), items)
        if depth == 1 and not opens and in_list:
            in_list, done = False, start
        elif depth == 2 and text[start] == ord("["):
            head.append(text[done:at])
            in_list = True
        elif opens and depth > 1:
            depth -= 1
            inside = _OBJECT.match(text, at)
            assert inside is not None
            at = inside.end()
            at = at + 1 if text[at : at + 1] in (b"}", b"]") else _end(text, at)
            if in_list:
                items.append(text[start:at])
                if len(items) > most:
                    raise UnbalancedError(f"more than the {most} objects that were asked for")


def _bracket(text: bytes, at: int, height: int) -> tuple[int, int, bool]:
    """The next one: where it begins and ends, and whether it opens."""
    found = _BRACKETS[height].match(text, at)
    if found is None:
        raise UnbalancedError("it is no JSON, or not all of it")
    start, end = found.span(1)
    return start, end, text[start] in _OPENS


def _end(text: bytes, at: int) -> int:
    """Where what was opened before ``at`` ends."""
    missing = 1
    while True:
        up = _UP.match(text, at)
        assert up is not None
        missing += _more_open(up[0])
        at = up.end()
        down = _DOWN.match(text, at)
        assert down is not None
        closed = -_more_open(down[0])
        if not closed:
            raise UnbalancedError("it is no JSON, or not all of it")
        if closed >= missing:
            return next(islice(_ONE_DOWN.finditer(text, at), missing - 1, None)).end()
        missing -= closed
        at = down.end()


def _more_open(text: bytes) -> int:
    """How many more brackets open than close in it."""
    bare = _STRINGS.sub(b"", text)
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")
