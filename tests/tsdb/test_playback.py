"""What a store answered at any moment, asked again of what it left on disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from koordlet.decision.metrics import Aggregate
from koordlet.tsdb import Store
from koordlet.tsdb.playback import Playback

T0 = 1_700_000_040_000  # a multiple of a minute
KIND = "container_cpu_usage"
SHAPE = {"hot_window_s": 60.0, "step_s": 1.0, "coarse_step_s": 60}
HOWS = (Aggregate.LAST, Aggregate.AVG, Aggregate.MAX, Aggregate.P95, Aggregate.COUNT)

Asked = list[tuple[object, ...]]


def named(name: str) -> tuple[tuple[str, str], ...]:
    return (("container_id", name),)


def answers(store: Store, now_ms: int, names: set[str]) -> Asked:
    """What decisions may ask at one moment of objects that are there, windows longer than the hot
    one included."""
    found: Asked = []
    for name in sorted(names):
        series = store.known(KIND, named(name))
        for window_s in (2, 30, 200):
            start = now_ms - window_s * 1000
            last = None if series is None else store.last(series, start, now_ms)
            found.append((name, window_s, last))
            for how in HOWS:
                result = None if series is None else store.aggregate((series,), start, now_ms, how)
                empty = result is None or not result.count
                found.append((name, window_s, how, None if empty else result))
    return found


class Life:
    """A store over some runs of a daemon. ``moments``: at each tick how many rounds there had been
    since the one before, the time of the newest, whether the daemon had been started, the time of
    the tick, who was there, and the answers."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = str(path)
        self.chance = random.Random(seed)
        self.now_ms = T0
        self.moments: list[tuple[int, int, bool, int, set[str], Asked]] = []
        self.names = {"0", "1"}
        self.number = 2
        self.open()

    def open(self) -> None:
        self.store = Store(self.path, **SHAPE)  # type: ignore[arg-type]
        self.rounds = self.store.rounds.appended
        self.is_new = True

    def tick(self, *, measures: bool = True) -> None:
        self.now_ms += self.chance.randrange(900, 1100)
        if measures:
            measured = [n for n in sorted(self.names) if self.chance.random() < 0.8]
            ids = [self.store.series(KIND, named(name)) for name in measured]
            self.store.append(self.now_ms, ids, [self.chance.random() for _ in ids])
        count, newest_ms, _ = self.store.rounds
        asked_ms = self.now_ms + 5
        names = set(self.names)
        moment = (count - self.rounds, newest_ms, self.is_new, asked_ms, names)
        self.moments.append((*moment, answers(self.store, asked_ms, names)))
        self.rounds, self.is_new = count, False

    def churn(self) -> None:
        gone = self.chance.choice(sorted(self.names))
        self.names.discard(gone)
        self.store.release(self.store.series(KIND, named(gone)))
        self.names.add(str(self.number))
        self.number += 1

    def restart(self) -> None:
        self.store.close()
        self.open()

    def check(self, skip: int = 0) -> None:
        playback = Playback(self.path, **SHAPE)  # type: ignore[arg-type]
        for rounds, newest_ms, is_new, asked_ms, names, found in self.moments[skip:]:
            assert playback.advance(rounds, newest_ms, anew=is_new)
            assert answers(playback, asked_ms, names) == found


@pytest.fixture
def live(tmp_path: Path) -> Callable[[int], Life]:
    return lambda seed: Life(tmp_path / "tsdb", seed)


@pytest.mark.parametrize("seed", range(3))
def test_it_answers_as_the_store_did(live: Callable[[int], Life], seed: int) -> None:
    """Objects that come and go, ticks that measure nothing, upkeep, restarts."""
    life = live(seed)
    for number in range(300):
        life.tick(measures=life.chance.random() < 0.9)
        if life.chance.random() < 0.05:
            life.churn()
        if number % 5 == 0:
            life.store.maintain(life.now_ms)
        if life.chance.random() < 0.02:
            life.restart()
    life.store.close()
    life.check()


def test_it_begins_anywhere(live: Callable[[int], Life]) -> None:
    life = live(1)
    for number in range(250):
        life.tick()
        if number % 5 == 0:
            life.store.maintain(life.now_ms)
    life.store.close()
    life.check(skip=201)


@pytest.mark.parametrize("jump_s", [-7200, -30, 7200])
def test_a_clock_that_jumps(live: Callable[[int], Life], jump_s: int) -> None:
    life = live(2)
    for number in range(160):
        life.tick()
        if number == 80:
            life.now_ms += jump_s * 1000
        if number % 5 == 0:
            life.store.maintain(life.now_ms)
    life.store.close()
    life.check()


def test_rounds_that_never_reached_the_disk(live: Callable[[int], Life]) -> None:
    """As after kill -9."""
    life = live(3)
    for _ in range(90):
        life.tick()
        life.store.maintain(life.now_ms)
    playback = Playback(life.path, **SHAPE)  # type: ignore[arg-type]
    found = [playback.advance(rounds, ms, anew=new) for rounds, ms, new, *_ in life.moments]
    lost = found.index(False)
    assert 60 <= lost < 90 and not any(found[lost:])
    *_, asked_ms, names, expected = life.moments[lost - 1]
    assert answers(playback, asked_ms, names) == expected


def test_nothing_is_written(live: Callable[[int], Life]) -> None:
    life = live(4)
    for _ in range(60):
        life.tick()
    life.store.close()
    directory = Path(life.path)
    (directory / "coarse-00000001.kts.tmp").write_bytes(b"of a daemon at work")
    before = {
        each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in directory.iterdir()
    }
    life.check()
    assert before == {
        each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in directory.iterdir()
    }


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    playback = Playback(str(tmp_path / "none"), **SHAPE)  # type: ignore[arg-type]
    assert playback.oldest_ms is None
    assert not playback.advance(1, T0)
    assert not (tmp_path / "none").exists()
