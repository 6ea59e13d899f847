"""docs/dependencies.md names what pyproject.toml asks for, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([\w-]+) \| `([^`]+)` \| (.+) \|$", re.MULTILINE)
REQUIREMENT = re.compile(r"([\w-]+)(\S*)")
COLUMNS = 7


DOCUMENT = (ROOT / "docs" / "dependencies.md").read_text()
ALWAYS, _, REST = DOCUMENT.partition("## Of extras")
EXTRAS = REST.partition("\n## ")[0]
FOR_DEVELOPERS = {"test", "lint", "dev"}


def _bounds(requirements: list[str]) -> dict[str, str]:
    found = {}
    for each in requirements:
        match = REQUIREMENT.fullmatch(each)
        assert match is not None, each
        found[match[1]] = match[2]
    return found


def test_the_table_names_each_dependency_with_its_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows = ROW.findall(ALWAYS)
    assert {name: bound for name, bound, _ in rows} == _bounds(project["dependencies"])
    for name, _, rest in rows:
        cells = rest.split(" | ")
        assert len(cells) == COLUMNS - 2 and all(cells), name


def test_so_does_that_of_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {
        (name, bound, extra)
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in FOR_DEVELOPERS
        for name, bound in _bounds(requirements).items()
    }
    rows = ROW.findall(EXTRAS)
    assert {(name, bound, rest.split(" | ")[0]) for name, bound, rest in rows} == wanted
    for name, _, rest in rows:
        cells = rest.split(" | ")
        assert len(cells) == COLUMNS - 1 and all(cells), name
