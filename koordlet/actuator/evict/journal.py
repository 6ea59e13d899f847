"""Evictions on disk. Those that have begun and not ended: after a crash they go on, and the same
victim is not chosen anew while it still terminates. Those that have ended lately: a restart gives
nobody a new budget. One small JSON file, replaced as a whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import msgspec

from koordlet.decision.names import encodable_all, meant, shown
from koordlet.decision.plan import Victim
from koordlet.decision.snapshot import Ended
from koordlet.decision.why import Why
from koordlet.protocol.document import UNREADABLE

FILE_NAME = "evictions"


class Begun(msgspec.Struct, frozen=True):
    """``since``: unix seconds; ``since_s``: monotonic ones, which go on while a boot lasts and do
    not jump. ``inode``: of the cgroup's directory, because another may have its name by now.
    ``unit``: of an application that is a systemd unit. ``namespace``, ``name``: of a pod; its uid
    where nobody knows its name."""

    victim: Victim
    title: str
    cgroup: str
    inode: int
    owner: str
    feature: str
    why: Why
    since: float
    grace_s: float
    releases: tuple[tuple[str, int], ...] = ()
    unit: str = ""
    since_s: float = 0.0
    namespace: str = ""
    name: str = ""


class Frozen(msgspec.Struct, frozen=True):
    """A cgroup that is frozen while its processes are killed. ``directory``: in the v1 hierarchy
    of the freezer; ``inode``: of that."""

    cgroup: str
    directory: str
    inode: int
    owner: str


class Contents(msgspec.Struct, frozen=True):
    """``evictions``: not ended. ``ended``: monotonic seconds, which go on while a boot lasts.
    ``frozen``: may be so through us."""

    boot_id: str
    evictions: tuple[Begun, ...] = ()
    ended: tuple[Ended, ...] = ()
    frozen: tuple[Frozen, ...] = ()


def load(path: str, boot_id: str) -> Contents:
    """Of this boot. Raises OSError, and ValueError for a file that is not of this shape."""
    empty = Contents(boot_id)
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read(), type=Contents)
    except FileNotFoundError:
        return empty
    except UNREADABLE as error:
        raise ValueError(f"{path}: {error}") from error
    if found.boot_id != boot_id:
        return empty
    return _named(found, meant)


def save(path: str, contents: Contents) -> None:
    """Raises OSError; then the file is as it was."""
    new = f"{path}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    plain = msgspec.to_builtins(_named(contents, shown))
    data = msgspec.json.encode(encodable_all(plain))
    descriptor = os.open(new, flags, 0o640)
    try:
        # In the page cache is enough: what ends that ends the victims as well.
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(new)
        raise
    finally:
        os.close(descriptor)
    os.rename(new, path)


def _named(contents: Contents, form: Callable[[str], str]) -> Contents:
    """With the names of cgroups in another form: JSON does not take all that there are."""
    begun = tuple(
        msgspec.structs.replace(each, cgroup=form(each.cgroup)) for each in contents.evictions
    )
    return msgspec.structs.replace(contents, evictions=begun)
