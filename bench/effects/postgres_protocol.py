"""Part of PostgreSQL's protocol that a bench speaks: simple queries of a user who needs
no password."""

from __future__ import annotations

import socket
import struct

from bench.figures import NotMeasuredError

USER = "postgres"
_READ_BYTES = 1 << 16
_VERSION = "\0\3\0\0"
_INT = struct.Struct(">i")
_ERROR = b"E"
READY = b"Z" + _INT.pack(5) + b"I"
"""ReadyForQuery, outside of a transaction: what each answer ends with."""


def _message(kind: bytes, text: str) -> bytes:
    body = text.encode() + b"\0"
    return kind + _INT.pack(_INT.size + len(body)) + body


STARTUP = _message(b"", f"{_VERSION}user\0{USER}\0database\0postgres\0")
"""Sent first on a connection."""


def query(sql: str) -> bytes:
    return _message(b"Q", sql)


def template(sql: str, number: str) -> bytes:
    """A query in which ``number`` stands for the numbers that ``%`` will put there: they have as
    many digits, and no other sign of the message is taken for theirs."""
    head, _, tail = query(sql).replace(b"%", b"%%").partition(number.encode())
    return head + b"%%0%dd" % len(number) + tail


def answer(connection: socket.socket, message: bytes) -> bytes:
    """The whole answer. Raises OSError, and NotMeasuredError when it is an error."""
    connection.sendall(message)
    found = b""
    while not found.endswith(READY):
        data = connection.recv(_READ_BYTES)
        found += data
        if not data or found.startswith(_ERROR):
            raise NotMeasuredError(f"postgres answers {message!r} with {found!r}")
    return found
