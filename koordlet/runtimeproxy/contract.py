"""What the transport asks of those who understand the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias


class Refusal(NamedTuple):
    """The call ends here, with this gRPC status."""

    status: int
    text: str


Answer: TypeAlias = bytes | Refusal | None
"""The message to send instead; None to send what came."""


class Question(Protocol):
    def then(self, answered: Callable[[Answer], None]) -> None:
        """``answered`` is called once, perhaps before this returns."""
        ...

    def cancel(self) -> None:
        """Nobody waits for the answer any more, and ``answered`` is not called."""
        ...


class Call(Protocol):
    """One call of an intercepted method. No function raises."""

    def ask(self) -> Question | None:
        """None when there is nobody to ask: what came is sent at once."""
        ...

    def ended(self, status: int | None, response: bytes | None) -> None:
        """``status``: of gRPC, None when the call broke off. ``response``: the message, None where
        there is none or it was compressed or large. Not called where nothing was sent."""
        ...

    def close(self) -> None:
        """Nothing more comes of this call. Called once."""
        ...


class Interceptor(Protocol):
    def wants(self, path: str) -> bool:
        """Whether ``begin`` takes calls of this path."""
        ...

    def begin(self, path: str, message: bytes) -> Call: ...


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
