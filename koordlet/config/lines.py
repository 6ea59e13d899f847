"""Where in a file each key stands. The parsers in use keep no positions."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from koordlet.protocol.errors import join

_HEADER = re.compile(r"\s*(\[\[?)")
# What the last row of a value over several rows ends with.
_CLOSED = re.compile(r"""(\]|\}|\"{3}|'{3})\s*(#.*)?$""")
# Text in a value may look like its end so often; then what follows it has no line numbers.
_MAX_ATTEMPTS = 100


class Lines:
    """Path of a key -> line number; a path that is not there is looked for by its parents."""

    def __init__(self, lines: Mapping[str, int]) -> None:
        self._lines = dict(lines)
        self._folded = {path.lower(): line for path, line in lines.items()}

    def exact(self, path: str) -> int | None:
        """Line of exactly this key, in any letter case."""
        return self._lines.get(path, self._folded.get(path.lower()))

    def find(self, path: str) -> int | None:
        """Line of this key or of the nearest table around it."""
        while path:
            line = self.exact(path)
            if line is not None:
                return line
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return None


def toml_lines(text: str) -> Lines:
    """Lines of all keys and tables of a TOML text that tomllib has accepted."""
    lines: dict[str, int] = {}
    counts: dict[str, int] = {}
    prefix = ""
    rows = text.split("\n")
    index = 0
    while index < len(rows):
        statement, used = _statement(rows, index)
        header = _HEADER.match(rows[index])
        if statement and header:
            prefix = _enter(statement, header[1] == "[[", counts)
            _note(lines, prefix, index + 1)
        elif statement:
            for path in _paths(statement, prefix):
                _note(lines, path, index + 1)
        index += used
    return Lines(lines)


def _note(lines: dict[str, int], path: str, line: int) -> None:
    lines.setdefault(path, line)


def _statement(rows: list[str], start: int) -> tuple[dict[str, Any], int]:
    """The statement that begins at row ``start``, as a tree, and how many rows it takes."""
    ends = (end for end in range(start + 1, len(rows)) if _CLOSED.search(rows[end]))
    for end in itertools.chain((start,), itertools.islice(ends, _MAX_ATTEMPTS)):
        try:
            return tomllib.loads("\n".join(rows[start : end + 1])), end + 1 - start
        except tomllib.TOMLDecodeError:
            continue
    return {}, len(rows) - start


def _enter(header: dict[str, Any], is_array: bool, counts: dict[str, int]) -> str:
    """Path prefix below a header such as ``[a.b]`` or ``[[a.b]]``."""
    path = ""
    node: Any = header
    while isinstance(node, dict) and node:
        key, node = next(iter(node.items()))
        path = join(path, key)
        if isinstance(node, list):
            break
        if path in counts:  # a table inside the last element of an array
            path = join(path, counts[path])
    if is_array:
        counts[path] = counts.get(path, -1) + 1
        path = join(path, counts[path])
    return path


def _paths(tree: Any, path: str) -> Iterator[str]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield join(path, key)
            yield from _paths(value, join(path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield join(path, index)
            yield from _paths(value, join(path, index))
