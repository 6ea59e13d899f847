"""The configuration, for commands that work without the daemon."""

from __future__ import annotations

import os
from dataclasses import dataclass

from koordlet.actuator.journal.journal import FILE_NAME
from koordlet.cli.arguments import DEFAULT_CONFIG
from koordlet.config.errors import ConfigErrors
from koordlet.config.load import load
from koordlet.config.schema import Config

DEFAULTS = Config()


@dataclass(frozen=True)
class Settings:
    """``error``: why ``file`` is not valid; ``config`` then holds the defaults. ``is_default``:
    there is no file, and none was named."""

    file: str
    config: Config = DEFAULTS
    error: str = ""
    is_default: bool = False

    @property
    def journal(self) -> str:
        return os.path.join(self.config.paths.state_dir, FILE_NAME)


def find(file: str | None) -> Settings:
    """The configuration in ``file``, or in the default one, which need not exist."""
    path = file or DEFAULT_CONFIG
    try:
        loaded = load(path, missing_ok=file is None)
    except ConfigErrors as error:
        return Settings(path, error=str(error))
    return Settings(path, loaded.config, is_default=not os.path.exists(path))
