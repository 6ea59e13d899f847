"""The Prometheus text format, version 0.0.4."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from koordlet.decision.names import encodable
from koordlet.report.metrics import FAMILIES, PREFIX, Family, Labels, Page
from koordlet.report.registry import Histogram, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def encode(page_lines: list[str]) -> bytes:
    return "\n".join([*page_lines, ""]).encode()


def lines(metrics: Metrics, *pages: Page) -> Iterator[str]:
    """The families of ``pages`` in the order given, each page in the order of the table,
    samples sorted by label values. A family without samples is left out.

    The numbers may change between two lines: a family shows them as they were at its first.
    """
    for page in pages:
        for family in FAMILIES.values():
            if family.page is page:
                yield from _family(metrics, family)


def _family(metrics: Metrics, family: Family) -> Iterator[str]:
    name = PREFIX + family.name
    node = (metrics.node,) if family.node else ()
    scalars = sorted(metrics.scalars.get(family, {}).items())
    histograms = sorted(
        (labels, Histogram(list(each.counts), each.sum))
        for labels, each in metrics.histograms.get(family, {}).items()
    )
    if scalars or histograms:
        yield f"# HELP {name} {_escape_help(family.help)}"
        yield f"# TYPE {name} {family.kind}"
    names = _names(family)
    for labels, value in scalars:
        yield f"{_series(name, names, node + labels)} {_number(value)}"
    for labels, histogram in histograms:
        yield from _histogram(family, node + labels, histogram)


def _histogram(family: Family, labels: Labels, histogram: Histogram) -> Iterator[str]:
    name = PREFIX + family.name
    names = _names(family)
    below = 0
    for bound, count in zip((*family.buckets, math.inf), histogram.counts, strict=True):
        below += count
        series = _series(f"{name}_bucket", (*names, "le"), (*labels, _number(bound)))
        yield f"{series} {below}"
    yield f"{_series(f'{name}_sum', names, labels)} {_number(histogram.sum)}"
    yield f"{_series(f'{name}_count', names, labels)} {below}"


def _names(family: Family) -> Labels:
    return ("node", *family.labels) if family.node else family.labels


def _series(name: str, names: Labels, values: Labels) -> str:
    if not names:
        return name
    # One look at all values together: a page has ten thousands of them, and the loop waits.
    together = "".join(values)
    if not together.isascii() or '"' in together or "\\" in together or "\n" in together:
        values = tuple(_escape_value(value) for value in values)
    return _template(name, names) % values


@lru_cache(maxsize=256)
def _template(name: str, names: Labels) -> str:
    pairs = ",".join(f'{label}="%s"' for label in names)
    return f"{name}{{{pairs}}}"


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_value(text: str) -> str:
    return encodable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
