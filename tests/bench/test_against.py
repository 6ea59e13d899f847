"""This tree beside that of a commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench import against
from bench.figures import Figure

ROOT = Path(__file__).parents[2]
in_git = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this tree is no git checkout")


def figures(*values: float, at_most: bool = True) -> list[Figure]:
    return [Figure("time", value, "ms", at_most=at_most) for value in values]


@pytest.mark.parametrize(
    ("before", "now", "at_most", "ratio", "is_worse"),
    [
        ((10, 30, 20), (20, 20, 26), True, 1.0, False),
        ((10, 10, 10), (10.4, 10.4, 99), True, 1.04, False),
        ((10, 10, 10), (10.6, 11, 10), True, 1.06, True),
        ((10, 10, 10), (9, 9, 9), False, 0.9, True),
        ((10, 10, 10), (9, 9, 9), True, 0.9, False),
        ((0, 0, 0), (0, 0, 0), True, None, False),
        ((0, 0, 0), (1, 1, 1), True, None, True),
    ],
)
def test_medians_are_compared(before, now, at_most, ratio, is_worse) -> None:
    found = against.compare("b", figures(*before, at_most=at_most), figures(*now, at_most=at_most))
    assert found.ratio == (None if ratio is None else pytest.approx(ratio))
    assert found.is_worse is is_worse
    assert ("worse" in against.table([found])) is is_worse


def test_the_trees_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def one(tree: Path, name: str, sizes: list[str]) -> list[Figure]:
        seen.append("now" if tree == ROOT else "before")
        return [Figure("time", 2.0 if tree == ROOT else 1.0, "ms")]

    monkeypatch.setattr(against, "figures", one)
    (row,) = against.run("HEAD", ["tsdb"], (), 2, lambda text: None)
    assert seen == ["before", "now", "now", "before"]
    assert (row.bench, row.ratio) == ("tsdb", 2.0)


@in_git
def test_the_tree_of_a_commit_is_there_and_goes() -> None:
    with against.tree_of("HEAD") as tree:
        assert (tree / "koordlet" / "__init__.py").exists()
        assert (tree / "koordlet_fakefs" / "__init__.py").exists()
    assert not tree.exists()
    trees = subprocess.run(
        ["git", "worktree", "list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert str(tree) not in trees.stdout


@in_git
def test_no_such_commit() -> None:
    with (
        pytest.raises(against.BrokenError, match="git worktree add"),
        against.tree_of("no-such-commit"),
    ):
        raise AssertionError("not reached")
