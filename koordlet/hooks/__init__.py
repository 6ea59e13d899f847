"""Hooks: each a pure function from a pod, container or application to an adjustment. Floor 4."""

from __future__ import annotations

from dataclasses import dataclass, field

from koordlet.decision.strategy import Hook
from koordlet.hooks import (
    batch_resource,
    core_sched,
    cpu_normalization,
    cpu_qos,
    cpuset,
    gpu,
    oom_score_adj,
    rdma,
    resctrl,
    terway,
    traffic,
)
from koordlet.hooks.combine import check


@dataclass(frozen=True)
class HookOptions:
    """The options of those hooks that have some."""

    cpu_qos: cpu_qos.CpuQosOptions = field(default_factory=cpu_qos.CpuQosOptions)
    cpuset: cpuset.CpusetOptions = field(default_factory=cpuset.CpusetOptions)
    gpu_env: gpu.GpuEnvOptions = field(default_factory=gpu.GpuEnvOptions)


def hooks(options: HookOptions | None = None) -> tuple[Hook, ...]:
    """Every hook there is, with its options, in the order in which they run."""
    options = options or HookOptions()
    found = (
        cpu_qos.hook(options.cpu_qos),
        batch_resource.hook(),
        cpu_normalization.hook(),
        cpuset.hook(options.cpuset),
        core_sched.hook(),
        oom_score_adj.hook(),
        resctrl.hook(),
        gpu.hook(options.gpu_env),
        rdma.hook(),
        terway.hook(),
        traffic.hook(),
    )
    check(found)
    return found
