"""How answers are printed: aligned text for people, JSON and YAML with stable keys for scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

NOTHING = "-"
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def emit(value: object, form: str, table: Callable[[], Iterable[str]]) -> None:
    """``form`` is table, json or yaml; ``table`` makes the lines for people."""
    if form == "table":
        for line in table():
            print(line)
        return
    tree: Any = msgspec.to_builtins(value)
    if form == "json":
        print(msgspec.json.format(msgspec.json.encode(tree), indent=2).decode())
        return
    import yaml

    print(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=100), end="")


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Aligned columns, two spaces between; those whose header begins with ``>`` are aligned right.
    The last one is as long as it likes."""
    right = [name.startswith(">") for name in header]
    names = [name.removeprefix(">") for name in header]
    table = [names, *([clean(cell) or NOTHING for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if by_right else cell.ljust(width)
            for cell, width, by_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in table
    ]


def clean(text: str) -> str:
    """Names come from users: what could steer the terminal is shown escaped."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")


def cores(milli: int | None) -> str:
    return NOTHING if milli is None else f"{milli / 1000:.2f}"


def size(amount: float | None) -> str:
    if amount is None:
        return NOTHING
    unit = 0
    while abs(amount) >= 1024 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    return f"{amount:.0f} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def share(part: int | None, whole: int) -> str:
    return NOTHING if part is None or whole <= 0 else f"{part / whole * 100:.0f} %"


def span(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    for unit_s, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * unit_s:
            return f"{seconds / unit_s:.0f}{name}"
    return f"{seconds:.0f}s"


def amount(name: str, value: int | None) -> str:
    """Of a resource, in the unit that people read."""
    if value is None:
        return NOTHING
    if name.endswith("cpu"):
        return cores(value)
    return size(value) if name.endswith("memory") else str(value)
