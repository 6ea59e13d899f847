"""The recipes of docs/recipes, followed to the letter in a copy of the tree."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FENCE = re.compile(r"^```(\w+)\n(?:# |<!-- )(\S+)(?: -->)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)

# What each looks like when it works: a daemon on the fake kernel, with the example's options set.
SEEN = {
    "collector": """
world = World(tmp, "[collectors.headroom]\\ninterval_seconds = 2\\n")
world.start()
world.run(6)
(series,) = world.views.query("node_memory_headroom", {}, 60, "count")().series
assert 2 <= series.value <= 4, series
assert "headroom" in {each.name for each in world.views.status().collectors}
""",
    "strategy": """
body = APPLICATIONS + "[strategies.be-shares]\\nshares = 500\\n"
world = World(tmp, body)
world.application("shop", 1.0)
world.application("batch", 1.0)
world.start()
world.run(2)
assert world.value("batch", Resource.CPU_SHARES) == 500
assert world.value("shop", Resource.CPU_SHARES) == 1024
(row,) = world.views.strategies("be-shares")().strategies
assert (row.state, row.settings) == ("active", 1), row
assert row.arguments[1].value == "500", row.arguments
world.reload(body.replace("500", "300"))
world.run(2)
assert world.value("batch", Resource.CPU_SHARES) == 300
world.reload(APPLICATIONS + "[strategies.be-shares]\\nenable = false\\n")
world.run(2)
assert world.value("batch", Resource.CPU_SHARES) == 1024
""",
    "hook": """
body = APPLICATIONS.replace('qos = "LS"', 'qos = "LS"\\ncpu_request = 2', 1)
world = World(tmp, body + "[hooks.request-shares]\\nshares_per_cpu = 500\\n")
world.application("shop", 1.0)
world.application("batch", 1.0)
world.start()
world.run(2)
assert world.value("shop", Resource.CPU_SHARES) == 1000
assert world.value("batch", Resource.CPU_SHARES) == 1024
assert "request-shares" in {each.name for each in world.views.hooks("shop").hooks}
""",
}
SCRIPT = """
import sys
from pathlib import Path
from koordlet.decision.resource import Resource
from tests.daemon.world import APPLICATIONS, World

tmp = Path(sys.argv[1])
{}
world.stop()
"""


def blocks(recipe: str) -> list[tuple[str, str, str]]:
    """(language, file, text) of each piece."""
    return FENCE.findall((ROOT / "docs" / "recipes" / f"{recipe}.md").read_text())


def add_lines(file: Path, diff: str) -> int:
    """Insert the lines with ``+`` behind those before them; how many these were."""
    rows = diff.splitlines()
    added = [row[1:] for row in rows if row.startswith("+")]
    around = "\n".join(row[1:] for row in rows if not row.startswith("+"))
    text = file.read_text()
    assert text.count(around) == 1, f"{file}: {around!r} must stand there once"
    file.write_text(text.replace(around, "\n".join(row[1:] for row in rows)))
    return len(added)


@pytest.mark.parametrize("recipe", ["collector", "strategy", "hook"])
def test_the_recipe_ends_in_a_part_that_works(recipe: str, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", ".venv", ".git", "golden")
    for name in ("koordlet", "tests", "tools", "docs", "pyproject.toml"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=ignored)
        else:
            shutil.copy(source, copy / name)
    (copy / "koordlet_fakefs").symlink_to(copy / "tests" / "fakefs")
    new, lines = [], 0
    for language, name, text in blocks(recipe):
        file = copy / name
        if language == "diff":
            lines += add_lines(file, text)
        else:
            assert not file.exists(), f"{name} is there already"
            file.write_text(text)
            new.append(name.split("/")[0])
    assert sorted(new) == ["docs", "koordlet", "tests"]
    assert lines <= 1

    def run(*command: str) -> None:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=copy,
            env={"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    (test,) = (name for _, name, _ in blocks(recipe) if name.startswith("tests/"))
    run("-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    machine = tmp_path / "machine"
    machine.mkdir()
    run("-c", SCRIPT.format(SEEN[recipe]), str(machine))
    run("tools/docs.py", str(copy))
    part = {"collector": "headroom", "strategy": "be-shares", "hook": "request-shares"}[recipe]
    for page in ("docs/configuration.md", "docs/concepts/README.md"):
        assert part in (copy / page).read_text(), f"{page} does not name the new part"
