"""Reading the configuration: at the start, and again when its files changed or somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec

from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded, fingerprint, load
from koordlet.config.origins import structure
from koordlet.config.show import Changes, changes, needs_restart
from koordlet.kernel.host import Host

T = TypeVar("T", bound=msgspec.Struct)


def read_config(file: str, host: Host, *, observe: bool, missing_ok: bool = False) -> Loaded:
    """Raises ConfigErrors, for the same faults as ``koordlet config check`` finds on this
    machine. ``observe`` wins over the file."""
    loaded = load(file, missing_ok=missing_ok, host=host)
    if not observe:
        return loaded
    daemon = msgspec.structs.replace(loaded.config.daemon, mode="observe")
    config = msgspec.structs.replace(loaded.config, daemon=daemon)
    origins = {**loaded.origins, "daemon.mode": "--observe"}
    return msgspec.structs.replace(loaded, config=config, origins=origins)


def until_restart(old: Loaded, new: Loaded) -> tuple[Loaded, Changes]:
    """``new`` as a running daemon can take it up, and what differs from ``old`` in the files.

    Keys that need a restart keep their old value, so that everything goes on to look where the
    files and sockets of this run are.
    """
    found = changes(old, new)
    origins = dict(new.origins)
    for key in found.needs_restart:
        origins[key] = f"{old.origins[key]}; {new.origins[key]} after a restart"
    config = _with_old(old.config, new.config)
    return msgspec.structs.replace(new, config=config, origins=origins), found


def _with_old(old: T, new: T) -> T:
    replaced = {}
    for field in structure(type(new)).fields:
        before, after = getattr(old, field.name), getattr(new, field.name)
        if needs_restart(field.type):
            replaced[field.name] = before
        elif isinstance(after, msgspec.Struct):
            replaced[field.name] = _with_old(before, after)
    return msgspec.structs.replace(new, **replaced)


class ConfigFiles:
    """The files a configuration came from, and whether they have changed since.

    A file that could not be taken up counts as seen: it is read again when it changes.
    """

    def __init__(self, read: Callable[[], Loaded], loaded: Loaded) -> None:
        self._read = read
        self._seen = _look(loaded.files)

    def changed(self) -> bool:
        return _look(self._seen) != self._seen

    def read(self) -> Loaded:
        """Raises ConfigErrors."""
        # Looked at before it is read: what is written in between is seen next time.
        before = _look(self._seen)
        try:
            loaded = self._read()
        except ConfigErrors as errors:
            self._seen = _look(error.file for error in errors.errors) | before
            raise
        self._seen = _look(loaded.files) | {
            file: state for file, state in before.items() if file in loaded.files
        }
        return loaded


def _look(files: Iterable[str]) -> dict[str, object]:
    return {file: fingerprint((file,)) for file in files}
