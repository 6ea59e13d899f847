"""What this host can do, found by trying each thing in a scratch cgroup of its own.

Nothing of the host is changed: on v2 a controller that is not enabled for children of the root
is reported, not enabled.
"""

from __future__ import annotations

import asyncio
import errno
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.kernel import parse, resctrl
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import Layout, passed_on
from koordlet.kernel.cold import methods
from koordlet.kernel.host import Host
from koordlet.kernel.host_files import TERWAY_DIR
from koordlet.kernel.probe import attempts, cold, perf
from koordlet.kernel.probe.scratch import NotHere, Scratch, scratch


@dataclass(frozen=True)
class Feature:
    """``name``: a Resource where it is about one, so that ``node.has(Resource.CPU_IDLE)`` asks
    for it. ``cost``: what does not work without it. ``attempt``: see ``attempts``."""

    name: str
    cost: str
    attempt: Callable[[Scratch], str | Awaitable[str]]


_R = Resource
_WMARK = "no asynchronous reclaim per cgroup (memory QoS wmarkRatio)"
_OOM = "out-of-memory victims are not chosen by class"
_CACHE = "no page cache limits"
_IO = "no disk limits per cgroup (blkio QoS)"
_IO_COST = "no disk shares by cost model (blkio QoS)"
_COUNTERS = "usage of pods and applications is not measured"

