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


class Findings(msgspec.Struct, frozen=True):
    """What a check of a configuration found, in file order. ``errors`` keep it out; ``warnings``
    do not: they name what is accepted and probably not meant."""

    errors: tuple[ConfigError, ...] = ()
    warnings: tuple[ConfigError, ...] = ()


class ConfigErrors(Exception):  # noqa: N818 (it holds several)
    """The configuration was refused. ``errors`` holds every fault found, ``warnings`` what else
    was noticed, both in file order."""

    def __init__(self, errors: Iterable[ConfigError], warnings: Iterable[ConfigError] = ()) -> None:
        self.errors = in_file_order(errors)
        self.warnings = in_file_order(warnings)
        super().__init__("\n".join(map(str, self.errors)))


def in_file_order(found: Iterable[ConfigError]) -> tuple[ConfigError, ...]:
    return tuple(sorted(found, key=lambda each: (each.file, each.line or 0)))


def unreadable(file: str, error: OSError) -> ConfigErrors:
    """A file that cannot be opened or read."""
    return ConfigErrors([ConfigError(file, "", os.strerror(error.errno or 0))])
