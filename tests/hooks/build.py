"""NodeSLOs and kernels for the tests of hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.snapshot import Capability, Container, Pod, Snapshot
from koordlet.decision.strategy import Adjustment, AnyHook, Hook, Level, Subject
from koordlet.hooks import HOOKS
from koordlet.protocol.slo import (
    CPUQOS,
    NetworkQOS,
    NodeSLOSpec,
    ResourceQOS,
    ResourceQOSPolicies,
    ResourceQOSStrategy,
    SystemStrategy,
)
from koordlet.protocol.slo_defaults import effective
from tests.qos.build import capabilities

VENDOR = capabilities(cpu_bvt_warp_ns=True, cpu_idle=True, cpu_shares=True)
STOCK = capabilities(cpu_bvt_warp_ns=False, cpu_idle=True, cpu_shares=True)
OLD = capabilities(cpu_bvt_warp_ns=False, cpu_idle=False, cpu_shares=True)


def slo(policy: str | None = None, **classes: CPUQOS) -> NodeSLOSpec:
    """The effective NodeSLO with the given classes: ``ls=CPUQOS(enable=True)``."""
    blocks = {f"{name}_class": ResourceQOS(cpu_qos=qos) for name, qos in classes.items()}
    policies = ResourceQOSPolicies(cpu_policy=policy) if policy is not None else None
    return effective(
        NodeSLOSpec(resource_qos_strategy=ResourceQOSStrategy(policies=policies, **blocks))
    )


ON = CPUQOS(enable=True)
ALL = slo(lsr=ON, ls=ON, be=ON)


def of_pod(pod: Pod) -> Subject:
    return Subject(Level.POD, pod.cgroup, pod=pod)


def container_of(pod: Pod, name: str = "main", level: Level = Level.CONTAINER) -> Subject:
    """A container of the pod, or its sandbox."""
    sandbox = level is Level.SANDBOX
    container = Container("c1", f"{pod.cgroup}/c1", "" if sandbox else name, is_sandbox=sandbox)
    return Subject(level, container.cgroup, pod=pod, container=container)


def network_slo(policy: str | None, total: str | int, **classes: NetworkQOS) -> NodeSLOSpec:
    """The effective NodeSLO: ``be=NetworkQOS(True, egress_limit=50)``; ``total`` in bits/s."""
    blocks = {f"{name}_class": ResourceQOS(network_qos=qos) for name, qos in classes.items()}
    policies = ResourceQOSPolicies(net_qos_policy=policy) if policy is not None else None
    return effective(
        NodeSLOSpec(
            resource_qos_strategy=ResourceQOSStrategy(policies=policies, **blocks),
            system_strategy=SystemStrategy(total_network_bandwidth=total),
        )
    )


def supports(*features: str) -> dict[str, Capability]:
    return {name: Capability(name, True, "tried") for name in features}


def made(
    name: str,
    levels: tuple[Level, ...],
    evaluate: Callable[[Subject, Snapshot], Adjustment],
    **fields: Any,
) -> AnyHook:
    """A hook of a test, without options."""
    return Hook(
        name=name,
        help="of a test",
        options=DEFAULTS,
        levels=levels,
        function=lambda subject, snapshot, _: evaluate(subject, snapshot),
        **fields,
    )


def every_hook(**options: Options) -> tuple[AnyHook, ...]:
    """All hooks; ``options``: of some, by attribute."""
    return tuple(
        hook.with_options(options.get(hook.attribute, hook.options)) for hook in HOOKS.values()
    )
