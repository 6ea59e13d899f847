"""Series, newest or over time, as data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class RangeSeries(msgspec.Struct, frozen=True, kw_only=True):
    """``values`` of consecutive steps, the first of step number ``first``; NaN is a gap."""

    labels: Mapping[str, str]
    first: int
    values: tuple[float, ...]


class RangeView(msgspec.Struct, frozen=True, kw_only=True):
    """Some steps of some series. Step number i is what lies in [start + i * step_s,
    start + (i + 1) * step_s). Until ``coarse_until`` the store has coarse history only, as far as
    the pieces read so far can tell; ``oldest`` and ``newest`` are of anything in the store."""

    kind: str
    unit: str
    aggregate: str
    start: float
    step_s: float
    steps: int
    series: tuple[RangeSeries, ...] = ()
    coarse_until: float | None = None
    oldest: float | None = None
    newest: float | None = None


class SeriesView(msgspec.Struct, frozen=True, kw_only=True):
    """``age_s`` of the newest sample used, ``count`` of the samples used."""

    labels: Mapping[str, str]
    value: float
    age_s: float
    count: int


class QueryView(msgspec.Struct, frozen=True, kw_only=True):
    kind: str
    unit: str
    aggregate: str
    window_s: float
    series: tuple[SeriesView, ...] = ()
