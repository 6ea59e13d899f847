r"""The records of the journal, and how each stands in the file.

A line is ``<generation> <sequence> <before> <crc> <JSON>``, four numbers of 8 hex digits:

- ``generation``: which file it belongs to. Each file written anew has another.
- ``sequence``: 1 for the first record of the file, then one more each.
- ``before``: the CRC of the record before it, so that each names its place.
- ``crc``: CRC-32 of all the rest of the line.

So a line that was changed, moved, repeated, left out or taken from another file is noticed. Names
of cgroups and paths stand in the form of ``decision.names``, because JSON takes no other bytes.

In the first format a line was ``<crc32 of the JSON> <JSON>``, with names as they are. Such a file
is still read, because an upgrade comes in the middle of a boot.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from koordlet.actuator.merge import Key
from koordlet.decision.names import meant, shown
from koordlet.decision.resource import Resource, Value
from koordlet.protocol.document import UNREADABLE


class Boot(msgspec.Struct, frozen=True, tag="boot", omit_defaults=True):
    """The first record. ``exact`` is 0 once an intent could not be recorded: then every value
    counts as ours. ``damage``: what was wrong with an earlier file of this boot; ``incomplete``:
    records are missing since then."""

    boot_id: str
    exact: int = 1
    damage: tuple[str, ...] = ()
    incomplete: bool = False


class Original(msgspec.Struct, frozen=True, tag="original", omit_defaults=True):
    """``raw`` is what to write back, ``value`` the same for people. ``since``: unix seconds.

    ``coupled``: journaled because writing another file of the cgroup changes this one too.
    ``computed``: not found in the file, but what it would have held without koordlet.
    ``newest``: the largest inode of the cgroups below a v1 CPU list at that time. Inodes of cgroups
    only grow (kernfs ids), so what has a larger one was made later, with a copy of ours.
    ``doubtful``: records that may have been about this file are missing.
    """

    cgroup: str
    resource: Resource
    path: str
    inode: int
    raw: bytes
    value: Value
    owner: str
    since: float
    coupled: bool = False
    computed: bool = False
    newest: int = 0
    doubtful: bool = False

    @property
    def key(self) -> Key:
        return Key(self.cgroup, self.resource)


class Intent(msgspec.Struct, frozen=True, tag="intent"):
    cgroup: str
    resource: Resource
    values: tuple[Value, ...]
    owner: str


class Released(msgspec.Struct, frozen=True, tag="released"):
    cgroup: str
    resource: Resource


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """A file that may hold one of ``values`` of ours, whose original is among the records that are
    missing."""

    cgroup: str
    resource: Resource
    values: tuple[Value, ...]
    owner: str


Change = Original | Intent | Released | Lost
Line = Boot | Change

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)
_NUMBERS = 36
"""Bytes before the JSON."""
_HEAD = _NUMBERS - 9
"""Of them, those before the CRC."""


class Record(NamedTuple):
    """A line whose CRC is right."""

    generation: int
    sequence: int
    before: int
    crc: int
    line: Line


def write_line(line: Line, generation: int, sequence: int, before: int) -> tuple[bytes, int]:
    """The line with its newline, and its CRC."""
    text = _encoder.encode(_named(line, shown))
    head = b"%08x %08x %08x " % (generation, sequence, before)
    crc = zlib.crc32(text, zlib.crc32(head))
    return b"%s%08x %s\n" % (head, crc, text), crc


def read_line(raw: bytes) -> Record | None:
    """``raw`` without its newline; None for what is no such line."""
    head, text = raw[:_HEAD], raw[_NUMBERS:]
    try:
        numbers = [int(raw[start : start + 8], 16) for start in range(0, _NUMBERS, 9)]
        if numbers[3] != zlib.crc32(text, zlib.crc32(head)):
            return None
        line: Line = _decoder.decode(text)
    except (ValueError, *UNREADABLE):
        return None
    generation, sequence, before, crc = numbers
    return Record(generation, sequence, before, crc, _named(line, meant))


def read_old_line(raw: bytes) -> Line | None:
    """The same for a line of the first format."""
    try:
        if int(raw[:8], 16) != zlib.crc32(raw[9:]):
            return None
        line: Line = _decoder.decode(raw[9:])
    except (ValueError, *UNREADABLE):
        return None
    return line


def _named(line: Line, form: Callable[[str], str]) -> Line:
    """``line`` with its names in another form."""
    if isinstance(line, Boot):
        return line
    cgroup = form(line.cgroup)
    if isinstance(line, Original):
        path = form(line.path)
        if (cgroup, path) == (line.cgroup, line.path):
            return line
        return msgspec.structs.replace(line, cgroup=cgroup, path=path)
    return line if cgroup == line.cgroup else msgspec.structs.replace(line, cgroup=cgroup)
