"""How calls and connections end other than well."""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """Status codes of gRPC; those in use here."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


class StatusError(Exception):
    """A call ended with another status than OK. ``code`` may be one that ``Code`` lacks."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class WireError(Exception):
    """The peer breaks the protocol; the connection is beyond repair."""


class ClosedError(Exception):
    """The connection is closed, by whichever side and for whatever reason; the text says why."""


class UnsafeUpdateError(Exception):
    """The runtime could lock up on an update that it did not ask for (``nri.versions``)."""


class NotConnectedError(Exception):
    """No runtime has registered the plugin at present."""
