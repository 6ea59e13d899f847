"""Built-in NodeSLO values, and what a switched-off block becomes (docs/reference/qos.md 1.4)."""

from __future__ import annotations

import msgspec

from koordlet.protocol.merge import overlay
from koordlet.protocol.slo import (
    CPUQOS,
    BlkIOQOS,
    CPUBurstStrategy,
    MemoryQOS,
    NetworkQOS,
    NodeSLOSpec,
    ResctrlQOS,
    ResourceQOS,
    ResourceQOSPolicies,
    ResourceQOSStrategy,
    ResourceThresholdStrategy,
    Section,
    SystemStrategy,
)


def _qos_class(
    cpu: tuple[int, int, bool], resctrl: tuple[int, int, int], wmark: tuple[int, int, int]
) -> ResourceQOS:
    """``cpu``: group identity, sched idle, core expeller; ``resctrl``: first and last percent of
    the L3 ways, memory bandwidth percent; ``wmark``: ratio, scale per mille, min adjustment."""
    return ResourceQOS(
        cpu_qos=CPUQOS(
            enable=False, group_identity=cpu[0], sched_idle=cpu[1], core_expeller=cpu[2]
        ),
        resctrl_qos=ResctrlQOS(
            enable=False,
            cat_range_start_percent=resctrl[0],
            cat_range_end_percent=resctrl[1],
            mba_percent=resctrl[2],
        ),
        memory_qos=MemoryQOS(
            enable=False,
            min_limit_percent=0,
            low_limit_percent=0,
            throttling_percent=0,
            wmark_ratio=wmark[0],
            wmark_scale_permill=wmark[1],
            wmark_min_adj=wmark[2],
            priority_enable=0,
            priority=0,
            oom_kill_group=0,
        ),
        blkio_qos=BlkIOQOS(enable=False),
        network_qos=NetworkQOS(
            enable=False, ingress_request=0, ingress_limit=0, egress_request=0, egress_limit=0
        ),
    )


DEFAULTS = NodeSLOSpec(
    resource_used_threshold_with_be=ResourceThresholdStrategy(
        enable=False,
        cpu_suppress_threshold_percent=65,
        memory_evict_threshold_percent=70,
        cpu_evict_policy="evictByRealLimit",
    ),
    resource_qos_strategy=ResourceQOSStrategy(
        policies=ResourceQOSPolicies(cpu_policy="groupIdentity", net_qos_policy="tc"),
        lsr_class=_qos_class((2, 0, True), (0, 100, 100), (95, 20, -25)),
        ls_class=_qos_class((2, 0, True), (0, 100, 100), (95, 20, -25)),
        be_class=_qos_class((-1, 0, False), (0, 30, 100), (95, 20, 50)),
        system_class=_qos_class((0, 0, False), (0, 100, 100), (0, 50, 0)),
        cgroup_root=ResourceQOS(blkio_qos=BlkIOQOS(enable=False)),
    ),
    cpu_burst_strategy=CPUBurstStrategy(
        policy="none",
        cpu_burst_percent=1000,
        cfs_quota_burst_percent=300,
        cfs_quota_burst_period_seconds=-1,
        share_pool_threshold_percent=50,
    ),
    system_strategy=SystemStrategy(total_network_bandwidth="0"),
)

NONE = _qos_class((0, 0, False), (0, 100, 100), (0, 50, 0))
"""The neutral values of each block, taken where ``enable`` is false."""

NONE_BLOCKS = ("cpu_qos", "resctrl_qos", "memory_qos")
"""Blocks that become neutral when switched off; blkio and network strategies look at their own
``enable``."""
NONE_CLASSES = ("lsr_class", "ls_class", "be_class", "system_class")


def effective(spec: NodeSLOSpec) -> NodeSLOSpec:
    """``spec`` over the defaults, with the neutral values in every block that is switched off.

    Unlike the reference the SYSTEM class is made neutral too (docs/reference/qos.md quirk 41).
    """
    merged = overlay(DEFAULTS, spec) or DEFAULTS
    strategy = merged.resource_qos_strategy or ResourceQOSStrategy()
    classes = {name: _neutral(getattr(strategy, name)) for name in NONE_CLASSES}
    return msgspec.structs.replace(
        merged, resource_qos_strategy=msgspec.structs.replace(strategy, **classes)
    )


def is_neutral(block: str, value: Section | None) -> bool:
    """Whether ``block`` of a class (``cpu_qos`` ...) is replaced by its neutral values."""
    return block in NONE_BLOCKS and getattr(value, "enable", None) is False


def _neutral(qos: ResourceQOS) -> ResourceQOS:
    off = {
        block: getattr(NONE, block)
        for block in NONE_BLOCKS
        if is_neutral(block, getattr(qos, block))
    }
    return msgspec.structs.replace(qos, **off)
