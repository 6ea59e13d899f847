"""Hooks: each a pure function from a pod, container or application to an adjustment. Floor 4."""

from __future__ import annotations

from koordlet.decision.part import declared
from koordlet.decision.strategy import AnyHook, Hook
from koordlet.hooks.combine import check

MODULES = (
    "cpu_qos",
    "batch_resource",
    "cpu_normalization",
    "cpuset",
    "core_sched",
    "oom_score_adj",
    "resctrl",
    "gpu",
    "rdma",
    "terway",
    "traffic",
)
"""In the order in which they run. Each declares its ``HOOK``."""

HOOKS: dict[str, AnyHook] = declared(__name__, MODULES, "HOOK", Hook)
check(tuple(HOOKS.values()))
