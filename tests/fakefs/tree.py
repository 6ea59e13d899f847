"""Nodes of the file tree: leaves computed on read, directories, and the way to them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import count

from koordlet_fakefs.parse import number_in, refuse, strip

MAX_NAME_BYTES = 255
_inodes = count(1 << 20)


class Leaf:
    """A file. ``read`` computes the content, ``write`` takes one write(2).

    Without ``read`` reading is EINVAL (a write-only kernel file). Without ``write`` the file
    either refuses to be opened for writing (sysfs: EACCES) or refuses the write itself
    (``write_errno``).
    """

    __slots__ = ("ino", "open_errno", "read", "removed", "write", "write_errno")

    def __init__(
        self,
        read: Callable[[], str] | None,
        write: Callable[[str], None] | None = None,
        *,
        open_errno: int = 0,
        write_errno: int = errno.EINVAL,
    ) -> None:
        self.read = read
        self.write = write
        self.open_errno = 0 if write else open_errno
        self.write_errno = write_errno
        self.ino = next(_inodes)
        self.removed = False


class Link:
    """A symbolic link to a directory."""

    __slots__ = ("removed", "target")

    def __init__(self, target: Directory) -> None:
        self.target = target
        self.removed = False


class Directory:
    """A directory in which nothing can be made or removed (proc, sysfs)."""

    mkdir_errno = errno.EPERM

    def __init__(self, ino: int | None = None) -> None:
        self.entries: dict[str, Leaf | Directory | Link] = {}
        self.ino = next(_inodes) if ino is None else ino
        self.removed = False

    def names(self) -> list[str]:
        return sorted(self.entries)

    def mkdir(self, name: str) -> None:
        raise refuse(self.mkdir_errno)

    def rmdir(self, name: str) -> None:
        raise refuse(errno.EPERM)


class ProcDirectory(Directory):
    mkdir_errno = errno.ENOENT


def add_directory(parent: Directory, path: str, kind: type[Directory] = Directory) -> Directory:
    """The directory ``path`` below ``parent``, made with its parents where missing."""
    for name in path.split("/"):
        child = parent.entries.setdefault(name, kind())
        if not isinstance(child, Directory):
            raise ValueError(f"{path}: {name} is a file of the fake tree, not a directory")
        parent = child
    return parent


def number_leaf(initial: int, low: int, high: int) -> Leaf:
    """A knob that takes a number within bounds, EINVAL outside (proc_dointvec_minmax)."""
    value = [initial]

    def write(text: str) -> None:
        value[0] = number_in(strip(text), low, high, errno.EINVAL)

    return Leaf(lambda: f"{value[0]}\n", write)


def resolve(root: Directory, path: str) -> Leaf | Directory:
    """The node at absolute ``path``. ENOENT, ENOTDIR, ENAMETOOLONG as path lookup gives them."""
    node: Leaf | Directory = root
    for name in path.split("/"):
        if not name or name == ".":
            continue
        if not isinstance(node, Directory):
            raise refuse(errno.ENOTDIR)
        # Encoding costs a tenth of a history; no character takes more than four bytes.
        if 4 * len(name) > MAX_NAME_BYTES and len(os.fsencode(name)) > MAX_NAME_BYTES:
            raise refuse(errno.ENAMETOOLONG)
        child = node.entries.get(name)
        if child is None:
            raise refuse(errno.ENOENT)
        node = child.target if isinstance(child, Link) else child
    return node


def path_of(root: Directory, wanted: Directory) -> str:
    """The absolute path of a directory, on which there is no link. ENOENT where it is not below
    ``root``."""
    level: list[tuple[str, Directory]] = [("", root)]
    while level:
        below: list[tuple[str, Directory]] = []
        for path, directory in level:
            if directory is wanted:
                return path or "/"
            entries = directory.entries.items()
            below += [
                (f"{path}/{n}", child) for n, child in entries if isinstance(child, Directory)
            ]
        level = below
    raise refuse(errno.ENOENT)
