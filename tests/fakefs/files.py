"""Ordinary files in a directory of their own."""

from __future__ import annotations

import errno

from koordlet_fakefs.parse import refuse
from koordlet_fakefs.tree import Directory, Leaf


class FilesDirectory(Directory):
    def put(self, name: str, data: bytes) -> None:
        text = data.decode()
        self.entries[name] = Leaf(lambda: text)

    def move(self, name: str, target: str) -> None:
        """In the place of ``target`` at once, as rename(2)."""
        self.entries[target] = self.entries.pop(name)

    def drop(self, name: str) -> None:
        if name not in self.entries:
            raise refuse(errno.ENOENT)
        del self.entries[name]
