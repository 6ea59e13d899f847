"""docs/security.md states limits that hold and tests that exist.

A row of a limit has four cells: what it bounds, file and names of its constants, their values in
the same order, the tests that play it ("the same": those of the row above).
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/security.md").read_text()

ROW = re.compile(r"^\| .+ \| `([\w/]+)\.py`((?: `\w+`)+) \| (.+) \| (.+) \|$", re.MULTILINE)
CONSTANT = re.compile(r"`((?!tests/)[\w/]+)\.py`((?: `\w+`)+)")
NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: (KiB|MiB))?")
UNIT = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20}
TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
DIRECTIVE = re.compile(r"`([A-Z]\w+=[^`]+)`")

LIMITS = ROW.findall(PAGE)


def _stated(cell: str) -> list[float]:
    return [float(number.replace(",", "")) * UNIT[unit] for number, unit in NUMBER.findall(cell)]


@pytest.mark.parametrize("limit", LIMITS, ids=[file + names for file, names, _, _ in LIMITS])
def test_a_limit_has_the_value_and_a_test(limit: tuple[str, str, str, str]) -> None:
    file, names, values, tests = limit
    package = "" if file.startswith("koord_scheduler/") else "koordlet."
    module = importlib.import_module(f"{package}{file.replace('/', '.')}")
    actual: list[float] = []
    for name in re.findall(r"\w+", names):
        value = getattr(module, name)
        actual += value if isinstance(value, tuple) else [value]
    assert _stated(values) == actual
    assert TEST.search(tests) or tests == "the same"


def test_every_constant_stands_in_a_row() -> None:
    assert CONSTANT.findall(PAGE) == [(file, names) for file, names, _, _ in LIMITS]


@pytest.mark.parametrize(("file", "name"), sorted(set(TEST.findall(PAGE))))
def test_a_test_exists(file: str, name: str) -> None:
    text = (ROOT / file).read_text()
    assert not name or re.search(rf"^(async )?def {name}\(", text, re.MULTILINE)


def test_the_units_say_what_the_page_says() -> None:
    lines = {line for unit in (ROOT / "systemd").iterdir() for line in unit.read_text().split("\n")}
    assert set(DIRECTIVE.findall(PAGE)) <= lines
