"""What runtimes told, on disk, so that a daemon that starts again knows it at once.

A runtime tells only once what kubelet asked for: afterwards it shows what koordlet had made of it.
To lose that would mean to scale a quota twice, and to put back a value of ours as the original.

One line is what is known of one pod now, or the uid of one that went; the first line names the
boot, since times and cgroups of another boot mean nothing. Lines are in the page cache before the
runtime gets its answer, which survives kill -9; what ends the page cache ends the containers too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec
import structlog

log = structlog.get_logger()

_COMPACT_LINES = 1000
_COMPACT_FACTOR = 4


class AboutPod(Protocol):
    """A frozen Struct."""

    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=AboutPod)


class Line(msgspec.Struct, Generic[T], frozen=True, omit_defaults=True):
    """One of the three."""

    boot_id: str = ""
    pod: T | None = None
    gone: str = ""


_encoder = msgspec.json.Encoder()


class ToldFile(Generic[T]):
    """``kind``: class of what is kept of a pod. ``error``: why nothing is written at present, else
    empty. Nothing here raises OSError: a disk that refuses costs what a restart would otherwise
    know."""

    def __init__(self, path: str, boot_id: str, kind: type[T]) -> None:
        self._path = path
        self._boot_id = boot_id
        self._decoder = msgspec.json.Decoder(Line[kind])  # type: ignore[valid-type]
        self._saved: dict[str, T] = {}
        self._lines = 0
        self._descriptor = -1
        self.error = ""

    def load(self) -> tuple[T, ...]:
        """What was known at the end of the run before, in this boot; a torn or damaged line is
        skipped. From now on changes are appended."""
        try:
            with open(self._path, "rb") as file:
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            lines = []
        except OSError as error:
            self._failed(error)
            return ()
        found: dict[str, T] = {}
        for number, raw in enumerate(lines):
            try:
                line = self._decoder.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if number == 0 and line.boot_id != self._boot_id:
                found.clear()
                break
            if line.pod is not None:
                found[line.pod.uid] = line.pod
            found.pop(line.gone, None)
        self._rewrite(found)
        return tuple(found.values())

    def save(self, pods: Mapping[str, T], uids: Iterable[str]) -> None:
        """``uids``: those of ``pods`` that may have changed, or are no longer in it."""
        lines: list[Line[T]] = []
        for uid in uids:
            pod, old = pods.get(uid), self._saved.get(uid)
            if pod is None and old is not None:
                lines.append(Line(gone=uid))
                del self._saved[uid]
            elif pod is not None and pod is not old:
                lines.append(Line(pod=pod))
                self._saved[uid] = pod
        if not lines:
            return
        self._lines += len(lines)
        if self._descriptor < 0 or self._lines > _COMPACT_LINES + _COMPACT_FACTOR * len(pods):
            self._rewrite(dict(self._saved))
        else:
            self._append(b"".join(_encoder.encode(line) + b"\n" for line in lines))

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _rewrite(self, pods: dict[str, T]) -> None:
        lines = [Line[T](boot_id=self._boot_id), *(Line(pod=pod) for pod in pods.values())]
        unfinished = f"{self._path}.new"
        self.close()
        self._saved, self._lines = pods, len(lines)
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(b"".join(_encoder.encode(line) + b"\n" for line in lines))
            os.rename(unfinished, self._path)
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            self._failed(error)
        else:
            self.error = ""

    def _append(self, data: bytes) -> None:
        try:
            if os.write(self._descriptor, data) != len(data):
                # The next change writes everything anew.
                self.close()
        except OSError as error:
            self.close()
            self._failed(error)

    def _failed(self, error: OSError) -> None:
        text = f"{self._path}: {error.strerror}; after a restart pods may be known less well"
        if text != self.error:
            log.warning("what runtimes tell cannot be kept", error=text)
        self.error = text
