"""Tables of the documentation come from the records."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench import recording, report
from bench.effects.guest_means import ARMS as ARMS_OF_GUESTS
from bench.effects.means import ARMS, SHAPES
from bench.effects.whole import PAIRS, RUNGS, arm_of
from bench.figures import Figure
from bench.ladder import LADDERS, ladder
from bench.recording import Machine, Record
from bench.report import PAGES_WITH_RECORDS, filled

ROOT = Path(__file__).parents[2]
SLICES_IN_A_GUEST = 8
"""Least of each arm, where an emulated second takes seconds."""


@pytest.mark.parametrize("page", PAGES_WITH_RECORDS)
def test_the_tables_of_a_page_are_those_of_the_records(page: str) -> None:
    text = (ROOT / page).read_text()
    assert "<!-- records: " in text
    assert filled(text) == text, "make docs writes it anew"


@pytest.mark.parametrize("bench", sorted(recording.records()))
def test_a_record_is_one_of_enough_slices_on_a_known_commit(bench: str) -> None:
    record = recording.read(bench)
    assert record.bench == bench
    assert not record.commit.endswith("+"), "measured with changes that are in no commit"
    if record.slices:
        counts = {each["arm"] for each in record.slices}
        least = SLICES_IN_A_GUEST if record.guest else 20
        assert len(record.slices) >= least * len(counts)


def _record(bench: str, *figures: Figure) -> Record:
    machine = Machine(2, "a CPU", True, 4.0, "6.1.0", "v2", "3.11.7")
    load = (0.1, 0.2, 0.3)
    return Record(
        bench, "python -m bench x", "2026-01-02", "0" * 12, machine, load, load, list(figures)
    )


def _pair(ratio: float) -> Record:
    pair = PAIRS["whole"]
    figures = [
        Figure("p99 unmanaged / alone", 4.0, "x", None, True, 3.0, 5.0, True),
        Figure("p99 with the daemon / alone", 1.01, "x", 1.02, True, 0.99, 1.05, True),
    ]
    for arm in map(arm_of, RUNGS):
        figures += [
            Figure(
                f"p99 {arm} / alone", ratio, "x", pair.goal, True, ratio - 0.1, ratio + 0.1, True
            ),
            Figure(f"{pair.units} {arm} / unmanaged", 0.9, "x"),
            Figure(f"node CPU {arm}", 91.4, "%"),
        ]
    for arm in ("alone", "daemon", "unmanaged", *map(arm_of, RUNGS)):
        figures.append(Figure(f"waits for a CPU, {arm}", 12.5, "ms/s"))
        figures += [
            Figure(f"waits behind {w}, {arm}", 3.0, "ms/s") for w in ("own", "BE", "others")
        ]
    return _record("whole", *figures)


def _page(table: str) -> str:
    return f"before\n<!-- records: {table} -->\nold\n<!-- end of records -->\nafter\n"


def test_a_missed_goal_stands_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "records", lambda: {"whole": _pair(1.4)})
    text = filled(_page("services"))
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    row = next(line for line in text.splitlines() if line.startswith("| nginx beside ffmpeg"))
    assert row.count("1.40 [1.30, 1.50] missed") == 3
    assert "4.00 [3.00, 5.00]" in row
    assert "1.01 [0.99, 1.05] undecided" in row
    assert "| redis beside a compiler | not recorded yet |" in text
    assert filled(text) == text
    short = filled(_page("short"))
    assert "**1.40** [1.30, 1.50]" in short and "1.00: missed" in short
    assert "redis" not in short
    assert "3, 3, 3" in filled(_page("waits"))
    assert "`python -m bench x`" in filled(_page("machines"))
    assert "not recorded yet" in filled(_page("demo"))


def test_the_ladder_is_that_of_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, palette in LADDERS.items():
        text = (ROOT / "docs" / "images" / name).read_text()
        assert text == ladder(recording.records(), palette), "make docs draws it anew"
    root = ElementTree.fromstring(ladder({"whole": _pair(3.7)}, LADDERS["ladder-dark.svg"]))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("3.70") == len(RUNGS) and "nginx beside ffmpeg" in texts
    circles = [each.get("class") for each in root.iter("{http://www.w3.org/2000/svg}circle")]
    assert circles.count("missed") == 1 + len(RUNGS)


def test_means_stand_beside_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [Figure("waits for a CPU, alone", 9.0, "ms/s")]
    for arm in ARMS:
        figures += [
            Figure(f"p99 {arm} / alone", 1.2, "x", 1.1, True, 1.1, 1.3, True),
            Figure(f"waits for a CPU, {arm}", 40.0, "ms/s"),
            Figure(f"BE, {arm}", 1.55, "cores"),
        ]
    known = {name: _record(name, *figures) for name in list(SHAPES)[:2]}
    monkeypatch.setattr(report, "records", lambda: known)
    lines = filled(_page("means")).splitlines()
    head, _, alone, *rest = [line for line in lines if line.startswith("|")]
    assert "2 x 4 ms: p99 / alone" in head and "4 x 1 ms: p99 / alone" in head
    assert alone.startswith("| nothing: it is not there | 1 | 9 | - |")
    assert len(rest) == len(ARMS)


def test_kernels_stand_below_each_other_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = [
        Figure(f"p99 {arm} / alone", 1.2, "x", 1.1, True, 1.1, 1.3, True) for arm in ARMS_OF_GUESTS
    ]
    names = ("means-6.12", "means-6.1", "means", "means-short-6.1", "means-6.1-4-cpus")
    monkeypatch.setattr(report, "records", lambda: {n: _record(n, *figures) for n in names})
    rows = [row for row in filled(_page("kernels: p99")).splitlines() if row.startswith("| 6.")]
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| 6.1", "2", "2 x 4 ms"],
        ["| 6.1", "4", "2 x 4 ms"],
        ["| 6.1", "2", "4 x 1 ms"],
        ["| 6.12", "2", "2 x 4 ms"],
    ]
    assert all(row.count("1.20 [1.10, 1.30]") == len(ARMS_OF_GUESTS) for row in rows)


def test_a_table_that_nobody_makes_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        filled(_page("nonsense"))
