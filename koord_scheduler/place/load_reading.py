"""NodeMetric to what load-aware scheduling looks at.

What cannot be read counts as absent. CPU is in milli-cores, everything else in whole units.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Protocol

import msgspec

from koord_scheduler.model.amounts import Text, measured
from koord_scheduler.model.cluster.columns import MOST_AMOUNT
from koord_scheduler.model.cluster.nodes import Slot
from koord_scheduler.model.reading import instant_s, pod_key
from koord_scheduler.model.wire import Wire
from koord_scheduler.place.load_tables import (
    Amounts,
    Percentile,
    Percentiles,
    PodLoad,
    PodLoads,
)
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.qos import PriorityClass
from koordlet.protocol.resources import CPU, MEMORY

DEFAULT_REPORT_INTERVAL_S = 60.0


class Loads(Protocol):
    def get(self, key: str, /) -> PodLoad | None: ...


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """``update_time_s``: None where the report has none. ``usage`` is None where the report has no
    node in it, or one whose CPU or memory is missing, negative or no number, as where the system's
    is negative or no number. ``aggregated``: by percentile (``p95``) and window in seconds.
    ``pods`` by ``namespace/name``."""

    update_time_s: float | None = None
    report_interval_s: float = DEFAULT_REPORT_INTERVAL_S
    usage: Amounts | None = None
    system: Amounts = {}
    aggregated: Mapping[Percentile, Amounts] = {}
    pods: Loads = msgspec.field(default_factory=dict[str, PodLoad])


LOAD: Slot[NodeLoad] = Slot("load")


class _Map(Wire, frozen=True, gc=False):
    resources: dict[str, Text] = msgspec.field(default_factory=dict)


class _Aggregated(Wire, frozen=True, gc=False):
    usage: dict[str, _Map] = msgspec.field(default_factory=dict)
    duration: str = ""


class _Node(Wire, frozen=True, gc=False):
    node_usage: _Map | None = None
    system_usage: _Map = _Map()
    aggregated_node_usages: tuple[_Aggregated, ...] | None = ()


class _Pod(Wire, frozen=True, gc=False):
    namespace: str = ""
    name: str = ""
    priority: str = ""
    pod_usage: _Map = _Map()


class _Status(Wire, frozen=True, gc=False):
    update_time: str | None = None
    node_metric: _Node | None = None
    pods_metric: tuple[_Pod, ...] | None = ()


class _Policy(Wire, frozen=True, gc=False):
    report_interval_seconds: float | None = None


class _Spec(Wire, frozen=True, gc=False):
    metric_collect_policy: _Policy | None = None


_status = msgspec.json.Decoder(_Status)
_spec = msgspec.json.Decoder(_Spec)


def read_load(spec: bytes, status: bytes) -> NodeLoad:
    """Of the JSON of these parts of a NodeMetric; empty where it has none."""
    try:
        found = _status.decode(status) if status else _Status()
        policy = (_spec.decode(spec) if spec else _Spec()).metric_collect_policy
    except UNREADABLE:
        return NodeLoad()
    node = found.node_metric or _Node()
    pods = {
        pod_key(each.namespace, each.name): pod
        for each in found.pods_metric or ()
        if (pod := _pod(each)) is not None
    }
    system = node.system_usage.resources
    trusted = not system or measured(system) is not None
    interval = policy.report_interval_seconds if policy is not None else None
    return NodeLoad(
        update_time_s=instant_s(found.update_time),
        report_interval_s=interval or DEFAULT_REPORT_INTERVAL_S,
        usage=_measured(node.node_usage, CPU, MEMORY) if trusted else None,
        system=_amounts(node.system_usage),
        aggregated=Percentiles(
            {
                (sys.intern(kind), window): amounts
                for each in node.aggregated_node_usages or ()
                if (window := _seconds(each.duration)) is not None
                for kind, usage in each.usage.items()
                if (amounts := _measured(usage)) is not None
            }
        ),
        pods=PodLoads(pods) if pods else {},
    )


def _pod(pod: _Pod) -> PodLoad | None:
    amounts = _measured(pod.pod_usage)
    if amounts is None:
        return None
    more = {name: n for name, n in amounts.items() if name not in (CPU, MEMORY)} or None
    prod = pod.priority == PriorityClass.PROD
    return PodLoad(prod, amounts.get(CPU, 0), amounts.get(MEMORY, 0), more)


def _measured(usage: _Map | None, *needed: str) -> dict[str, int] | None:
    found = measured(usage.resources, *needed) if usage is not None else None
    return _clipped(found) if found is not None else None


def _amounts(usage: _Map) -> dict[str, int]:
    return _clipped(measured(usage.resources) or {})


def _clipped(amounts: Mapping[str, int]) -> dict[str, int]:
    return {sys.intern(name): min(amount, MOST_AMOUNT) for name, amount in amounts.items()}


def _seconds(text: str) -> float | None:
    try:
        return parse_duration(text)
    except ProtocolError:
        return None
