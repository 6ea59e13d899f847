"""Configuration in force and its reload, as data."""

from __future__ import annotations

import msgspec

from koordlet.decision.why import Fault


class ConfigValueView(msgspec.Struct, frozen=True, kw_only=True):
    """``value`` is TOML text, ``origin`` a file with line or ``default``."""

    key: str
    value: str
    origin: str


class ConfigView(msgspec.Struct, frozen=True, kw_only=True):
    file: str
    values: tuple[ConfigValueView, ...] = ()


class ReloadView(msgspec.Struct, frozen=True, kw_only=True):
    """``ok`` False: the new file is kept out and ``errors`` says where it is wrong.
    ``needs_restart``: changed keys that a running daemon cannot take up."""

    ok: bool
    changed: tuple[str, ...] = ()
    needs_restart: tuple[str, ...] = ()
    errors: tuple[Fault, ...] = ()
