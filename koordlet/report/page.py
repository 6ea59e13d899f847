"""The metrics pages in the two text formats of Prometheus, written by its client library.

Importing this module loads the library, which takes 6 MiB and 50 ms: ``pages`` does so at the
first scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from prometheus_client import exposition
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    UnknownMetricFamily,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from koordlet.decision.family import Family, Kind, Labels, Page
from koordlet.decision.names import encodable
from koordlet.report.metrics import PREFIX
from koordlet.report.registry import Histogram, Metrics

SAMPLES_AT_ONCE = 100
"""Some 2 ms: a page of 300 pods takes 100 ms, and alarms must not wait for it."""
_END = b"# EOF\n"


class Format(StrEnum):
    """Media types as answers have them. Every name of ours is valid in all escaping schemes."""

    TEXT = exposition.CONTENT_TYPE_PLAIN_0_0_4
    OPENMETRICS = openmetrics.CONTENT_TYPE_LATEST


_ENCODERS: dict[Format, Callable[[Collector], bytes]] = {
    Format.TEXT: exposition.generate_latest,
    Format.OPENMETRICS: openmetrics.generate_latest,
}
_SCALARS: dict[
    Kind, type[GaugeMetricFamily] | type[CounterMetricFamily] | type[UnknownMetricFamily]
] = {
    Kind.GAUGE: GaugeMetricFamily,
    Kind.COUNTER: CounterMetricFamily,
    Kind.UNKNOWN: UnknownMetricFamily,
}


def chosen(accept: str) -> Format:
    """The format for a request with this ``Accept``; text where the library cannot read it."""
    try:
        _, content_type = exposition.choose_encoder(accept)
    except (TypeError, ValueError):  # it compares a version that is no number with one
        return Format.TEXT
    is_openmetrics = content_type.startswith("application/openmetrics-text")
    return Format.OPENMETRICS if is_openmetrics else Format.TEXT


def gzip_accepted(accept_encoding: str) -> bool:
    return exposition.gzip_accepted(accept_encoding)


def render(metrics: Metrics, form: Format, *pages: Page) -> Iterator[bytes]:
    """The families of ``pages`` in the order given, each page in the order of the table, in pieces
    of at most ``SAMPLES_AT_ONCE`` samples. A family without samples is left out.

    The numbers may change between two pieces: a family shows them as they were at its first.
    """
    encode = _ENCODERS[form]
    begun = ""
    for metric in Catalogue(metrics, pages).collect():
        piece = encode(_Only(metric))
        if form is Format.OPENMETRICS:
            piece = piece.removesuffix(_END)
        if metric.name == begun:
            piece = _without_head(piece)
        begun = metric.name
        yield piece
    if form is Format.OPENMETRICS:
        yield _END


@dataclass(frozen=True)
class Catalogue:
    """A collector as the library's registry takes it. A family with many samples comes in several
    parts, one after the other, because the library encodes without a pause."""

    metrics: Metrics
    pages: tuple[Page, ...]

    def collect(self) -> Iterator[Metric]:
        for page in self.pages:
            for family in self.metrics.families.values():
                if family.page is page:
                    yield from _parts(self.metrics, family)


@dataclass(frozen=True)
class _Only:
    metric: Metric

    def collect(self) -> Iterable[Metric]:
        return (self.metric,)


def _without_head(piece: bytes) -> bytes:
    """What ``# HELP``, ``# TYPE`` and the like say stands before the first part."""
    while piece.startswith(b"# "):
        piece = piece.partition(b"\n")[2]
    return piece


def _parts(metrics: Metrics, family: Family) -> Iterator[Metric]:
    node = (metrics.node,) if family.node else ()
    names = ("node", *family.labels) if family.node else family.labels
    name = PREFIX + family.name
    if family.kind is Kind.HISTOGRAM:
        histograms = [
            (labels, Histogram(list(each.counts), each.sum))
            for labels, each in metrics.histograms.get(family, {}).items()
        ]
        at_once = max(1, SAMPLES_AT_ONCE // (len(family.buckets) + 3))
        bounds = [*map(repr, family.buckets), "+Inf"]
        for start in range(0, len(histograms), at_once):
            histogram = HistogramMetricFamily(name, family.help, labels=names)
            for labels, each in histograms[start : start + at_once]:
                counts = list(zip(bounds, accumulate(each.counts), strict=True))
                histogram.add_metric(_encodable(node + labels), counts, each.sum)
            yield histogram
        return
    make = _SCALARS[family.kind]
    samples = list(metrics.scalars.get(family, {}).items())
    for start in range(0, len(samples), SAMPLES_AT_ONCE):
        scalar = make(name, family.help, labels=names)
        for labels, value in samples[start : start + SAMPLES_AT_ONCE]:
            scalar.add_metric(_encodable(node + labels), value)
        yield scalar


def _encodable(labels: Labels) -> Labels:
    return labels if "".join(labels).isascii() else tuple(map(encodable, labels))
