"""How much CPU best-effort work may use: the formula of docs/reference/qos.md 2.2, term by term."""

from __future__ import annotations

import math
from collections import defaultdict

import msgspec

from koordlet.decision.snapshot import Snapshot
from koordlet.decision.why import Input, Why
from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.cpu_usage import (
    SubjectUsage,
    Usage,
    node_usage,
    total,
    usage_by_subject,
    window_s,
)


class Allowance(msgspec.Struct, frozen=True):
    """Result and terms. ``formula_milli`` may be negative; ``floor_milli`` is
    ``cpuSuppressMinPercent`` of the capacity, None where it is not set."""

    formula_milli: int
    floor_milli: int | None
    capacity_milli: int
    threshold_percent: int
    node: Usage
    pods_be: Usage
    pods_ls: Usage
    apps_be: Usage
    apps_ls: Usage
    system_cores: float
    reserved_milli: int
    window_s: float
    begun_cores: float = 0.0
    """What LS work uses beyond the samples, as the alarm that asked for this has measured it."""

    @property
    def milli(self) -> int:
        """What BE may use before policy minimums, in milli-cores."""
        return self.less(0)

    def less(self, pressure_milli: int) -> int:
        """The same minus the pressure term, never below the configured floor."""
        cut = self.formula_milli - pressure_milli
        return cut if self.floor_milli is None else max(cut, self.floor_milli)

    @property
    def ls_cores(self) -> float:
        return self.pods_ls.cores + self.apps_ls.cores + self.begun_cores

    @property
    def be_cores(self) -> float:
        return self.pods_be.cores + self.apps_be.cores


def allowance(snapshot: Snapshot, slo: ResourceThresholdStrategy) -> Allowance | Why:
    """The formula, or the reason why it cannot be computed at present.

    Every BE application counts as best effort, wherever its cgroup is. Usage of a pod that no
    source knows, and of one without a sample, is part of the system term.
    """
    node = snapshot.node
    threshold = slo.cpu_suppress_threshold_percent
    if threshold is None:
        return _missing("cpuSuppressThresholdPercent is not set and has no default here")
    if node.capacity_milli <= 0 or not node.topology.cpus:
        return _missing("the node's CPU capacity or topology is not known")
    node_used = node_usage(snapshot)
    if node_used is None:
        return _missing(f"no sample of node_cpu_usage in the last {window_s(snapshot):g} s")
    parts: dict[tuple[bool, bool], list[SubjectUsage]] = defaultdict(list)
    for subject in usage_by_subject(snapshot):
        parts[subject.is_pod, subject.is_best_effort].append(subject)
    pods_be, pods_ls = total(parts[True, True]), total(parts[True, False])
    apps_be, apps_ls = total(parts[False, True]), total(parts[False, False])
    reserved_milli = max(node.kubelet.reserved_milli, node.cpus.annotation_reserved_milli, 0)
    rest = node_used.cores - pods_be.cores - pods_ls.cores - apps_be.cores - apps_ls.cores
    system_cores = max(rest, 0.0, reserved_milli / 1000)
    percent = slo.cpu_suppress_min_percent
    begun_cores = 0.0
    if snapshot.wake.ls_cores is not None:
        begun_cores = max(snapshot.wake.ls_cores - pods_ls.cores - apps_ls.cores, 0.0)
    return Allowance(
        formula_milli=node.capacity_milli * threshold // 100
        - pods_ls.milli
        - apps_ls.milli
        - math.trunc(system_cores * 1000)
        - math.trunc(begun_cores * 1000),
        floor_milli=None if percent is None else node.capacity_milli * percent // 100,
        capacity_milli=node.capacity_milli,
        threshold_percent=threshold,
        node=node_used,
        pods_be=pods_be,
        pods_ls=pods_ls,
        apps_be=apps_be,
        apps_ls=apps_ls,
        system_cores=system_cores,
        reserved_milli=reserved_milli,
        window_s=window_s(snapshot),
        begun_cores=begun_cores,
    )


def sentence(terms: Allowance, pressure_milli: int) -> str:
    """The formula with its numbers, as one sentence for people."""
    milli = terms.less(pressure_milli)
    capacity = terms.capacity_milli / 1000
    share = terms.capacity_milli * terms.threshold_percent // 100 / 1000
    text = (
        f"BE may use {max(milli, 0) / 1000:.2f} of {capacity:.4g} cores: "
        f"{terms.threshold_percent} % of {capacity:.2f} = {share:.2f}, "
        f"minus LS pods {terms.pods_ls.cores:.2f}, "
        f"minus LS applications {terms.apps_ls.cores:.2f}, "
        f"minus system {terms.system_cores:.2f}"
    )
    if terms.reserved_milli:
        text += f" (at least the reserved {terms.reserved_milli / 1000:.2f})"
    if terms.begun_cores:
        text += f", minus {terms.begun_cores:.2f} that LS has begun to use since"
    if pressure_milli:
        text += f", minus pressure {pressure_milli / 1000:.2f}"
    if milli < 0:
        text += f", which is {milli / 1000:.2f} and leaves nothing"
    if terms.floor_milli is not None and milli == terms.floor_milli:
        text += f", raised to the configured minimum {terms.floor_milli / 1000:.2f}"
    return text


def inputs(terms: Allowance, pressure_milli: int) -> tuple[Input, ...]:
    """Every term with its metric, window, age and value."""

    def used(name: str, usage: Usage) -> Input:
        return Input(name, round(usage.cores, 3), "cores", terms.window_s, round(usage.age_s, 3))

    missing = sum(u.missing for u in (terms.pods_be, terms.pods_ls, terms.apps_be, terms.apps_ls))
    facts = [
        Input("capacity", terms.capacity_milli / 1000, "cores"),
        Input("cpuSuppressThresholdPercent", terms.threshold_percent, "%"),
        used("node_cpu_usage", terms.node),
        used(f"pod_cpu_usage, {terms.pods_ls.count} LS pods", terms.pods_ls),
        used(f"pod_cpu_usage, {terms.pods_be.count} BE pods", terms.pods_be),
        used(f"host_application_cpu_usage, {terms.apps_ls.count} LS", terms.apps_ls),
        used(f"host_application_cpu_usage, {terms.apps_be.count} BE", terms.apps_be),
        Input("reserved", terms.reserved_milli / 1000, "cores"),
        Input(
            "system = max(node - pods - applications, reserved)",
            round(terms.system_cores, 3),
            "cores",
        ),
    ]
    if terms.floor_milli is not None:
        facts.append(Input("cpuSuppressMinPercent floor", terms.floor_milli / 1000, "cores"))
    if terms.begun_cores:
        text = "begun by LS since, measured by the alarm"
        facts.append(Input(text, round(terms.begun_cores, 3), "cores"))
    if pressure_milli:
        facts.append(Input("pressure term", pressure_milli / 1000, "cores"))
    if missing:
        facts.append(Input("subjects without a sample, counted as system", missing))
    return tuple(facts)


def _missing(what: str) -> Why:
    return Why("cpu-suppress.missing-input", f"{what}; BE limits stay as they are")
