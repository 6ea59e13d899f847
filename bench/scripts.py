"""Figures of the benches that are scripts with a table of their own, read from what they print."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable

from bench.figures import Figure

_COLLECT = (
    (r"ratio, whole round +([\d.]+) x", "open() and read() / a round every second", "x", 4, False),
    (r"ratio, reading alone +([\d.]+) x", "the same, reading alone", "x", None, False),
    (r"usual intervals: ([\d.]+) %", "all collection at the usual intervals, of a core", "%", None,
     True),
    (r"us, ([\d.]+) % of a core at", "looking for alarms, of a core", "%", None, True),
)  # fmt: skip
_ROW = re.compile(r"(?P<name>\S.*?) {2,}(?P<value>[\d.]+) (?P<unit>\S+)(?: +(?P<goal>[\d.]+) \S+)?")


def collect(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    """The first match of each pattern: the round of every second comes first."""
    text = "\n".join(_output("bench.collect", smoke, say))
    found = []
    for pattern, name, unit, goal, at_most in _COLLECT:
        match = re.search(pattern, text)
        if match is not None:
            found.append(Figure(name, float(match[1]), unit, goal, at_most))
    return found


def tsdb(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    """The rows with one number; the script puts a goal at the end of some."""
    rows = map(row_of, _output("bench.tsdb", smoke, say))
    return [figure for figure in rows if figure is not None]


def row_of(line: str) -> Figure | None:
    """Of a line with a name, one number and perhaps a goal."""
    row = _ROW.fullmatch(line.strip())
    if row is None:
        return None
    goal = float(row["goal"]) if row["goal"] else None
    return Figure(row["name"], float(row["value"]), row["unit"], goal)


def _output(module: str, smoke: bool, say: Callable[[str], None]) -> Iterable[str]:
    """Its lines, passed on as they come. Raises CalledProcessError when it fails."""
    command = [sys.executable, "-m", module, *(["--smoke"] if smoke else [])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            lines = []
            for line in child.stdout:
                say(line.rstrip())
                lines.append(line.rstrip())
        except BaseException:
            child.terminate()
            raise
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return lines
