"""What may end or freeze work at present, and what switched it on. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from koordlet.admin.model.status import ArmedView
from koordlet.config.load import Loaded
from koordlet.config.part_tables import options_in
from koordlet.decision.snapshot import EvictPolicy
from koordlet.engine import options
from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos.evict import cpu_evict, memory_evict
from koordlet.qos.evict.config import Feature, Watermark, allocatable, satisfaction, usage
from koordlet.qos.evict.victims import OF_POLICY

_KEY = "slo.resourceUsedThresholdWithBE"
_BEST_EFFORT = "best-effort pods"


def arms(loaded: Loaded) -> tuple[ArmedView, ...]:
    """Features that may choose a victim, each with its threshold and its key's origin; then the
    applications that they may choose."""
    slo = loaded.slo.resource_used_threshold_with_be
    if slo is None or not slo.enable:
        return ()
    features = tuple(_features(loaded, slo))
    of_names = {each.name for each in features}
    policies = options.evict_policies(loaded.config)
    applications = [
        ArmedView(
            name=f"application {application.name}",
            does=f"{_ACTS[policy]} it",
            when=f"{' or '.join(choosing)} chooses it",
            by=f'evict = "{application.evict}" ({loaded.origins[f"applications[{place}].evict"]})',
        )
        for place, application in enumerate(loaded.config.applications)
        if (policy := policies.get(application.name)) is not None
        and (choosing := [each for each in OF_POLICY[policy] if each in of_names])
    ]
    return (*features, *applications)


_ACTS = {EvictPolicy.STOP: "ends", EvictPolicy.FREEZE: "freezes"}


def _features(loaded: Loaded, slo: ResourceThresholdStrategy) -> Iterator[ArmedView]:
    """In the order in which they decide."""
    tables = loaded.config.strategies
    if options_in(tables, cpu_evict.STRATEGY).enable:
        wanted = satisfaction(slo)
        if wanted is not None and not isinstance(wanted, str):
            when = f"best-effort work gets {wanted.lower} % of the CPU it requests, or less"
            keys = ("cpuEvictBESatisfactionLowerPercent",)
            yield _armed(loaded, cpu_evict.NAME, Feature.BE_CPU, _BEST_EFFORT, when, keys)
        yield from _of_tier(loaded, slo, cpu_evict.NAME, Feature.CPU_ALLOCATABLE, "CPU")
        yield from _of_usage(loaded, slo, cpu_evict.NAME, Feature.CPU, "CPU")
    if options_in(tables, memory_evict.STRATEGY).enable:
        yield from _of_usage(loaded, slo, memory_evict.NAME, Feature.BE_MEMORY, "memory")
        yield from _of_tier(loaded, slo, memory_evict.NAME, Feature.MEMORY_ALLOCATABLE, "memory")
        yield from _of_usage(loaded, slo, memory_evict.NAME, Feature.MEMORY, "memory")


def _of_usage(
    loaded: Loaded, slo: ResourceThresholdStrategy, owner: str, feature: Feature, what: str
) -> Iterator[ArmedView]:
    rules = usage(feature, slo)
    if isinstance(rules, Watermark):
        when = f"{what} in use reaches {rules.threshold} % of the node"
        key = "cpuEvictThresholdPercent" if what == "CPU" else "memoryEvictThresholdPercent"
        yield _armed(loaded, owner, feature, _whom(rules), when, (key,))


def _of_tier(
    loaded: Loaded, slo: ResourceThresholdStrategy, owner: str, feature: Feature, what: str
) -> Iterator[ArmedView]:
    rules = allocatable(feature, slo)
    if isinstance(rules, Watermark) and options.allocatable(loaded.config) is not None:
        when = f"requests of a tier reach {rules.threshold} % of what node.allocatable offers"
        prefix = "cpu" if what == "CPU" else "memory"
        keys = (f"{prefix}AllocatableEvictThresholdPercent",)
        yield _armed(loaded, owner, feature, _whom(rules), when, keys)


def _whom(rules: Watermark) -> str:
    if rules.priority is None:
        return _BEST_EFFORT
    return f"pods with label eviction-enabled, of priority {rules.priority} or less"


def _armed(
    loaded: Loaded, owner: str, feature: Feature, whom: str, when: str, keys: tuple[str, ...]
) -> ArmedView:
    def origin(key: str) -> str:
        return f"{key} ({loaded.origins.get(f'{_KEY}.{key}', 'default')})"

    switch = f"{_KEY}.enable ({loaded.origins.get(f'{_KEY}.enable', 'default')})"
    return ArmedView(
        name=feature,
        owner=owner,
        does=f"ends {whom}",
        when=when,
        by=", ".join((switch, *map(origin, keys))),
    )
