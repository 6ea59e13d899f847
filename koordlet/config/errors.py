"""What is wrong with a configuration, and where."""

from __future__ import annotations

import os
from collections.abc import Iterable

import msgspec


class ConfigError(msgspec.Struct, frozen=True):
    """One fault. ``path`` is the dotted key (``applications[1].qos``), empty when the whole file
    is meant; ``line`` is None when it cannot be told; ``nearest`` is the valid name meant."""

    file: str
    path: str
    message: str
    line: int | None = None
    nearest: str = ""

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        text = f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"
        return f'{text} (did you mean "{self.nearest}"?)' if self.nearest else text


class ConfigErrors(Exception):  # noqa: N818 (it holds several)
    """The configuration was refused. ``errors`` holds every fault found, in file order."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors = tuple(sorted(errors, key=lambda error: (error.file, error.line or 0)))
        super().__init__("\n".join(map(str, self.errors)))


def unreadable(file: str, error: OSError) -> ConfigErrors:
    """A file that cannot be opened or read."""
    return ConfigErrors([ConfigError(file, "", os.strerror(error.errno or 0))])
