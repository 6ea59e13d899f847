"""What a node's status and metadata should say of overcommitted resources
(docs/reference/central.md 1.3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import Inputs, MetricFacts, NodeFacts, TopologyFacts
from koord_scheduler.model.wire import Tree
from koord_scheduler.overcommit import batch as batch_formula
from koord_scheduler.overcommit import mid as mid_formula
from koord_scheduler.overcommit import normalization, third_party
from koord_scheduler.overcommit.configuration import Configuration
from koord_scheduler.overcommit.devices import devices
from koord_scheduler.overcommit.strategy import node_strategy
from koord_scheduler.overcommit.usage import AMPLIFICATION_RATIO
from koord_scheduler.overcommit.zones import batch_by_zone
from koordlet.protocol.colocation import ColocationStrategy
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.limits import MESSAGE_CHARACTERS
from koordlet.protocol.resources import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY

TIERS = (BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY)
"""The overcommitted resources, beside those of devices."""


@dataclass(frozen=True)
class Plan:
    """What a node should say.

    ``resources``: whole units by name, None = is to be removed; a name that is not there is left
    alone. ``annotations`` and ``labels`` likewise. ``zones``: batch resources by zone name, milli-
    cores and bytes. ``reset``: why batch and mid resources are taken back, empty where they are
    not. ``problems``: what could not be computed; the node keeps what it says of it. ``strategy``:
    that of this node. ``batch`` and ``mid``: their terms, None where they are taken back.
    ``origin``: batch resources, normalised, before third parties took their part.
    """

    strategy: ColocationStrategy
    resources: Mapping[str, int | None]
    annotations: Mapping[str, str | None]
    labels: Mapping[str, str | None]
    zones: Mapping[str, Amounts]
    reset: str = ""
    problems: tuple[str, ...] = ()
    batch: batch_formula.Terms | None = None
    mid: mid_formula.Terms | None = None
    normalization_ratio: float | None = None
    origin: Amounts | None = None
    third_party: Mapping[str, int] | None = None


def plan(
    inputs: Inputs, configuration: Configuration, now_s: float, *, sync_gpu_shared: bool = False
) -> Plan | None:
    """None while there is no configuration (`Configuration.colocation`)."""
    if configuration.colocation is None:
        return None
    node = inputs.node
    strategy, faults = node_strategy(configuration.colocation, node.labels, node.annotations)
    problems = list(faults)
    if not strategy.enable:
        where = "node" if configuration.colocation.cluster.enable else "cluster"
        return _taken_back(inputs, strategy, f"colocation is off for the {where}", problems)
    ratio = _normalization(inputs, configuration, problems)
    of_devices = devices(inputs.device, sync_gpu_shared=sync_gpu_shared)
    annotations = _ratio_annotations(inputs, configuration, ratio)
    metric = inputs.metric
    stale = _stale(metric, strategy, now_s)
    if stale or metric is None:
        return _taken_back(
            inputs, strategy, stale, problems, of_devices.resources, annotations, of_devices.labels
        )
    batch = batch_formula.batch(node, metric, inputs.pods, strategy)
    mid = mid_formula.mid(node, metric, inputs.pods, strategy)
    effective = ratio if ratio is not None else normalization.present_ratio(node)
    origin = Amounts(_amplified(batch.result.cpu_milli, effective), batch.result.memory_bytes)
    taken, left = _less_third_parties(node, origin, problems)
    zones = inputs.topology.zones if inputs.topology is not None else ()
    by_zone = batch_by_zone(zones, metric, inputs.pods, batch, strategy)
    return Plan(
        strategy=strategy,
        resources={
            BATCH_CPU: left.cpu_milli,
            BATCH_MEMORY: left.memory_bytes,
            MID_CPU: mid.result.cpu_milli,
            MID_MEMORY: mid.result.memory_bytes,
            **of_devices.resources,
        },
        annotations={**annotations, third_party.ORIGIN: _origin_text(origin)},
        labels=of_devices.labels,
        zones={
            name: Amounts(_amplified(each.cpu_milli, effective), each.memory_bytes)
            for name, each in by_zone.items()
        },
        problems=tuple(problems),
        batch=batch,
        mid=mid,
        normalization_ratio=effective,
        origin=origin,
        third_party=taken,
    )


def node_patch(
    wanted: Plan, node: NodeFacts, last_sync_s: float | None, now_s: float
) -> tuple[Tree, tuple[str, ...]] | None:
    """A JSON merge patch of the Node for its **status subresource**, and why it is due; None where
    no write is due.

    Metadata and status go in one request: the status subresource of Node takes labels and
    annotations too. A write is due where a resource differs from the node's by more than
    ``resourceDiffThreshold`` or is there when it should not be, where metadata differs, and for
    the smallest difference once ``updateTimeThresholdSeconds`` have passed since ``last_sync_s``
    (None = never). Equal values are never written.
    """
    smallest = _is_due(wanted.strategy, last_sync_s, now_s)
    threshold = 0.0 if smallest else _threshold(wanted.strategy)
    annotations = dict(wanted.annotations)
    if _origin_is_near(wanted, node, threshold):
        del annotations[third_party.ORIGIN]
    reasons = [
        *_resource_reasons(wanted, node, threshold),
        *_metadata_reasons("annotation", annotations, node.annotations),
        *_metadata_reasons("label", wanted.labels, node.labels),
    ]
    if not reasons:
        return None
    patch: Tree = {}
    for field, present in (
        ("capacity", node.extended_capacity),
        ("allocatable", node.extended_allocatable),
    ):
        changed = {
            name: None if amount is None else str(amount)
            for name, amount in wanted.resources.items()
            if present.get(name) != amount
        }
        if changed:
            patch.setdefault("status", {})[field] = changed
    for field, values, present_values in (
        ("annotations", wanted.annotations, node.annotations),
        ("labels", wanted.labels, node.labels),
    ):
        texts = {key: text for key, text in values.items() if present_values.get(key) != text}
        if texts:
            patch.setdefault("metadata", {})[field] = texts
    return patch, tuple(reasons)


def zones_due(
    wanted: Plan, topology: TopologyFacts | None, last_sync_s: float | None, now_s: float
) -> bool:
    """Whether the NodeResourceTopology is to be written: its batch resources differ by more than
    ``resourceDiffThreshold``, or at all once ``updateTimeThresholdSeconds`` have passed."""
    if topology is None or not wanted.zones:
        return False
    smallest = _is_due(wanted.strategy, last_sync_s, now_s)
    threshold = 0.0 if smallest else _threshold(wanted.strategy)
    for zone in topology.zones:
        amounts = wanted.zones.get(zone.name)
        if amounts is not None and (
            needs_sync(zone.batch_cpu_milli, amounts.cpu_milli, threshold)
            or needs_sync(zone.batch_memory_bytes, amounts.memory_bytes, threshold)
        ):
            return True
    return False


def zones_tree(wanted: Plan, zones: list[Tree]) -> list[Tree]:
    """``zones`` of the NodeResourceTopology as they should be: those of the object, with every
    field, and batch resources in their place by name."""
    return [
        {**zone, "resources": _with_batch(zone.get("resources") or [], wanted.zones[zone["name"]])}
        if zone.get("name") in wanted.zones
        else zone
        for zone in zones
    ]


def needs_sync(present: int | None, wanted: int | None, threshold: float) -> bool:
    """Whether a resource is to be written: its presence differs, or its amount by more than the
    part ``threshold`` of what is there."""
    if present is None or wanted is None:
        return present is not wanted
    return abs(wanted - present) > present * threshold


def _stale(metric: MetricFacts | None, strategy: ColocationStrategy, now_s: float) -> str:
    if metric is None:
        return "no NodeMetric yet"
    if metric.update_time_s is None:
        why = metric.fault if metric.node_usage is not None else ""
        return why or "the NodeMetric was never reported"
    if metric.fault:
        return f"the NodeMetric cannot be used: {metric.fault}"
    minutes = strategy.degrade_time_minutes or 0
    if now_s > metric.update_time_s + minutes * 60:
        age_s = int(now_s - metric.update_time_s)
        return f"the NodeMetric is {age_s} s old, more than degradeTimeMinutes {minutes}"
    return ""


def _taken_back(
    inputs: Inputs,
    strategy: ColocationStrategy,
    why: str,
    problems: list[str],
    resources: Mapping[str, int | None] | None = None,
    annotations: Mapping[str, str | None] | None = None,
    labels: Mapping[str, str | None] | None = None,
) -> Plan:
    """Zones keep their entries with nothing in them."""
    zones = inputs.topology.zones if inputs.topology is not None else ()
    found = dict(annotations or {})
    if third_party.ORIGIN in inputs.node.annotations:
        found[third_party.ORIGIN] = _origin_text(Amounts())
    return Plan(
        strategy=strategy,
        resources={**dict.fromkeys(TIERS), **(resources or {})},
        annotations=found,
        labels=labels or {},
        zones={
            zone.name: Amounts()
            for zone in zones
            if zone.batch_cpu_milli is not None or zone.batch_memory_bytes is not None
        },
        reset=why,
        problems=tuple(problems),
    )


def _normalization(
    inputs: Inputs, configuration: Configuration, problems: list[str]
) -> float | None:
    try:
        return normalization.normalization_ratio(configuration, inputs.node, inputs.topology)
    except normalization.UnknownRatioError as error:
        problems.append(str(error))
        return None


def _ratio_annotations(
    inputs: Inputs, configuration: Configuration, ratio: float | None
) -> dict[str, str | None]:
    """An unknown ratio leaves the annotation, and what it says counts."""
    node = inputs.node
    found: dict[str, str | None] = {}
    if ratio is not None:
        found[normalization.NORMALIZATION_RATIO] = normalization.normalization_annotation(
            ratio, node
        )
    effective = ratio if ratio is not None else normalization.present_ratio(node)
    found[AMPLIFICATION_RATIO] = normalization.amplification_annotation(
        configuration, node, effective
    )
    return found


def _amplified(cpu_milli: int, ratio: float | None) -> int:
    return int(cpu_milli * ratio) if ratio is not None and ratio > 1 else cpu_milli


def _less_third_parties(
    node: NodeFacts, origin: Amounts, problems: list[str]
) -> tuple[Mapping[str, int] | None, Amounts]:
    """What others took, None where that is not known; and what is left. Where it is not known,
    the node gets no more than it has."""
    try:
        taken = third_party.taken(node)
    except ProtocolError as error:
        problems.append(
            f"annotation {third_party.ALLOCATIONS}: {str(error)[:MESSAGE_CHARACTERS]}; batch "
            "resources do not grow until it can be read"
        )
        present = node.extended_allocatable
        return None, origin.smallest(
            Amounts(present.get(BATCH_CPU, 0), present.get(BATCH_MEMORY, 0))
        )
    used = Amounts(taken.get(BATCH_CPU, 0), taken.get(BATCH_MEMORY, 0))
    return taken, origin.minus(used).not_negative()


def _origin_text(origin: Amounts) -> str:
    return third_party.origin_text({BATCH_CPU: origin.cpu_milli, BATCH_MEMORY: origin.memory_bytes})


def _origin_is_near(wanted: Plan, node: NodeFacts, threshold: float) -> bool:
    """The annotation says of resources what they are, and need not be more precise than they."""
    present = third_party.present_origin(node)
    if present is None or wanted.origin is None:
        return False
    return not (
        needs_sync(present.get(BATCH_CPU), wanted.origin.cpu_milli, threshold)
        or needs_sync(present.get(BATCH_MEMORY), wanted.origin.memory_bytes, threshold)
    )


def _is_due(strategy: ColocationStrategy, last_sync_s: float | None, now_s: float) -> bool:
    interval_s = strategy.update_time_threshold_seconds or 0
    return last_sync_s is None or now_s - last_sync_s > interval_s


def _threshold(strategy: ColocationStrategy) -> float:
    return strategy.resource_diff_threshold or 0.0


def _resource_reasons(wanted: Plan, node: NodeFacts, threshold: float) -> Iterator[str]:
    for name, amount in wanted.resources.items():
        for present in (
            node.extended_allocatable.get(name),
            node.extended_capacity.get(name),
        ):
            if needs_sync(present, amount, threshold):
                yield f"{name}: {_shown(present)} -> {_shown(amount)}"
                break


def _metadata_reasons(
    what: str, wanted: Mapping[str, str | None], present: Mapping[str, str]
) -> Iterator[str]:
    for key, text in wanted.items():
        if present.get(key) != text:
            yield f"{what} {key}"


def _shown(amount: int | None) -> str:
    return "none" if amount is None else str(amount)


def _with_batch(resources: list[Tree], amounts: Amounts) -> list[Tree]:
    found = {each.get("name", ""): each for each in resources}
    for name, amount in ((BATCH_CPU, amounts.cpu_milli), (BATCH_MEMORY, amounts.memory_bytes)):
        text = str(amount)
        found[name] = {"name": name, "capacity": text, "allocatable": text, "available": text}
    return [found[name] for name in sorted(found)]
