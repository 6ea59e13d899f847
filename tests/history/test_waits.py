"""Seconds of waiting, out of samples that do not come at regular times."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from koordlet.decision.metrics import CPU_WAIT, IO_WAIT, WaitMetrics
from koordlet.decision.record import PodKind
from koordlet.diagnosis.who import Key, Who
from koordlet.history.disk import DiskSource
from koordlet.history.waits import MOST_COLUMNS, Matrix, Stretch, Waits, stretches, waits
from koordlet.tsdb.store import Store

START = 1_700_000_400.0
Cells = Mapping[tuple[str, str, str], float]
"""Victim, culprit, kind of culprit -> milliseconds a second."""
POD = "pod"
NAMES: Mapping[Key, Who] = {
    (PodKind.POD, "uid-1"): Who(PodKind.POD, "uid-1", "web-0", "shop", "LS"),
    (PodKind.APPLICATION, "backup"): Who(PodKind.APPLICATION, name="backup", qos="BE"),
}


def measured(
    directory: Path,
    rounds: Iterable[tuple[float, Cells]],
    metrics: WaitMetrics = CPU_WAIT,
    *,
    of_pods: bool = True,
    **options: float,
) -> DiskSource:
    """What the collector of waits leaves: in each round, at so many seconds, the cells and the sums
    of all victims."""
    store = Store(str(directory / "tsdb"), coarse_step_s=60, **options)  # type: ignore[arg-type]
    cell, total = (
        (metrics.pod, metrics.pod_total) if of_pods else (metrics.application, metrics.app_total)
    )
    last_ms = 0
    for second, found in rounds:
        last_ms = int((START + second) * 1000)
        sums: dict[str, float] = {}
        for (victim, _, _), value in found.items():
            sums[victim] = sums.get(victim, 0.0) + value
        samples = [
            *((cell, labels, value) for labels, value in found.items()),
            *((total, (victim,), value) for victim, value in sums.items()),
        ]
        ids = [
            store.series(metric.kind, tuple(zip(metric.labels, labels, strict=True)))
            for metric, labels, _ in samples
        ]
        store.append(last_ms, ids, [value for _, _, value in samples])
        store.maintain(last_ms)
    store.flush(last_ms)
    store.close()
    return DiskSource(f"{directory}/tsdb", f"{directory}/decisions")


def found(source: DiskSource, seconds: float, names: Mapping[Key, Who] = NAMES) -> Waits:
    return waits(source, names, START, START + seconds)


def total(found: Waits) -> float:
    (matrix,) = found.matrices
    return sum(value for row in matrix.values for value in row if value is not None)


def _steady(first: int, end: int, step: int, value: float) -> list[tuple[float, Cells]]:
    return [(s, {("uid-1", "uid-2", POD): value}) for s in range(first, end, step)]


@pytest.mark.parametrize(
    ("minutes", "ms_per_s", "seconds"), [(10, 100.0, 60.0), (2, 30.0, 3.6), (60, 100.0, 360.0)]
)
def test_a_steady_wait(tmp_path: Path, minutes: int, ms_per_s: float, seconds: float) -> None:
    source = measured(tmp_path, _steady(0, 60 * minutes + 10, 10, ms_per_s))
    assert total(found(source, 60 * minutes)) == pytest.approx(seconds, rel=1e-3)


def test_ten_bad_seconds_of_an_hour(tmp_path: Path) -> None:
    """Sampled each second, and all the rest each ten: 10 s of 500 ms a second are 5 s."""
    rounds = [
        *_steady(0, 1210, 10, 0.0),
        *_steady(1201, 1211, 1, 500.0),
        *_steady(1220, 3610, 10, 0.0),
    ]
    assert total(found(measured(tmp_path, rounds[:-1]), 3600)) == pytest.approx(5.0, rel=1e-3)


def test_a_first_look_between_two_others(tmp_path: Path) -> None:
    """Three seconds after the one before: it stands for these, and not for ten."""
    rounds = [
        *_steady(0, 110, 10, 0.0),
        *_steady(103, 104, 1, 500.0),
        *_steady(104, 114, 1, 500.0),
        *_steady(120, 310, 10, 0.0),
    ]
    assert total(found(measured(tmp_path, rounds), 300)) == pytest.approx(6.5, rel=1e-3)


def test_a_culprit_whose_series_ends(tmp_path: Path) -> None:
    """Six hours; it stands at 0 for a minute and is not there before and after."""
    nobody: Cells = {("uid-1", "", "self"): 0.0}
    culprit = ("uid-1", "uid-2", POD)
    rounds: list[tuple[float, Cells]] = [(s, nobody) for s in range(0, 10001, 10)]
    rounds += [(s, {**nobody, culprit: 500.0}) for s in range(10001, 10011)]
    rounds += [(s, {**nobody, culprit: 0.0}) for s in range(10020, 10071, 10)]
    rounds += [(s, nobody) for s in range(10080, 21601, 10)]
    seen = found(measured(tmp_path, rounds), 6 * 3600)
    assert total(seen) == pytest.approx(5.0, rel=1e-3)


def test_a_gap_is_no_wait(tmp_path: Path) -> None:
    """koordlet was away for two minutes: the sample after it stands for one interval with some
    slack."""
    rounds = [*_steady(0, 601, 10, 100.0), *_steady(720, 1201, 10, 100.0)]
    assert total(found(measured(tmp_path, rounds), 1200)) == pytest.approx(60 + 49.5, rel=1e-3)


def test_a_collector_that_measures_each_minute(tmp_path: Path) -> None:
    assert total(found(measured(tmp_path, _steady(0, 3601, 60, 100.0)), 3600)) == pytest.approx(
        360, rel=1e-3
    )


def test_only_what_is_within_the_time(tmp_path: Path) -> None:
    source = measured(tmp_path, _steady(-595, 1206, 10, 100.0))
    assert total(found(source, 600)) == pytest.approx(60.0, rel=1e-3)


def test_rounds_that_are_late() -> None:
    """Half a second more or less; no time is counted twice or left out."""
    rounds = {START + s: 1 for s in (-10, 1, 10, 20, 31, 32, 34, 35, 45)}
    seen = list(stretches(rounds, START, START + 40))
    assert [(each.first - START, each.last - START) for each in seen] == [
        (1, 1),
        (10, 20),
        (31, 31),
        (32, 35),
        (45, 45),
    ]
    counts = [sum(each.first <= time <= each.last for time in rounds) for each in seen]
    assert sum(c * s.seconds for c, s in zip(counts, seen, strict=True)) == pytest.approx(40)
    assert list(stretches({START: 2}, START - 5, START)) == [Stretch(START, START, 2.5)]


def test_coarse_history_is_left_out_and_said(tmp_path: Path) -> None:
    options = {"retention_s": 600, "hot_window_s": 60}
    source = measured(tmp_path, _steady(0, 3000, 10, 100.0), **options)
    seen = found(source, 3000)
    assert seen.coarse_until is not None and START < seen.coarse_until < START + 3000
    left_s = START + 3000 - seen.coarse_until
    assert total(seen) == pytest.approx(left_s / 10, abs=1.5)


def test_culprits_by_their_kind(tmp_path: Path) -> None:
    """A part of the system may be called as an application is."""
    cells: Cells = {
        ("uid-1", "backup", "application"): 80.0,
        ("uid-1", "backup", "system"): 70.0,
        ("uid-1", "uid-2", POD): 60.0,
        ("uid-1", "/", "system"): 50.0,
        ("uid-1", "", "self"): 40.0,
        ("uid-1", "", "throttled"): 30.0,
        ("uid-1", "", "older"): 20.0,
        ("uid-1", "", "rest"): 10.0,
        ("uid-1", "\x1b[2J", "system"): 5.0,
    }
    (matrix,) = found(measured(tmp_path, [(0, cells), (10, cells)]), 10).matrices
    assert (matrix.resource, matrix.rows) == ("cpu", ("shop/web-0",))
    assert matrix.columns == (
        "backup",
        "system: backup",
        "uid-2",
        "system: the root cgroup",
        "its own tasks",
        "its own CPU quota",
        "longer ago than is remembered",
        "others",
        "system: \\x1b[2J",
    )
    assert matrix.values[0] == pytest.approx(
        [0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05], rel=1e-3
    )


def test_applications_wait_for_disks(tmp_path: Path) -> None:
    cells: Cells = {("backup", "uid-1", POD): 100.0}
    source = measured(tmp_path, [(0, cells), (10, cells)], IO_WAIT, of_pods=False)
    (matrix,) = found(source, 10).matrices
    assert (matrix.resource, matrix.rows, matrix.columns) == ("io", ("backup",), ("shop/web-0",))
    assert matrix.values == ((pytest.approx(1.0, rel=1e-3),),)


def test_nobody_waited(tmp_path: Path) -> None:
    source = measured(tmp_path, [(s, {("uid-1", "", "self"): 0.0}) for s in (0, 10)])
    assert found(source, 10).matrices == (Matrix("cpu", (), (), ()),)


def test_nothing_was_measured(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "tsdb"))
    store.append(int(START * 1000), [store.series("node_cpu_usage", ())], [1.0])
    store.flush(int(START * 1000))
    store.close()
    assert found(DiskSource(f"{tmp_path}/tsdb", f"{tmp_path}/decisions"), 10) == Waits(())


def test_it_is_bounded(tmp_path: Path) -> None:
    cells: Cells = {
        (f"victim-{row}", f"culprit-{column}", POD): float((row + 1) * (column + 1))
        for row in range(20)
        for column in range(30)
    }
    (matrix,) = found(measured(tmp_path, [(0, cells), (10, cells)]), 10).matrices
    assert len(matrix.rows) == len(matrix.columns) == MOST_COLUMNS
    assert (matrix.rows[0], matrix.rows[-1]) == ("victim-19", "9 others")
    assert (matrix.columns[0], matrix.columns[-1]) == ("culprit-29", "19 others")
    seconds = sum(value for row in matrix.values for value in row if value is not None)
    assert seconds == pytest.approx(210 * 465 / 100, rel=1e-3)
