"""Write what comes from declarations and pages anew: `make docs`. An argument names another root
to write to."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from koordlet.config.reference import reference
from koordlet.config.sample import sample

ROOT = Path(__file__).parent.parent
_HEAD = """\
# Concepts

<!-- Written by `make docs` from the first lines of the pages. -->

One page for each strategy, hook and part: what it does, its arguments with defaults, what it \
needs of the kernel, how to see it work.

"""


def concepts(pages: Path) -> str:
    """The index: each page with its title and its first sentence."""
    rows = [_row(page) for page in sorted(pages.glob("*.md")) if page.name != "README.md"]
    return _HEAD + "".join(rows)


def _row(page: Path) -> str:
    text = re.sub(r"<!--.*?-->\n*", "", page.read_text(), flags=re.DOTALL)
    title, _, rest = text.removeprefix("# ").partition("\n")
    paragraph = rest.strip().partition("\n\n")[0].replace("\n", " ")
    sentence = re.split(r"(?<=[.?])\s", paragraph)[0]
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence)
    return f"- [{title}]({page.name}). {plain}\n"


def main(root: Path) -> int:
    (root / "koordlet" / "config" / "koordlet.toml").write_text(sample())
    (root / "docs" / "configuration.md").write_text(reference())
    index = root / "docs" / "concepts"
    (index / "README.md").write_text(concepts(index))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
