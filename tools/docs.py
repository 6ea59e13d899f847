"""Write what comes from declarations and pages anew: `make docs`. An argument names another root
to write to."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from koordlet.config.reference import reference
from koordlet.config.sample import sample
from koordlet.decision.part import Part
from koordlet.hooks import HOOKS
from koordlet.qos import STRATEGIES

ROOT = Path(__file__).parent.parent
_HEAD = """\
# Concepts

<!-- Written by `make docs` from the first lines of the pages. -->

One page for each strategy, hook and part: what it does, its arguments and their defaults, what \
it needs from the kernel, and how to see it work.

| Page | About |
|---|---|
"""


_WRITES = """
## What each part may write

A value that a part wants for a file outside its row is a defect of that part: koordlet does not \
write it, and `koordlet status` shows the fault. The files of each resource on v1 and v2 are in \
`koordlet/kernel/cgroup/table.py`.

| Part | Kind | Resources |
|---|---|---|
"""


def concepts(pages: Path) -> str:
    """The index: each page with its title and its first sentence, and what parts write."""
    rows = [_row(page) for page in sorted(pages.glob("*.md")) if page.name != "README.md"]
    kinds: dict[str, str] = dict.fromkeys(STRATEGIES, "strategy") | dict.fromkeys(HOOKS, "hook")
    parts: list[Part[Any]] = [*STRATEGIES.values(), *HOOKS.values()]
    writers = [
        f"| `{part.name}` | {kinds[part.name]} | {', '.join(f'`{each}`' for each in part.writes)} "
        "|\n"
        for part in parts
        if part.writes
    ]
    return "".join((_HEAD, *rows, _WRITES, *writers))


def _row(page: Path) -> str:
    """From the page's comment ``<!-- index: ... -->``, else from its first sentence."""
    text = page.read_text()
    about = re.search(r"<!-- index: (.*?) -->\n", text)
    text = re.sub(r"<!--.*?-->\n*", "", text, flags=re.DOTALL)
    paragraph = text.partition("\n")[2].strip().partition("\n\n")[0].replace("\n", " ")
    sentence = re.split(r"(?<=[.?])\s", paragraph)[0].rstrip(".")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence)
    return f"| [{page.name}]({page.name}) | {about[1] if about else plain} |\n"


def main(root: Path) -> int:
    (root / "koordlet" / "config" / "koordlet.toml").write_text(sample())
    (root / "docs" / "configuration.md").write_text(reference())
    index = root / "docs" / "concepts"
    (index / "README.md").write_text(concepts(index))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
