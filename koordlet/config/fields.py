"""What the keys of ``koordlet.toml`` are made of."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

MilliCores = Annotated[int, Meta(extra={"format": "cpu"})]
Bytes = Annotated[int, Meta(extra={"format": "bytes"})]
Seconds = Annotated[float, Meta(extra={"format": "duration"})]


def about(meaning: str, *, restart: bool = False) -> Meta:
    """What a key means. ``restart``: taken up at the next start only, not at a reload."""
    return Meta(description=meaning, extra={"restart": True} if restart else None)


class Table(msgspec.Struct, frozen=True):
    """Base of the tables of the file; the first line of a docstring heads it in the sample."""
