"""Rotation, retention by time and by bytes, and the coarse history that stays."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb import Store
from koordlet.tsdb.archive import COARSE_RETENTION_FACTOR, MEMORY_BYTES

T0 = 1_700_000_400_000  # a multiple of ten minutes


def fill(store: Store, series: int, first_s: int, end_s: int, seed: int = 1) -> list[list[float]]:
    """Noise that hardly compresses, maintained as the daemon does; returns the rounds."""
    rng = random.Random(seed)
    ids = [store.series("k", (("id", str(n)),)) for n in range(series)]
    rounds = []
    for second in range(first_s, end_s):
        values = [round(rng.random() * 1000) / 8 for _ in ids]
        store.append(T0 + second * 1000, ids, values)
        rounds.append(values)
        if second % 10 == 0:
            store.maintain(T0 + second * 1000)
    store.flush(T0 + end_s * 1000)
    return rounds


def used(directory: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(directory))


def test_segments_turn_over_each_ten_steps(tmp_path: Path) -> None:
    store = Store(str(tmp_path), coarse_step_s=6)
    fill(store, 2, 0, 180)
    assert sorted(os.listdir(tmp_path)) == [f"full-{n:08d}.kts" for n in (1, 2, 3)]
    assert store.status().bytes_on_disk == used(tmp_path)
    reopened = Store(str(tmp_path), coarse_step_s=6)
    fill(reopened, 2, 180, 186)
    assert len(os.listdir(tmp_path)) == 4, "a file from before a restart is never appended to"


def test_old_segments_become_coarse_history(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=60, retention_s=600, coarse_step_s=6)
    rounds = fill(store, 3, 0, 1800)
    for _ in range(3):
        store.maintain(T0 + 1_800_000)
    names = sorted(os.listdir(tmp_path))
    assert "coarse-00000001.kts" in names
    assert "full-00000001.kts" not in names
    (id_,) = store.select("k", {"id": "1"})
    column = [values[1] for values in rounds]

    # One point a step where it is coarse, each second where it is not; none twice.
    points = store.points(id_, T0, T0 + 1_800_000)
    coarse = [time for time in points.times if time < T0 + 1_000_000]
    assert coarse == list(range(T0, T0 + 1_000_000, 6000))
    assert points.times[-600:].tolist() == list(range(T0 + 1_200_000, T0 + 1_800_000, 1000))
    assert points.values[1] == pytest.approx(sum(column[6:12]) / 6, rel=1e-4)

    end = T0 + 1_799_999
    for how, expected, tolerance in (
        (Aggregate.COUNT, 1800, 0),
        (Aggregate.AVG, sum(column) / 1800, 1e-4),
        (Aggregate.MIN, min(column), 1e-4),
        (Aggregate.MAX, max(column), 1e-4),
        (Aggregate.P50, sorted(column)[899], 0.1),
        (Aggregate.P95, sorted(column)[1709], 0.1),
    ):
        result = store.aggregate([id_], T0, end, how)
        assert result is not None
        assert result.value == pytest.approx(expected, rel=tolerance)
        assert result.count == 1800

    again = Store(str(tmp_path), hot_window_s=60, retention_s=600, coarse_step_s=6)
    id_ = again.series("k", (("id", "1"),))
    assert again.points(id_, T0, end) == points
    assert again.status().damage_count == 0


def test_coarse_history_ends_too(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=60, retention_s=120, coarse_step_s=6)
    fill(store, 1, 0, 600)
    store.maintain(T0 + 660_000)
    assert any(name.startswith("coarse") for name in os.listdir(tmp_path))
    for _ in range(20):  # one segment a call
        store.maintain(T0 + (600 + COARSE_RETENTION_FACTOR * 120) * 1000)
    assert os.listdir(tmp_path) == []
    assert store.status().segments == 0


def test_bytes_on_disk_are_capped_at_every_moment(tmp_path: Path) -> None:
    limit = 200_000
    store = Store(str(tmp_path), hot_window_s=60, max_bytes=limit, coarse_step_s=6)
    for part in range(8):
        fill(store, 100, part * 200, part * 200 + 200, seed=part)
        assert used(tmp_path) <= limit
    status = store.status()
    assert used(tmp_path) == status.bytes_on_disk > limit // 2
    assert status.lost_rounds == 0
    assert status.oldest_ms is not None
    assert status.oldest_ms < T0 + 1_400_000
    kinds = {name.split("-")[0] for name in os.listdir(tmp_path)}
    assert kinds == {"full", "coarse"}


def test_a_frame_beyond_the_cap_is_lost_and_counted(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=60, max_bytes=4000)
    fill(store, 200, 0, 60)
    status = store.status()
    assert used(tmp_path) <= 4000
    assert status.lost_rounds > 0
    assert status.mode == "disk"


def test_memory_alone_is_capped() -> None:
    store = Store(None, hot_window_s=60, coarse_step_s=20)
    hot = store.status().bytes_in_memory
    fill(store, 1500, 0, 700)
    status = store.status()
    assert status.mode == "memory"
    assert status.bytes_on_disk == 0
    columns = 1536 * 68 * 4
    assert 0 < status.bytes_in_memory - hot - columns <= MEMORY_BYTES
    assert status.oldest_ms is not None
    assert status.oldest_ms < T0 + 500_000, "segments in memory reach behind the hot window"


def test_a_history_left_half_done_by_a_kill_is_done_again(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=60, coarse_step_s=6)
    fill(store, 1, 0, 120)
    whole = (tmp_path / "full-00000001.kts").read_bytes()
    (tmp_path / "coarse-00000001.kts").write_bytes(whole[:100])
    (tmp_path / "coarse-00000002.kts.tmp").write_bytes(whole[:10])
    (tmp_path / "notes.txt").write_text("not ours")
    again = Store(str(tmp_path), hot_window_s=60, coarse_step_s=6)
    assert sorted(os.listdir(tmp_path)) == [
        "full-00000001.kts",
        "full-00000002.kts",
        "notes.txt",
    ]
    id_ = again.series("k", (("id", "0"),))
    assert len(again.points(id_, T0, T0 + 200_000).times) == 120


def test_a_stop_does_not_wait_for_history(tmp_path: Path) -> None:
    store = Store(str(tmp_path), hot_window_s=60, retention_s=600, coarse_step_s=6)
    fill(store, 3, 0, 660)
    before = sorted(os.listdir(tmp_path))
    store.close()
    store.maintain(T0 + 10_000_000)
    assert sorted(os.listdir(tmp_path)) == before, "what is too old waits for the next start"
    again = Store(str(tmp_path), hot_window_s=60, retention_s=600, coarse_step_s=6)
    again.maintain(T0 + 10_000_000)
    assert sorted(os.listdir(tmp_path)) != before