FEATURES: tuple[Feature, ...] = (
    Feature(
        _R.CPU_QUOTA_US,
        "no CPU limits: suppress policy cfsQuota",
        attempts.knob(_R.CPU_QUOTA_US, 50_000, -1),
    ),
    Feature(
        _R.CPU_PERIOD_US,
        "quota periods stay at 100 ms",
        attempts.knob(_R.CPU_PERIOD_US, 50_000, 100_000),
    ),
    Feature(_R.CPU_BURST_US, "no CPU burst", attempts.burst),
    Feature(_R.CPU_SHARES, "no CPU shares by class", attempts.knob(_R.CPU_SHARES, 512)),
    Feature(_R.CPU_IDLE, "best-effort work cannot be scheduled as idle", attempts.idle),
    Feature(
        _R.CPU_BVT_WARP_NS,
        "no group identity; best-effort work gives way by cpu.idle or weight instead",
        attempts.group_identity,
    ),
    Feature(_R.CPU_STAT, "throttling is not measured", attempts.throttling),
    Feature(_R.CPUACCT_USAGE, _COUNTERS, attempts.readable(_R.CPUACCT_USAGE, parse.cpu_usage_ns)),
    Feature(_R.CPUSET_CPUS, "no CPU pinning: suppress policy cpuset", attempts.cpuset),
    Feature(_R.MEMORY_LIMIT, "no memory limits", attempts.memory_bytes(_R.MEMORY_LIMIT)),
    Feature(_R.MEMORY_STAT, _COUNTERS, attempts.readable(_R.MEMORY_STAT, parse.memory_stat)),
    Feature(
        _R.MEMORY_NUMA_STAT,
        "memory of pods by NUMA node is not measured",
        attempts.readable(_R.MEMORY_NUMA_STAT, parse.numa_stat),
    ),
    Feature(
        _R.MEMORY_MIN,
        "no memory guarantees (memory QoS minLimitPercent)",
        attempts.memory_bytes(_R.MEMORY_MIN),
    ),
    Feature(
        _R.MEMORY_LOW,
        "no memory protection (memory QoS lowLimitPercent)",
        attempts.memory_bytes(_R.MEMORY_LOW),
    ),
    Feature(
        _R.MEMORY_HIGH,
        "no memory throttling (memory QoS throttlingPercent)",
        attempts.memory_bytes(_R.MEMORY_HIGH),
    ),
    Feature(
        "memory.reclaim",
        "no reclaim from best-effort work before others have to wait (memory QoS wmarkRatio)",
        attempts.memory_reclaim,
    ),
    Feature(_R.MEMORY_WMARK_RATIO, _WMARK, attempts.knob(_R.MEMORY_WMARK_RATIO, 95)),
    Feature(_R.MEMORY_WMARK_SCALE_FACTOR, _WMARK, attempts.knob(_R.MEMORY_WMARK_SCALE_FACTOR, 20)),
    Feature(_R.MEMORY_WMARK_MIN_ADJ, _WMARK, attempts.knob(_R.MEMORY_WMARK_MIN_ADJ, -25)),
    Feature(_R.MEMORY_PRIORITY, _OOM, attempts.knob(_R.MEMORY_PRIORITY, 1)),
    Feature(_R.MEMORY_USE_PRIORITY_OOM, _OOM, attempts.knob(_R.MEMORY_USE_PRIORITY_OOM, 1)),
    Feature(
        _R.MEMORY_OOM_GROUP,
        "out-of-memory kills single processes, not containers",
        attempts.knob(_R.MEMORY_OOM_GROUP, 1, 0),
    ),
    Feature(
        _R.MEMORY_IDLE_PAGE_STATS,
        "cold memory is not measured by kidled",
        attempts.present(_R.MEMORY_IDLE_PAGE_STATS),
    ),
    Feature(
        _R.KIDLED_SCAN_PERIOD,
        "strategy kidled does nothing",
        attempts.switch(_R.KIDLED_SCAN_PERIOD),
    ),
    Feature("mglru", "cold memory is not measured by MGLRU", cold.attempt(methods.MGLRU)),
    Feature(
        "page-idle",
        "cold memory is not measured by idle page tracking",
        cold.attempt(methods.PAGE_IDLE),
    ),
    Feature(
        "clear-refs",
        "cold memory is not measured by referenced bits",
        cold.attempt(methods.CLEAR_REFS),
    ),
    Feature(
        "memory.refaults",
        "refaults are not counted, and cold memory that memory QoS had reclaimed is not confirmed",
        cold.refaults,
    ),
    Feature(
        _R.MEMORY_PAGECACHE_LIMIT_ENABLE,
        _CACHE,
        attempts.knob(_R.MEMORY_PAGECACHE_LIMIT_ENABLE, 1, 0),
    ),
    Feature(
        _R.MEMORY_PAGECACHE_LIMIT_SIZE,
        _CACHE,
        attempts.memory_bytes(_R.MEMORY_PAGECACHE_LIMIT_SIZE),
    ),
    Feature(
        _R.MEMORY_PAGECACHE_LIMIT_SYNC, _CACHE, attempts.knob(_R.MEMORY_PAGECACHE_LIMIT_SYNC, 1, 0)
    ),
    Feature(_R.BLKIO_READ_IOPS, _IO, attempts.device_knob(_R.BLKIO_READ_IOPS, 1000)),
    Feature(_R.BLKIO_READ_BPS, _IO, attempts.device_knob(_R.BLKIO_READ_BPS, 1 << 20)),
    Feature(_R.BLKIO_WRITE_IOPS, _IO, attempts.device_knob(_R.BLKIO_WRITE_IOPS, 1000)),
    Feature(_R.BLKIO_WRITE_BPS, _IO, attempts.device_knob(_R.BLKIO_WRITE_BPS, 1 << 20)),
    Feature(_R.BLKIO_COST_WEIGHT, _IO_COST, attempts.knob(_R.BLKIO_COST_WEIGHT, "default 50", "")),
    Feature(_R.BLKIO_COST_QOS, _IO_COST, attempts.root_only(_R.BLKIO_COST_QOS)),
    Feature(_R.BLKIO_COST_MODEL, _IO_COST, attempts.root_only(_R.BLKIO_COST_MODEL)),
    Feature(_R.NET_CLS_CLASSID, "network traffic is not marked by class", attempts.net_cls),
    Feature("pids.max", "no limits on the number of processes", attempts.pids_max),
    Feature("cgroup.kill", "containers are killed process by process", attempts.kill),
    Feature("cgroup.freeze", "cgroups cannot be frozen", attempts.freeze),
    Feature("psi-node", "pressure of the node is not measured", attempts.node_pressure),
    Feature(
        "psi-cgroup",
        "pressure of pods is not measured; alarms come from the node",
        attempts.cgroup_pressure,
    ),
    Feature(
        "psi-trigger-2s", "pressure is sampled instead of waited for", attempts.trigger(2_000_000)
    ),
    Feature(
        "psi-trigger-500ms",
        "pressure triggers look at 2 s at least; shorter ones are sampled",
        attempts.trigger(500_000),
    ),
    Feature(
        "psi-trigger-100ms", "pressure triggers look at 500 ms at least", attempts.trigger(100_000)
    ),
    Feature("inotify-cgroup", "new cgroups are noticed by the rescan only", attempts.inotify),
    Feature(
        "core-sched",
        "hyperthreads cannot be kept from being shared between groups",
        attempts.core_sched,
    ),
    Feature(
        "expeller",
        "group identity does not clear the hyperthread beside; policy coreSched does",
        attempts.expeller,
    ),
    Feature(
        _R.SYSCTL_GROUP_IDENTITY,
        "group identity cannot be switched on or off",
        attempts.switch(_R.SYSCTL_GROUP_IDENTITY),
    ),
    Feature(
        _R.SYSCTL_SCHED_CORE,
        "core scheduling cannot be switched on or off",
        attempts.switch(_R.SYSCTL_SCHED_CORE),
    ),
    Feature("resctrl.l3", "no control of caches", attempts.allocation("L3")),
    Feature("resctrl.mb", "no control of memory bandwidth", attempts.allocation("MB")),
    Feature(
        _R.RESCTRL_MONITOR,
        "L3 cache and memory traffic of pods and classes are not measured",
        attempts.monitoring,
    ),
    Feature(
        _R.OOM_SCORE_ADJ,
        "annotations cannot say which container is out-of-memory killed first",
        attempts.oom_raise,
    ),
    Feature(
        "oom_score_adj.lower",
        "scores of containers are not lowered below what they started with",
        attempts.oom_lower,
    ),
    Feature("terway", "terway is not told network limits of pods", attempts.terway),
    Feature("pmu", "cycles per instruction are not measured", perf.pmu),
    Feature(
        "perf-cgroup",
        "without eBPF, cycles per instruction are not measured either",
        perf.perf_cgroup,
    ),
)
"""In the order they are tried: a quota must not stand in the way of what comes after it."""


