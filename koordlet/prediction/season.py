"""What a subject uses at each hour of the day, over about a week. The reference has no season.

One row of counts for each hour (UTC) takes the place of the samples themselves: a percentile is a
pass over one row, where sorting a week of samples would take a hundred times as long.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from koordlet.protocol.histogram import Buckets

HOURS = 24
HOUR_S = 3600
DAY_S = 86_400
HORIZON_S = 3600
"""How far ahead a peak is predicted."""
_KEPT, _OF = 6, 7
"""A day takes a seventh of what is there."""
_FORGOTTEN_DAYS = 14
"""An hour that was not seen for so long is not known any more."""
_MOST = (1 << 16) - 1
_HOUR_WEIGHT = _MOST // _OF
"""Of all samples of one hour together, so that the oldest fade to nothing and none overflows."""


class Season:
    """``days``: for each hour the day of its newest sample, as days since 1970."""

    __slots__ = ("buckets", "counts", "days")

    def __init__(self, buckets: Buckets) -> None:
        self.buckets = buckets
        self.counts = array("H", bytes(2 * HOURS * buckets.count))
        self.days = array("l", [0]) * HOURS

    def add(self, value: float, time_s: float, seconds: float) -> None:
        """A sample that stands for so many ``seconds``."""
        day, hour = divmod(int(time_s // HOUR_S), HOURS)
        self._fade(hour, day)
        place = hour * self.buckets.count + self.buckets.find(value)
        weight = max(int(_HOUR_WEIGHT * seconds / HOUR_S), 1)
        self.counts[place] = min(self.counts[place] + weight, _MOST)

    def percentile(self, share: float, time_s: float) -> float:
        """The largest of those of the hours that the next ``HORIZON_S`` touches; 0 where nothing is
        known of them."""
        now, then = int(time_s // HOUR_S), int((time_s + HORIZON_S) // HOUR_S)
        return max(self._of_hour(share, *divmod(hour, HOURS)) for hour in range(now, then + 1))

    def _of_hour(self, share: float, day: int, hour: int) -> float:
        sums = list(accumulate(self._row(hour)))
        if not sums[-1] or abs(day - self.days[hour]) >= _FORGOTTEN_DAYS:
            return 0.0
        return self.buckets.end(bisect_left(sums, share * sums[-1]))

    def _row(self, hour: int) -> Sequence[int]:
        count = self.buckets.count
        return self.counts[hour * count : (hour + 1) * count]

    def _fade(self, hour: int, day: int) -> None:
        passed = abs(day - self.days[hour])
        if not passed:
            return
        self.days[hour] = day
        kept, of = (_KEPT**passed, _OF**passed) if passed < _FORGOTTEN_DAYS else (0, 1)
        first = hour * self.buckets.count
        for place, count in enumerate(self._row(hour), first):
            if count:
                self.counts[place] = count * kept // of
