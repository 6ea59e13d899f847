"""Recorded turns, each with the snapshot that was taken then.

Metrics come from the store as it was then, values in force from what the log has told.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from koordlet.decision.snapshot import Node, Snapshot, Topology, Wake
from koordlet.drawing.clock import date
from koordlet.inputs.frame import DamagedError
from koordlet.inputs.model import Begin, Configured, Minute, Owned, StoreShape
from koordlet.inputs.reader import Heard, LogFile, frame_of, log_files, minutes
from koordlet.replay.recalled import Recalled
from koordlet.state.snapshot import TsdbView
from koordlet.tsdb.files import Files
from koordlet.tsdb.playback import Playback

_NO_NODE = Node("", Topology(()), 0, 0)


@dataclass(frozen=True)
class Turn:
    """``digests``: of the decisions that were made, by strategy and hook. ``shown``, ``paused``: as
    in ``inputs.model.Changes``. ``memories``: of the strategies before it, where the log has them;
    ``begin``: where a file begins. ``has_samples``: False where the newest round that the decisions
    saw is not in the store; ``is_partial``: it has more samples now than then. ``is_asked``: False
    for one before those that were asked for, which only leads there."""

    snapshot: Snapshot
    recalled: Recalled
    digests: Mapping[str, int]
    strategies: tuple[Configured, ...]
    hooks: tuple[Configured, ...]
    shown: tuple[str, ...]
    paused: tuple[str, ...]
    memories: Mapping[str, bytes] | None
    begin: Begin | None
    has_samples: bool
    is_partial: bool
    is_asked: bool


_PAUSE_S = 10.0
"""Turns may be so far apart on a node that is very busy."""
_NOT_YET_WRITTEN_S = 120.0
"""A daemon that runs writes a minute when it is over."""


def _untold(time: float) -> None:
    """Without a terminal."""


class Trace:
    """``gaps``: what is missing of the turns so far, a sentence each. ``outside``: the same of the
    time before and after the log, of which it is not known whether there was anything."""

    def __init__(
        self,
        inputs: Files,
        where: str,
        store_path: str,
        progress: Callable[[float], None] = _untold,
    ) -> None:
        """``where``: the directory of the log, for messages. ``progress``: hears the unix time of
        each minute when it is begun."""
        self._progress = progress
        self._inputs = inputs
        self._where = where
        self._store_path = store_path
        self._playback: Playback | None = None
        self._shape: StoreShape | None = None
        self.version = ""
        """Of the koordlet that made the decisions of the last turn."""
        self.gaps: list[str] = []
        self.outside: list[str] = []

    @property
    def oldest_sample_s(self) -> float | None:
        """Unix time of the first sample at full resolution."""
        oldest_ms = self._playback.oldest_ms if self._playback is not None else None
        return None if oldest_ms is None else oldest_ms / 1000

    def extent(self) -> tuple[float, float] | None:
        """Unix time of the first and of the last recorded turn; None: nothing is recorded. Raises
        OSError."""
        frames = [each for file in log_files(self._inputs, self._where) for each in file.frames]
        if not frames:
            return None
        return min(f.first_ms for f in frames) / 1000, max(f.last_ms for f in frames) / 1000

    def heard(self, last: float) -> Heard:
        """What the log had told at this unix time. Raises OSError."""
        heard = Heard()
        for file in reversed(log_files(self._inputs, self._where)):
            if not file.frames or file.frames[0].first_ms > 1000 * last:
                continue
            with suppress(DamagedError, IndexError, KeyError, ValueError, FileNotFoundError):
                for frame, minute in minutes(self._inputs, file):
                    if frame.first_ms > 1000 * last:
                        break
                    for turn in sorted(minute.changes):
                        heard.hear(minute.changes[turn])
            break
        return heard

    def turns(self, first: float, last: float) -> Iterator[Turn]:
        """Those from ``first`` to ``last`` (unix time), both included, after some that lead there.
        Raises OSError where the log cannot be read at all."""
        files = log_files(self._inputs, self._where)
        wanted = [
            (place, number)
            for place, file in enumerate(files)
            for number, frame in enumerate(file.frames)
            if frame.last_ms + 1 > 1000 * first and frame.first_ms <= 1000 * last
        ]
        if not wanted:
            return
        self._note_what_is_missing(files, first, last)
        (place, number), end = wanted[0], wanted[-1]
        while not files[place].frames[number].has_memories:
            number -= 1  # the first frame of a file has them
        for at in range(place, end[0] + 1):
            stop = end[1] if at == end[0] else len(files[at].frames)
            try:
                yield from self._of_file(files[at], number if at == place else 0, stop, first, last)
            except DamagedError as error:
                self.gaps.append(f"{error}; what follows in this file cannot be read")
            except (IndexError, KeyError, ValueError) as error:
                self.gaps.append(f"{files[at].path}: it contradicts itself: {error!r}")
            except FileNotFoundError:
                self.gaps.append(f"{files[at].path}: it was deleted while it was read")

    def _note_what_is_missing(self, files: Sequence[LogFile], first: float, last: float) -> None:
        """Turns follow each other until koordlet is started anew, in a file and from one to the
        next; where they do not, some are lost."""
        for before, after in pairwise(file for file in files if file.frames):
            since, until = before.frames[-1].last_ms / 1000, after.frames[0].first_ms / 1000
            if since <= last and until >= first and self._is_hole(before, after):
                self.gaps.append(
                    f"nothing is recorded from {date(since)} to {date(until)}, and koordlet was "
                    "not started in between: frames were lost, or it stood still"
                )
        frames = [each for file in files for each in file.frames]
        begins, ends = frames[0].first_ms / 1000, frames[-1].last_ms / 1000
        if begins > first and not frames[0].is_start:
            self.gaps.append(f"what was recorded before {date(begins)} is no longer there")
        elif begins > first:
            self.outside.append(f"the log begins at {date(begins)}")
        if ends + _NOT_YET_WRITTEN_S < last:
            self.outside.append(f"the log ends at {date(ends)}")

    def _is_hole(self, before: LogFile, after: LogFile) -> bool:
        """By the monotonic clock: the other one may have been set."""
        if after.frames[0].is_start:
            return False
        try:
            ended, begun = (
                _floats(frame_of(self._inputs, file, number).now)
                for file, number in ((before, -1), (after, 0))
            )
        except (DamagedError, IndexError, FileNotFoundError):
            return False  # whoever reads it says so
        between_s = (ended[-1] - ended[0]) / max(len(ended) - 1, 1)
        return begun[0] - ended[-1] > max(_PAUSE_S, 3 * between_s)

    def _of_file(
        self, file: LogFile, start: int, stop: int, first: float, last: float
    ) -> Iterator[Turn]:
        heard = Heard()
        owned: tuple[Owned, ...] = ()
        for number, (frame, minute) in enumerate(minutes(self._inputs, file)):
            if number > stop:
                return
            if minute.begin is not None:
                owned = minute.begin.owned
                self.version = minute.begin.version
                self._open_store(minute.begin.store)
            if number < start:
                for turn in sorted(minute.changes):
                    heard.hear(minute.changes[turn])
                continue
            self._progress(frame.first_ms / 1000)
            yield from self._of_minute(minute, heard, owned, first, last)

    def _open_store(self, shape: StoreShape) -> None:
        if shape != self._shape:
            self._shape = shape
            self._playback = Playback(
                self._store_path,
                hot_window_s=shape.hot_window_s,
                step_s=shape.step_s,
                coarse_step_s=shape.coarse_step_s,
            )

    def _of_minute(
        self, minute: Minute, heard: Heard, owned: Sequence[Owned], first: float, last: float
    ) -> Iterator[Turn]:
        assert self._playback is not None
        times, nows = _floats(minute.time), _floats(minute.now)
        digests, partial = _by_turn(minute), frozenset(minute.partial)
        for turn, (now, time) in enumerate(zip(nows, times, strict=True)):
            if (changes := minute.changes.get(turn)) is not None:
                heard.hear(changes)
            begin = minute.begin if turn == 0 else None
            time_ms = int(time * 1000)
            has_samples = self._playback.advance(
                minute.rounds[turn],
                time_ms - minute.lags_ms[turn],
                anew=begin is not None and begin.is_start,
            )
            recalled = Recalled(heard.reads, owned)
            snapshot = Snapshot(
                now=now,
                time=time,
                wake=minute.wakes.get(turn, _TICK),
                node=heard.node or _NO_NODE,
                pods=heard.pods,
                applications=heard.applications,
                slo=heard.slo,
                metrics=TsdbView(self._playback, time_ms),
                in_force=recalled,
                collect_interval_s=heard.collect_interval_s,
                sources_synced=heard.sources_synced,
                evicting=heard.evicting,
                means=heard.means,
            )
            yield Turn(
                snapshot,
                recalled,
                digests[turn],
                heard.strategies,
                heard.hooks,
                heard.shown,
                heard.paused,
                minute.memories if turn == 0 else None,
                begin,
                has_samples,
                turn in partial,
                first <= time <= last,
            )


_TICK = Wake()


def _floats(data: bytes) -> array[float]:
    found = array("d")
    found.frombytes(data)
    return found


def _by_turn(minute: Minute) -> list[dict[str, int]]:
    """Raises ValueError where there are not as many digests as decisions."""
    found: list[dict[str, int]] = [{} for _ in minute.rounds]
    for name, digests in minute.digests.items():
        values = array("I")
        values.frombytes(digests.values)
        turns = [turn for turn, decided in enumerate(digests.turns) if decided]
        for turn, value in zip(turns, values, strict=True):
            found[turn][name] = value
    return found
