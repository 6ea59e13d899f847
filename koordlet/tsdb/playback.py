"""A store as it was at earlier moments, from what it has left on disk.

Rounds come into the hot window one by one, as they did then, and the same code answers. The files
are only read, also those of a daemon that runs.
"""

from __future__ import annotations

from array import array

from koordlet.tsdb.archive import OLD_SEQ, Archive, Segment
from koordlet.tsdb.block import NAN
from koordlet.tsdb.catalog import Catalog
from koordlet.tsdb.files import DiskFiles, Files
from koordlet.tsdb.frame import Key
from koordlet.tsdb.hot import HotWindow
from koordlet.tsdb.rounds import Place, ReadOnly, Rounds
from koordlet.tsdb.spool import preload
from koordlet.tsdb.store import Store


class Playback(Store):
    """Begins before the first round; ``advance`` goes on from there."""

    def __init__(
        self,
        path: str,
        *,
        hot_window_s: float = 300,
        step_s: float = 1.0,
        coarse_step_s: int = 60,
        files: Files | None = None,
    ) -> None:
        """As the store was made. Never raises for a bad directory: there are no rounds then."""
        super().__init__(
            None, hot_window_s=hot_window_s, step_s=step_s, coarse_step_s=coarse_step_s
        )
        disk = Archive(
            ReadOnly(files if files is not None else DiskFiles(path)),
            max_bytes=0,
            retention_ms=0,
            coarse_step_ms=1000 * coarse_step_s,
        )
        self._window_ms = int(hot_window_s * 1000)
        self._rounds = Rounds(disk.segments, self._archive.note_damage)
        self._archive.segments = tuple(each for each in disk.segments if each.coarse)
        self._next = Place(0, 0)
        self._keys: dict[Key, int] = {}
        self._ids: list[int] = []
        self._ids_of = -1

    @property
    def oldest_ms(self) -> int | None:
        """Time of the first round at full resolution that is left; None where there is none."""
        return self._rounds.frames[0][1].first_ms if self._rounds.frames else None

    def advance(self, rounds: int, time_ms: int, *, anew: bool = False) -> bool:
        """Go on to the round of that time, which came ``rounds`` rounds after the one before. False
        where it never reached the disk, or is no longer there: then nothing moves.

        ``anew``: the daemon was started meanwhile, and ``rounds`` are those since.
        """
        if not rounds and not anew:
            return True
        place = self._rounds.find(self._next, rounds, time_ms)
        if place is None:
            return not rounds
        if anew:
            self._pass_over(self._rounds.back(place, rounds - 1))
            self._open_anew()
        else:
            self._pass_over(self._rounds.back(place, self._hot.rows - 1))
        while self._next <= place:
            self._step()
        return True

    def _pass_over(self, place: Place) -> None:
        """Go on to ``place``. Whole frames become history that the hot window never had."""
        while self._next < place:
            if self._next.row == 0 and self._next.frame < place.frame:
                self._take_in(OLD_SEQ)
                _, frame = self._rounds.frames[self._next.frame]
                self._hot.left_ms = max(self._hot.left_ms, frame.last_ms)
                self._next = Place(self._next.frame + 1, 0)
            else:
                self._step()

    def _step(self) -> None:
        """The next round comes into the hot window."""
        number, row = self._next
        if row == 0:
            self._take_in(self._hot.next_seq)
        content = self._rounds.content(number)
        if row < len(content.times):
            if self._ids_of != number:
                self._intern(number, content.keys)
            cells = array("f", [NAN]) * (self._hot.columns + 1)  # the last one takes NO_COLUMN
            for column, value in zip(self._ids, content.row(row), strict=True):
                cells[column] = value
            cells.pop()
            self._hot.append(content.times[row], cells)
        size = self._rounds.frames[number][1].rows
        self._next = Place(number, row + 1) if row + 1 < size else Place(number + 1, 0)

    def _intern(self, number: int, keys: tuple[Key, ...]) -> None:
        """Columns of the series of a frame. A series that is in it no longer is released."""
        known, self._keys = self._keys, {key: self.series(*key) for key in keys}
        for key in known.keys() - self._keys.keys():
            self.release(known[key])
        self._ids, self._ids_of = list(self._keys.values()), number

    def _take_in(self, first_seq: int) -> None:
        """Make the next frame part of what questions see."""
        source, frame = self._rounds.frames[self._next.frame]
        last = self._archive.segments[-1] if self._archive.segments else None
        if last is None or last.name != source.name:
            last = Segment(source.files, source.name, source.number, coarse=False)
            self._archive.segments = (*self._archive.segments, last)
        last.add(frame, first_seq)

    def _open_anew(self) -> None:
        """As a store that is made with what has been taken in so far."""
        for segment in self._archive.segments:
            segment.frames = [(frame, OLD_SEQ) for frame, _ in segment.frames]
        self._hot, self._catalog = HotWindow(self._hot.rows), Catalog()
        preload(self._archive, self._hot, self._catalog, self._window_ms)
        self._claimed_seq = self._hot.next_seq
        self._keys, self._ids_of = {}, -1
