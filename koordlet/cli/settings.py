"""The configuration, for commands that work without the daemon."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from koordlet.cli.arguments import DEFAULT_CONFIG

if TYPE_CHECKING:
    from koordlet.config.schema import Config


def _defaults() -> Config:
    from koordlet.config.schema import Config

    return Config()


@dataclass(frozen=True)
class Settings:
    """``error``: why ``file`` is not valid; ``config`` then holds the defaults. ``is_default``:
    there is no file, and none was named."""

    file: str
    config: Config = field(default_factory=_defaults)
    error: str = ""
    is_default: bool = False

    @property
    def journal(self) -> str:
        from koordlet.actuator.journal.journal import FILE_NAME

        return os.path.join(self.config.paths.state_dir, FILE_NAME)


def find(file: str | None) -> Settings:
    """The configuration in ``file``, or in the default one, which need not exist."""
    from koordlet.config.errors import ConfigErrors
    from koordlet.config.load import load

    path = file or DEFAULT_CONFIG
    try:
        loaded = load(path, missing_ok=file is None)
    except ConfigErrors as error:
        return Settings(path, error=str(error))
    return Settings(path, loaded.config, is_default=not os.path.exists(path))


def load_named(file: str) -> Config:
    """The configuration in ``file``. Raises ConfigErrors."""
    from koordlet.config.load import load

    return load(file).config


def peek(file: str | None, table: str, key: str) -> str:
    """One text out of ``file``, or out of the default one, as it stands there: nothing else of it
    is read or checked. Empty where there is none."""
    try:
        with open(file or DEFAULT_CONFIG, "rb") as opened:
            found = tomllib.load(opened).get(table)
    except (OSError, ValueError):  # TOMLDecodeError is one
        return ""
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, str) else ""
