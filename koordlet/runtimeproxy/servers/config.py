"""Which hook servers to ask: the files of the config directory (docs/reference/hooks.md 4.4)."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec
import structlog

from koordlet.decision.strategy import Stage

DEFAULT_DIRECTORY: Final = "/etc/runtime/hookserver.d"
_MAX_FILE_BYTES: Final = 64 << 10


class HookServer(msgspec.Struct, frozen=True, rename="kebab"):
    """One file. Names of hooks that no stage has are inert."""

    remote_endpoint: str
    failure_policy: Literal["Fail", "Ignore", ""] = ""
    runtime_hooks: tuple[str, ...] = ()

    @property
    def socket(self) -> str:
        return self.remote_endpoint.removeprefix("unix://")

    @property
    def fails(self) -> bool:
        """Whether a call ends when this server cannot be asked."""
        return self.failure_policy == "Fail"


@dataclass
class ConfigFile:
    """``error``: why the file as it is now is not in force; ``server`` is the last good one."""

    signature: tuple[int, ...] = ()
    server: HookServer | None = None
    error: str = ""


@dataclass
class HookConfig:
    """``poll`` looks for changes; it is cheap enough for once a second."""

    directory: str
    files: dict[str, ConfigFile] = field(default_factory=dict)
    error: str = ""
    """Why the directory cannot be read."""
    _by_stage: dict[Stage, HookServer | None] = field(default_factory=dict)

    def make_directory(self) -> None:
        """So that a hook server finds a place to put its file."""
        try:
            os.makedirs(self.directory, 0o755, exist_ok=True)
        except OSError as error:
            self._say(f"{self.directory}: {error.strerror}")

    def server_for(self, stage: Stage) -> HookServer | None:
        """Of the first file, by name, that lists the stage."""
        if stage not in self._by_stage:
            self._by_stage[stage] = self._first(stage)
        return self._by_stage[stage]

    def _first(self, stage: Stage) -> HookServer | None:
        for name in sorted(self.files):
            server = self.files[name].server
            if server is not None and stage in server.runtime_hooks:
                return server
        return None

    @property
    def sockets(self) -> set[str]:
        return {found.server.socket for found in self.files.values() if found.server is not None}

    def poll(self) -> bool:
        """Whether anything changed. A file that is gone is gone at once."""
        try:
            found = self._signatures()
        except OSError as error:
            self._say(f"{self.directory}: {error.strerror}")
            found = {}
        else:
            self.error = ""
        gone = self.files.keys() - found.keys()
        for name in gone:
            del self.files[name]
        changed = bool(gone)
        for name, signature in found.items():
            file = self.files.setdefault(name, ConfigFile())
            if file.signature != signature:
                file.signature = signature
                self._load(name, file)
                changed = True
        if changed:
            self._by_stage.clear()
        return changed

    def _signatures(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        with os.scandir(self.directory) as entries:
            for entry in entries:
                if not entry.name.endswith("json"):
                    continue
                try:
                    state = entry.stat()
                except FileNotFoundError:  # gone between the two, or a link to nowhere
                    continue
                if stat.S_ISREG(state.st_mode):
                    found[entry.name] = (state.st_mtime_ns, state.st_size, state.st_ino)
        return found

    def _load(self, name: str, file: ConfigFile) -> None:
        path = os.path.join(self.directory, name)
        try:
            file.server, file.error = _read(path), ""
        except (OSError, ValueError) as error:
            kept = "; the last good content stays in force" if file.server is not None else ""
            file.error = f"{path}: {error}{kept}"
            structlog.get_logger().error("hook_server_file_refused", error=file.error)
        else:
            structlog.get_logger().info(
                "hook_server_file_loaded", path=path, endpoint=file.server.socket
            )

    def _say(self, error: str) -> None:
        if error != self.error:
            structlog.get_logger().error("hook_servers_unknown", error=error)
        self.error = error


def _read(path: str) -> HookServer:
    """Raises OSError and ValueError (msgspec's errors are)."""
    with open(path, "rb") as file:
        text = file.read(_MAX_FILE_BYTES + 1)
    if len(text) > _MAX_FILE_BYTES:
        raise ValueError(f"above {_MAX_FILE_BYTES} bytes")
    server = msgspec.json.decode(text, type=HookServer)
    if not server.socket.startswith("/"):
        raise ValueError(f"remote-endpoint: {server.remote_endpoint!r} is no absolute path")
    return server
