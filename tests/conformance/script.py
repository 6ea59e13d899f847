"""How scripts are written, and values that many files are tried with.

Each line of a script is one step: ``op path [= data]``; what follows ``#`` is for people.
"""

from __future__ import annotations

from typing import get_args

from tests.conformance.runner import Op, Script, Step

_OPS = get_args(Op)


def _steps(text: str) -> tuple[Step, ...]:
    steps = []
    for line in text.strip().splitlines():
        words, _, data = line.split("#")[0].partition("=")
        op, path = words.split()
        assert op in _OPS, f"{line!r}: no operation {op!r}"
        data = data.strip().encode().decode("unicode_escape")
        steps.append(Step(op, path, "" if data == "''" else data))  # type: ignore[arg-type]
    return tuple(steps)


def script(name: str, needs: str, text: str) -> Script:
    return Script(name, tuple(needs.split()), _steps(text))


def each(name: str, place: str, file: str, values: list[str], read: str = "") -> Script:
    """Write each value to one file of a fresh group, and read it (or ``read``) back."""
    steps = [Step("mkdir", f"{{{place}}}/a")]
    for value in values:
        steps.append(Step("write", f"{{{place}}}/a/{file}", value))
        steps.append(Step("read", f"{{{place}}}/a/{read or file}"))
    steps.append(Step("rmdir", f"{{{place}}}/a"))
    return Script(name, (place,), tuple(steps))


NUMBERS = [
    "1", "2", "0", "-1", "abc", "", "12x", " 100 ", "100\n", "100\n\n", "\n", "0x10", "010",
    "99999999999999999999", "1 2", "+5", "18446744073709551615", "100\0 5", "0x", "-0",
    "1" * 4096, "1" * 4097,
]  # fmt: skip
CPU_LISTS = [
    "0", "0-1", "1", "2", "0-2", "abc", "1-0", "0,1", "0,,1", " 0", "0 1", "0-1,", "5000", "0-",
    "-1", "0-1:1/2", "0-1:2/2", "0-1:1/0", "0-1:3/2", "all", "N", "0-N", "0\0", "8191",
    "99999999999999", "", "0\n1", "\n",
]  # fmt: skip
SIZES = [
    "4096", "5000", "1", "0", "-1", "-2", "max", "1M", "1m", "2G", "10k", "1T",
    "9223372036854775807", "18446744073709551615", "99999999999999999999999", "abc", "",
    "1x", "1.5", "1048576\n", "0x1000", "1 M", "\n", "k",
]  # fmt: skip
LIMIT_LINES = [
    "{disk} 1000", "{disk} 0", "{disk} -1", "{disk}", "999:0 100", "abc", "{disk} max",
    "{disk} 1048576 5", "{disk} ", "{disk}\n", "", "{disk2} 55",
    "{disk} 2000\n{disk2} 5", "  {disk}   77 ",
    "{disk} 18446744073709551615", "{disk} 4294967296", "{disk} 4294967295",
]  # fmt: skip