_FOR_NOW = (errno.EAGAIN, errno.EINTR, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Errors that tell of the state of the machine, not of what it can do."""


def grounds(host: Host, layout: Layout, sys_root: str = "/sys") -> frozenset[str]:
    """What features rest on that comes and goes while a machine runs: as long as it is the same,
    so is what ``probe`` finds. Raises OSError."""
    places = (f"{resctrl.mount_point(sys_root)}/schemata", TERWAY_DIR)
    found = {path for path in places if host.exists(path)}
    smt = f"{sys_root}/devices/system/cpu/smt/active"
    if host.exists(smt):
        found.add(f"{smt}: {host.read(smt).decode().strip()}")
    return passed_on(host, layout) | found


async def probe(
    host: Host,
    layout: Layout,
    *,
    proc_root: str = "/proc",
    sys_root: str = "/sys",
) -> tuple[Capability, ...]:
    """One Capability per feature, in the order of FEATURES. Leaves nothing behind."""
    cgroups = Cgroups(host, layout)
    found = []
    with scratch(host, cgroups, proc_root, sys_root) as place:
        for feature in FEATURES:
            found.append(await _try(feature, place))
            await asyncio.sleep(0)
    return tuple(found)


async def _try(feature: Feature, place: Scratch) -> Capability:
    try:
        answer = feature.attempt(place)
        why = await answer if inspect.isawaitable(answer) else answer
    except NotHere as missing:
        why, remedy, for_now = missing.why, missing.remedy, missing.for_now
        return Capability(str(feature.name), False, why, feature.cost, remedy, for_now)
    except Unsupported as missing:
        return Capability(str(feature.name), False, missing.why, feature.cost, missing.remedy)
    except ValueError as error:
        why, for_now = str(error), False
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, str(error.errno))
        why = f"{error.filename or feature.name}: {name} ({error.strerror})"
        for_now = error.errno in _FOR_NOW
    else:
        return Capability(feature=str(feature.name), supported=True, why=why)
    return Capability(str(feature.name), False, why, feature.cost, for_now=for_now)
