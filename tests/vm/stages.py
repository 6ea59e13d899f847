"""The table of `stages.toml`."""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

TABLE = Path(__file__).with_name("stages.toml")


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    guests: tuple[str, ...]
    limit_s: int
    pytest: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    services: bool = False
    """Whether the real services of the benches are brought along."""
    bcc: bool = False
    """Whether BCC and the kernel's headers are brought along."""
    outside: bool = False
    """Whether the command runs on this machine, and starts the guest itself."""
    on_request: bool = False
    """Runs only where it is asked for by name (``--stage``)."""
    is_long: bool = False
    """Runs with ``--long``, or where it is asked for by name."""
    long: dict[str, tuple[str, ...]] = {}
    """Guest -> node ids of tests that run there with ``--long`` alone: CI has them elsewhere."""

    def __post_init__(self) -> None:
        if bool(self.pytest) == bool(self.command):
            raise ValueError(f"stage {self.name}: either pytest or command")
        if strangers := self.long.keys() - set(self.guests):
            raise ValueError(f"stage {self.name}: long: no guest of it: {', '.join(strangers)}")

    def short(self, guest: str) -> Stage:
        """The form that CI runs in this guest."""
        left_out = (word for test in self.long.get(guest, ()) for word in ("--deselect", test))
        return msgspec.structs.replace(self, pytest=(*self.pytest, *left_out))


def read_stages() -> tuple[Stage, ...]:
    table = tomllib.loads(TABLE.read_text())
    return msgspec.convert(table["stage"], tuple[Stage, ...])
