"""What the transport asks of those who understand the calls."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import NamedTuple, Protocol


class Refusal(NamedTuple):
    """The call ends here, with this gRPC status."""

    status: int
    text: str


class Call(Protocol):
    """One call of an intercepted method. Neither function raises."""

    def ask(self) -> Awaitable[bytes | Refusal | None] | None:
        """The message to send instead, or None to send what came; None at once when there is
        nobody to ask."""
        ...

    def ended(self, status: int | None, response: bytes | None) -> None:
        """``status``: of gRPC, None when the call broke off. ``response``: the message, None where
        there is none or it was compressed or large."""
        ...


class Interceptor(Protocol):
    def wants(self, path: str) -> bool:
        """Whether ``begin`` takes calls of this path."""
        ...

    def begin(self, path: str, message: bytes) -> Call | None:
        """None: the message is none of that method, let it pass."""
        ...


class Meter(Protocol):
    """Counts, by method path. Nothing here may fail or be slow."""

    def called(self, path: str, *, held: bool) -> None: ...

    def added(self, path: str, *, held: bool, seconds: float) -> None:
        """The time between the request's last byte that mattered in, and it out."""
        ...

    def ended(self, path: str, status: int | None) -> None: ...

    def broken(self, text: str) -> None:
        """A connection was ended because a peer broke the protocol."""
        ...
