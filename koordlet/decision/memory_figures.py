"""Which memory counts as used: the series of cold memory, and the figure that a collect policy asks
for (docs/reference/metrics.md 2.12, 3.2, 5.3).

Cold is what nobody has used for a while, as far as the kernel tells. ``*_cold_page_size`` is page
cache alone, as in the reference; the rest has names of ours.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from koordlet.decision import metrics as m
from koordlet.decision.metrics import Aggregate, Metric, MetricView, Reading

_POD = ("pod_uid",)
_CONTAINER = ("container_id",)
_APP = ("host_app_name",)
_COLD = "page cache that nobody has used for a while"
_HOT = "memory with page cache, without what of it is cold"
_ANON = "anonymous memory and tmpfs that nobody has used for a while"
_MAPPED = "memory that its processes map and have not used for a while"

NODE_MEMORY_COLD_PAGE_SIZE = Metric("node_memory_cold_page_size", (), "bytes", _COLD)
NODE_MEMORY_WITH_HOT_PAGE_USAGE = Metric("node_memory_with_hot_page_usage", (), "bytes", _HOT)
NODE_MEMORY_COLD_ANON = Metric("node_memory_cold_anon", (), "bytes", _ANON)
POD_MEMORY_COLD_PAGE_SIZE = Metric("pod_memory_cold_page_size", _POD, "bytes", _COLD)
POD_MEMORY_WITH_HOT_PAGE_USAGE = Metric("pod_memory_with_hot_page_usage", _POD, "bytes", _HOT)
POD_MEMORY_COLD_ANON = Metric("pod_memory_cold_anon", _POD, "bytes", _ANON)
POD_MEMORY_COLD_MAPPED = Metric("pod_memory_cold_mapped", _POD, "bytes", _MAPPED)
CONTAINER_MEMORY_COLD_PAGE_SIZE = Metric(
    "container_memory_cold_page_size", _CONTAINER, "bytes", _COLD
)
CONTAINER_MEMORY_WITH_HOT_PAGE_USAGE = Metric(
    "container_memory_with_hot_page_usage", _CONTAINER, "bytes", _HOT
)
HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE = Metric(
    "host_application_memory_cold_page_size", _APP, "bytes", _COLD
)
HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE = Metric(
    "host_application_memory_with_hot_page_usage", _APP, "bytes", _HOT
)
HOST_APPLICATION_MEMORY_COLD_ANON = Metric(
    "host_application_memory_cold_anon", _APP, "bytes", _ANON
)
HOST_APPLICATION_MEMORY_COLD_MAPPED = Metric(
    "host_application_memory_cold_mapped", _APP, "bytes", _MAPPED
)
NODE_SWAP_FREE = Metric("node_swap_free", (), "bytes", "swap that is free")


class CollectPolicy(StrEnum):
    """``nodeMemoryCollectPolicy`` of a NodeMetric."""

    WITHOUT_PAGE_CACHE = "usageWithoutPageCache"
    WITH_HOT_PAGE_CACHE = "usageWithHotPageCache"
    WITH_PAGE_CACHE = "usageWithPageCache"


class Subject(StrEnum):
    """Whose memory it is."""

    NODE = "node"
    POD = "pod"
    HOST_APPLICATION = "host-application"


_SERIES: dict[Subject, dict[CollectPolicy, Metric]] = {
    Subject.NODE: {
        CollectPolicy.WITHOUT_PAGE_CACHE: m.NODE_MEMORY_USAGE,
        CollectPolicy.WITH_HOT_PAGE_CACHE: NODE_MEMORY_WITH_HOT_PAGE_USAGE,
        CollectPolicy.WITH_PAGE_CACHE: m.NODE_MEMORY_USAGE_WITH_PAGE_CACHE,
    },
    Subject.POD: {
        CollectPolicy.WITHOUT_PAGE_CACHE: m.POD_MEMORY_USAGE,
        CollectPolicy.WITH_HOT_PAGE_CACHE: POD_MEMORY_WITH_HOT_PAGE_USAGE,
        CollectPolicy.WITH_PAGE_CACHE: m.POD_MEMORY_USAGE_WITH_PAGE_CACHE,
    },
    Subject.HOST_APPLICATION: {
        CollectPolicy.WITHOUT_PAGE_CACHE: m.HOST_APPLICATION_MEMORY_USAGE,
        CollectPolicy.WITH_HOT_PAGE_CACHE: HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE,
        CollectPolicy.WITH_PAGE_CACHE: m.HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
    },
}


class Figure(NamedTuple):
    """``policy``: by which the figure was made, where it is not the one that was asked for."""

    reading: Reading
    policy: CollectPolicy


def memory_figure(
    view: MetricView,
    policy: str,
    subject: Subject,
    labels: tuple[str, ...] = (),
    *,
    window_s: float,
    aggregate: Aggregate = Aggregate.AVG,
) -> Figure | None:
    """The memory to report, bytes. ``labels``: uid of the pod, name of the application.

    Usage without page cache where the policy is unknown, and where nobody measures what it asks
    for: cold memory may not be to be had. None when that has no sample either.
    """
    basic = CollectPolicy.WITHOUT_PAGE_CACHE
    asked = next((each for each in CollectPolicy if each == policy), basic)
    for each in dict.fromkeys((asked, basic)):
        found = view.read(_SERIES[subject][each], labels, window_s=window_s, aggregate=aggregate)
        if found is not None:
            return Figure(found, each)
    return None
