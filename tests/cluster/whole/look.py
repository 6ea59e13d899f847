"""What can be seen of pods: in the API, in their cgroups."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from koordlet.decision.resource import Resource, Value
from tests.runtime.machine import CGROUPS, KUBEPODS

BE = f"{KUBEPODS}/besteffort"
PERIOD_US = 100_000
BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"


@dataclass(frozen=True)
class Limits:
    """Of a container, as the kernel has them. -1: no limit."""

    shares: Value
    quota_us: Value
    memory_bytes: Value


def cgroup(pod: Any) -> str:
    """Of a pod's first container. Raises IndexError, KeyError before it runs."""
    status = pod["status"]
    container = status["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    tier = {"BestEffort": BE, "Burstable": f"{KUBEPODS}/burstable"}[status["qosClass"]]
    return f"{tier}/pod{pod['metadata']['uid']}/{container}"


def limits(group: str) -> Limits:
    """Raises OSError where it is gone."""
    return Limits(
        CGROUPS.read(group, Resource.CPU_SHARES),
        CGROUPS.read(group, Resource.CPU_QUOTA_US),
        CGROUPS.read(group, Resource.MEMORY_LIMIT),
    )


def tier_quota_us() -> int | None:
    """Of best effort as a whole; None: no limit."""
    value = CGROUPS.read(BE, Resource.CPU_QUOTA_US)
    return value if isinstance(value, int) and value > 0 else None


def burst_us(group: str) -> Value:
    """Raises OSError where it is gone."""
    return CGROUPS.read(group, Resource.CPU_BURST_US)


def used_cores(group: str, over_s: float) -> float:
    """Average over the next ``over_s``, which it waits."""
    before, begun_s = _used_ns(group), time.monotonic()
    time.sleep(over_s)
    return (_used_ns(group) - before) / 1e9 / (time.monotonic() - begun_s)


def _used_ns(group: str) -> int:
    for root in ("/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup/cpu,cpuacct"):
        try:
            with open(f"{root}/{group}/cpuacct.usage") as file:
                return int(file.read())
        except FileNotFoundError:
            continue
    with open(f"/sys/fs/cgroup/{group}/cpu.stat") as file:  # v2
        return int(file.readline().split()[1]) * 1000


def is_running(pod: Any) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Running")


def requests(pod: Any) -> dict[str, str]:
    found: dict[str, str] = pod["spec"]["containers"][0]["resources"].get("requests", {})
    return found


def memory_used_percent() -> float:
    """Of the machine."""
    values = {}
    with open("/proc/meminfo") as file:
        for line in file:
            name, value = line.split(":")
            values[name] = int(value.split()[0])
    return 100.0 * (1.0 - values["MemAvailable"] / values["MemTotal"])
