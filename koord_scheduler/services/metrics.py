"""Figures for Prometheus, under the names that dashboards of the reference have.

The client library would add ``_total`` to the names of its counters
(docs/reference/central.md 1.1).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Literal, NamedTuple

Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]
MOST_SERIES = 256
"""Sets of labels of one histogram."""


class Family(NamedTuple):
    """``read`` is called for each page. ``internal``: not on the page for others."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...]
    read: Callable[[], Values]
    internal: bool = True

    def samples(self) -> Iterator[str]:
        for labels, value in self.read():
            yield f"{self.name}{_labels(self.labels, labels)} {_number(value)}"


class _Series:
    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.sum = 0.0


class Histogram:
    """Of at most ``most`` sets of labels: where more come, the one that was observed longest
    ago goes. ``bounds`` ascend; +Inf is added."""

    kind = "histogram"
    internal = True

    def __init__(
        self,
        name: str,
        about: str,
        bounds: Sequence[float],
        *labels: str,
        most: int = MOST_SERIES,
    ) -> None:
        self.name, self.help, self.labels, self._most = name, about, labels, most
        self._bounds = tuple(bounds)
        self._series: dict[Labels, _Series] = {}
        if not labels:
            self._series[()] = _Series(len(self._bounds) + 1)

    def observe(self, value: float, *labels: str) -> None:
        series = self._series.get(labels)
        if labels:
            if series is not None:
                del self._series[labels]
            elif len(self._series) >= self._most:
                del self._series[next(iter(self._series))]
            series = self._series[labels] = series or _Series(len(self._bounds) + 1)
        assert series is not None
        series.counts[bisect_left(self._bounds, value)] += 1
        series.sum += value

    def samples(self) -> Iterator[str]:
        names = (*self.labels, "le")
        for labels, series in self._series.items():
            total = 0
            for bound, count in zip((*self._bounds, None), series.counts, strict=True):
                total += count
                le = "+Inf" if bound is None else bound_text(bound)
                yield f"{self.name}_bucket{_labels(names, (*labels, le))} {total}"
            yield f"{self.name}_sum{_labels(self.labels, labels)} {_number(series.sum)}"
            yield f"{self.name}_count{_labels(self.labels, labels)} {total}"


class Metrics:
    def __init__(self) -> None:
        self._families: dict[str, Family | Histogram] = {}

    def add(self, family: Family | Histogram) -> None:
        """One that has this name already is replaced: a controller began anew."""
        self._families[family.name] = family

    def counter(self, name: str, about: str, *labels: str) -> Counter[Labels]:
        """One that its owner counts up: ``made[("ok", "")] += 1``."""
        made: Counter[Labels] = Counter()
        self.add(Family(name, "counter", about, labels, lambda: tuple(made.items())))
        return made

    def histogram(
        self,
        name: str,
        about: str,
        bounds: Sequence[float],
        *labels: str,
        most: int = MOST_SERIES,
    ) -> Histogram:
        made = Histogram(name, about, bounds, *labels, most=most)
        self.add(made)
        return made

    def page(self, *, internal: bool | None = None) -> str:
        """In the text format 0.0.4. ``internal`` None: all families."""
        lines: list[str] = []
        for name in sorted(self._families):
            family = self._families[name]
            if internal is not None and family.internal is not internal:
                continue
            lines.append(f"# HELP {name} {_escaped(family.help)}")
            lines.append(f"# TYPE {name} {family.kind}")
            lines += family.samples()
        return "\n".join(lines) + "\n" if lines else ""


def exponential(first: float, factor: float, number: int) -> tuple[float, ...]:
    """``number`` bounds, each ``factor`` times the one before."""
    return tuple(first * factor**i for i in range(number))


def bound_text(bound: float) -> str:
    """As Go writes it, because series with other labels are other series: ``1.048576e+06``."""
    if 1e-4 <= abs(bound) < 1e6 or not bound:
        return repr(float(bound)).removesuffix(".0")
    mantissa, _, exponent = f"{Decimal(repr(float(bound))).normalize():e}".partition("e")
    return f"{mantissa}e{int(exponent):+03d}"


def _labels(names: tuple[str, ...], values: Labels) -> str:
    if not names:
        return ""
    pairs = (
        f'{name}="{_escaped(value, quote=True)}"' for name, value in zip(names, values, strict=True)
    )
    return "{" + ",".join(pairs) + "}"


def _escaped(text: str, quote: bool = False) -> str:
    text = text.replace("\\", r"\\").replace("\n", r"\n")
    return text.replace('"', r"\"") if quote else text


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
