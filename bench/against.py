"""``python -m bench --against COMMIT NAME ...``: this tree and that of a commit, in alternation.

Machines differ from hour to hour by more than most changes do, so a figure says something only
beside the same figure of the other tree from the same minutes. Each round runs the bench in both
trees, the one that goes first taking turns; medians of the rounds are compared.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.figures import Figure, number

ROUNDS = 3
WORSE_BY = 0.05
ROOT = Path(__file__).parent.parent


class Compared(msgspec.Struct, frozen=True):
    """``before`` and ``now``: medians of the rounds."""

    bench: str
    name: str
    unit: str
    before: float
    now: float
    at_most: bool

    @property
    def ratio(self) -> float | None:
        """None where there was nothing to divide by."""
        return self.now / self.before if self.before else None

    @property
    def is_worse(self) -> bool:
        if self.ratio is None:
            return self.at_most and self.now > 0
        return self.ratio > 1 + WORSE_BY if self.at_most else self.ratio < 1 - WORSE_BY


class BrokenError(Exception):
    """A bench did not run in one of the trees."""


def run(
    commit: str, names: Sequence[str], sizes: Sequence[str], rounds: int, say: Callable[[str], None]
) -> list[Compared]:
    """``sizes``: arguments for the benches. Raises BrokenError."""
    found: dict[tuple[str, str], dict[str, list[Figure]]] = defaultdict(lambda: defaultdict(list))
    with tree_of(commit) as other:
        trees = {"before": other, "now": ROOT}
        for turn in range(rounds):
            for name in names:
                for side in sorted(trees, reverse=bool(turn % 2)):
                    say(f"{name}: round {turn + 1} of {rounds}, {side}")
                    for figure in figures(trees[side], name, sizes):
                        found[name, figure.name][side].append(figure)
    return [
        compare(bench, sides["before"], sides["now"])
        for (bench, _), sides in found.items()
        if sides["before"] and sides["now"]
    ]


def compare(bench: str, before: Sequence[Figure], now: Sequence[Figure]) -> Compared:
    last = now[-1]
    return Compared(
        bench,
        last.name,
        last.unit,
        statistics.median(figure.value for figure in before),
        statistics.median(figure.value for figure in now),
        last.at_most,
    )


def figures(tree: Path, name: str, sizes: Sequence[str]) -> list[Figure]:
    """One run of a bench with the code of ``tree``. Raises BrokenError."""
    command = [sys.executable, "-m", "bench", name, "--json", *sizes]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(command, cwd=tree, env=environment, stdout=subprocess.PIPE) as child:
        try:
            output, _ = child.communicate()
        except BaseException:
            child.terminate()
            raise
    if child.returncode:
        raise BrokenError(f"bench {name} failed in {tree} with exit code {child.returncode}")
    return msgspec.json.decode(output, type=list[Figure])


@contextmanager
def tree_of(commit: str) -> Iterator[Path]:
    """A working tree of the commit, removed afterwards. Raises BrokenError."""
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-tree-") as directory:
        tree = Path(directory) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            # As the package is installed (pyproject.toml, package-dir).
            (tree / "koordlet_fakefs").symlink_to(tree / "tests" / "fakefs")
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _git(*arguments: str) -> None:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BrokenError(f"git {' '.join(arguments)}: {done.stderr.strip()}")


def table(rows: Sequence[Compared]) -> str:
    cells = [("bench", "figure", "before", "now", "now / before", "")]
    for row in rows:
        before, now = (f"{number(value)} {row.unit}" for value in (row.before, row.now))
        ratio = "" if row.ratio is None else f"{row.ratio:.2f} x"
        verdict = f"worse by more than {WORSE_BY:.0%}" if row.is_worse else ""
        cells.append((row.bench, row.name, before, now, ratio, verdict))
    widths = [max(len(row[column]) for row in cells) for column in range(6)]
    pads = (str.ljust, str.ljust, str.rjust, str.rjust, str.rjust, str.ljust)
    return "\n".join(
        "  ".join(
            pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)
        ).rstrip()
        for row in cells
    )
