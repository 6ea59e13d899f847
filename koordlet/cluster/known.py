"""What the cluster said last of this node, on disk, for a start while the API server is away.

One file: a checksum, then JSON. Pods are in a file of their own, which follows each of them
(``state/reported_file.py``).
"""

from __future__ import annotations

import contextlib
import os
import zlib

import msgspec

from koordlet.cluster.shapes import Node, NodeSLO
from koordlet.protocol.document import UNREADABLE

FILE_NAME = "last-known"
MOST_BYTES = 4 << 20
"""An object of the API server has 1.5 MiB at most."""
_CRC = 9
"""Of the first line: eight hex digits."""


class Known(msgspec.Struct, frozen=True):
    """``heard_s``: unix seconds, when the server last said that they are still so."""

    name: str = ""
    heard_s: float = 0.0
    node: Node | None = None
    slo: NodeSLO | None = None


class Loaded(msgspec.Struct, frozen=True):
    """``damage``: why there is nothing, though there is a file."""

    known: Known
    damage: str = ""


def load(directory: str, name: str) -> Loaded:
    """``name``: of the node; what is known of another one is of no use."""
    path = os.path.join(directory, FILE_NAME)
    nothing = Known(name)
    try:
        with open(path, "rb") as file:
            data = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        return Loaded(nothing)
    except OSError as error:
        return Loaded(nothing, f"{path}: {error.strerror}")
    head, body = data[:_CRC], data[_CRC:]
    if len(data) > MOST_BYTES or head != _head(body):
        return Loaded(nothing, f"{path}: damaged; it is written anew when the API server answers")
    try:
        known = msgspec.json.decode(body, type=Known)
    except UNREADABLE as error:
        return Loaded(nothing, f"{path}: {error}; it is written anew when the API server answers")
    return Loaded(known if known.name == name else nothing)


def save(directory: str, known: Known) -> str:
    """For a worker thread. Returns why it is not on disk; empty where it is."""
    body = msgspec.json.encode(known)
    path = os.path.join(directory, FILE_NAME)
    if len(body) + _CRC > MOST_BYTES:
        return f"{path}: {len(body)} bytes are more than the {MOST_BYTES} that are kept"
    try:
        os.makedirs(directory, mode=0o750, exist_ok=True)
        descriptor = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(_head(body) + body)
            file.flush()
            os.fsync(file.fileno())
        os.rename(f"{path}.new", path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(f"{path}.new")
        return f"{path}: {error.strerror}; after a restart without the API server defaults apply"
    return ""


def _head(body: bytes) -> bytes:
    return b"%08x\n" % zlib.crc32(body)
