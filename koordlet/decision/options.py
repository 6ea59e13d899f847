"""What the options of a part, and the tables of ``koordlet.toml``, are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import msgspec
from msgspec import Meta

from koordlet.protocol.errors import Problem

MilliCores = Annotated[int, Meta(extra={"format": "cpu"})]
Bytes = Annotated[int, Meta(extra={"format": "bytes"})]
Seconds = Annotated[float, Meta(extra={"format": "duration"})]


def about(meaning: str, *, restart: bool = False) -> Meta:
    """What a key means. ``restart``: taken up at the next start only, not at a reload."""
    return Meta(description=meaning, extra={"restart": True} if restart else None)


class Table(msgspec.Struct, frozen=True):
    """Base of the tables of the file; the first line of a docstring heads it in the sample."""


class Options(Table, frozen=True):
    """Base of the options of a part. The configuration has a table of them for each part."""

    enable: Annotated[bool, about("Off: it does not run, and what it had set is put back.")] = True


DEFAULTS = Options()
"""Of a part that has no options of its own."""


def absolute(value: str, key: str) -> Iterator[Problem]:
    """What keeps ``value`` from being the absolute path that ``key`` wants."""
    if not value.startswith("/"):
        yield Problem(key, f"must be an absolute path, is {value!r}")
    elif "\0" in value or ".." in value.split("/"):
        yield Problem(key, f"must not hold '..' or a zero byte, is {value!r}")
