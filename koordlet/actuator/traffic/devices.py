"""Which network devices have qdiscs of ours, and what was there first.

One small file beside the journal, replaced as a whole and on disk before a device is touched. The
kernel's own state says what is ours too (``tc.HANDLE``), so what this adds is whether there is
anything to look for, and the kind of qdisc that goes back. A boot takes the qdiscs with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec
import structlog

from koordlet.protocol.document import UNREADABLE

log = structlog.get_logger()

FILE_NAME = "devices"


class Shaped(msgspec.Struct, frozen=True):
    """``qdisc``: kind of the root qdisc found; empty where it was ours already. ``arrivals``: that
    of the one for arriving packets, empty for none. ``index``: a device made anew under the same
    name has another. ``since``: unix seconds."""

    device: str
    index: int
    qdisc: str
    arrivals: str
    since: float


class _File(msgspec.Struct, frozen=True):
    boot_id: str
    devices: tuple[Shaped, ...]


class Devices:
    """``shaped``: by name. None: something may be ours, but the file that said what is damaged.
    Raises OSError for a file that is there and cannot be read."""

    def __init__(self, path: str, boot_id: str) -> None:
        self.path = path
        self._boot_id = boot_id
        self.damaged = False
        self._shaped: dict[str, Shaped] = {}
        try:
            with open(path, "rb") as file:
                data = file.read()
        except (FileNotFoundError, NotADirectoryError):
            return
        try:
            found = msgspec.json.decode(data, type=_File)
        except UNREADABLE as error:
            log.warning("damaged; koordlet checks all devices", path=path, error=str(error))
            self.damaged = True
            return
        if found.boot_id == boot_id:
            self._shaped = {each.device: each for each in found.devices}

    @property
    def shaped(self) -> Mapping[str, Shaped]:
        return self._shaped

    @property
    def is_empty(self) -> bool:
        """Nothing of ours can be in the kernel."""
        return not self._shaped and not self.damaged

    def add(self, device: Shaped) -> None:
        """Raises OSError: then the device must not be touched."""
        self._store({**self._shaped, device.device: device})

    def remove(self, name: str) -> None:
        """Raises OSError; harmless, because looking for what is gone finds nothing."""
        if name in self._shaped:
            self._store({key: each for key, each in self._shaped.items() if key != name})

    def clear(self) -> None:
        """As ``remove``, for all."""
        self._store({})

    def _store(self, shaped: dict[str, Shaped]) -> None:
        temporary = f"{self.path}.new"
        data = msgspec.json.encode(_File(self._boot_id, tuple(shaped.values())))
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.rename(temporary, self.path)
        directory = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self._shaped, self.damaged = shaped, False
