"""docs/dependencies.md names what pyproject.toml asks for, and nothing else."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([\w-]+) \| `([^`]+)` \| (.+) \|$", re.MULTILINE)
REQUIREMENT = re.compile(r"([\w-]+)(\S*)")
COLUMNS = 7


def test_the_table_names_each_dependency_with_its_bound() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = {}
    for each in project["dependencies"]:
        match = REQUIREMENT.fullmatch(each)
        assert match is not None, each
        wanted[match[1]] = match[2]
    rows = ROW.findall((ROOT / "docs" / "dependencies.md").read_text())
    assert {name: bound for name, bound, _ in rows} == wanted
    for name, _, rest in rows:
        cells = rest.split(" | ")
        assert len(cells) == COLUMNS - 2 and all(cells), name
