"""What switches each strategy on, and what of the kernel it can act by: one table.

A strategy here is what the issue of a user is about: most are in ``koordlet/qos``, those for CPU
priority, core scheduling and network bandwidth are hooks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from koordlet.decision.resource import Resource
from koordlet.decision.traffic import HOST_SOCKETS, INGRESS, MARKS, SHAPING
from koordlet.hooks import core_sched, cpu_qos, hooks, terway, traffic
from koordlet.qos import resctrl_qos, system_knobs
from koordlet.qos.blkio import strategy as blkio_qos
from koordlet.qos.cpu_burst import strategy as cpu_burst
from koordlet.qos.cpu_suppress import strategy as cpu_suppress
from koordlet.qos.evict import cpu_evict, memory_evict
from koordlet.qos.memory_qos import strategy as memory_qos

_THRESHOLDS = "slo.resourceUsedThresholdWithBE"
_CLASSES = "slo.resourceQOSStrategy"
_SYSTEM = "slo.systemStrategy"
_BANDWIDTH = f"{_SYSTEM}.totalNetworkBandwidth"
_OFF = frozenset({"false", '"none"', '"0"'})
_R = Resource


@dataclass(frozen=True)
class About:
    """``switches``: dotted keys, in groups; of each group one must be on, which ``key=value`` is
    at that very value, and any other where it is set and not false, none or no bandwidth.
    ``arguments``: patterns of the keys of the NodeSLO that it goes by. ``needs``: kernel features
    that it acts by; without any of them it cannot. ``uses``: what it does more with."""

    name: str
    switches: tuple[tuple[str, ...], ...]
    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


def _classes(block: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{_CLASSES}.{name}.{block}.enable" for name in names)


def _below(*patterns: str) -> tuple[str, ...]:
    return tuple(f"{_THRESHOLDS}.{pattern}" for pattern in patterns)


_ON = (f"{_THRESHOLDS}.enable",)
_QOS = ("lsrClass", "lsClass", "beClass")
_CPU_QOS = _classes("cpuQOS", *_QOS)
_CPU_ARGUMENTS = (f"{_CLASSES}.policies.cpuPolicy", f"{_CLASSES}.*.cpuQOS.*")
_NETWORK_ARGUMENTS = (
    f"{_CLASSES}.policies.netQOSPolicy",
    _BANDWIDTH,
    f"{_CLASSES}.*.networkQOS.*",
)
_NETWORK = _classes("networkQOS", "lsClass", "beClass")

TABLE = (
    About(
        cpu_suppress.NAME,
        (_ON,),
        (*_ON, *_below("cpuSuppress*")),
        (_R.CPU_QUOTA_US, _R.CPUSET_CPUS),
    ),
    About(
        cpu_burst.NAME,
        (("slo.cpuBurstStrategy.policy",),),
        ("slo.cpuBurstStrategy.*",),
        (_R.CPU_BURST_US, _R.CPU_QUOTA_US),
    ),
    About(
        memory_qos.NAME,
        (_classes("memoryQOS", *_QOS, "systemClass"),),
        (f"{_CLASSES}.*.memoryQOS.*",),
        (_R.MEMORY_MIN, _R.MEMORY_LOW, _R.MEMORY_HIGH, _R.MEMORY_OOM_GROUP, "memory.reclaim"),
    ),
    About(
        resctrl_qos.NAME,
        (_classes("resctrlQOS", *_QOS),),
        (f"{_CLASSES}.*.resctrlQOS.*",),
        (resctrl_qos.L3, resctrl_qos.MB),
    ),
    About(
        cpu_evict.NAME,
        (
            _ON,
            _below(
                "cpuEvictThresholdPercent",
                "cpuEvictBESatisfactionLowerPercent",
                "cpuAllocatableEvictThresholdPercent",
            ),
        ),
        (*_ON, *_below("cpuEvict*", "cpuAllocatableEvict*", "*PriorityThreshold")),
        uses=("cgroup.freeze", "cgroup.kill"),
    ),
    About(
        memory_evict.NAME,
        (
            _ON,
            _below("memoryEvictThresholdPercent", "memoryAllocatableEvictThresholdPercent"),
        ),
        (*_ON, *_below("memoryEvict*", "memoryAllocatableEvict*", "*PriorityThreshold")),
        uses=("cgroup.kill",),
    ),
    About(
        blkio_qos.NAME,
        (_classes("blkioQOS", "beClass", "cgroupRoot"),),
        (f"{_CLASSES}.*.blkioQOS.*",),
        (
            *(_R.BLKIO_READ_BPS, _R.BLKIO_WRITE_BPS, _R.BLKIO_READ_IOPS, _R.BLKIO_WRITE_IOPS),
            *(_R.BLKIO_COST_WEIGHT, _R.BLKIO_COST_QOS, _R.BLKIO_COST_MODEL),
        ),
    ),
    About(
        system_knobs.NAME,
        (
            tuple(
                f"{_SYSTEM}.{name}"
                for name in (
                    *("minFreeKbytesFactor", "watermarkScaleFactor", "memcgReapBackGround"),
                    *("schedGroupIdentityEnabled", "schedIdleSaverWmark", "schedFeatures"),
                    "pageCacheLimitEnabled",
                )
            ),
        ),
        (f"{_SYSTEM}.*",),
    ),
    About(cpu_qos.NAME, (_CPU_QOS,), _CPU_ARGUMENTS),
    About(
        core_sched.NAME,
        ((f'{_CLASSES}.policies.cpuPolicy="coreSched"',), _CPU_QOS),
        _CPU_ARGUMENTS,
    ),
    About(
        traffic.NAME,
        ((f'{_CLASSES}.policies.netQOSPolicy="tc"',), (_BANDWIDTH,), _NETWORK),
        _NETWORK_ARGUMENTS,
        (SHAPING,),
        (INGRESS, MARKS, HOST_SOCKETS),
    ),
    About(
        terway.NAME,
        ((f'{_CLASSES}.policies.netQOSPolicy="terway-qos"',),),
        _NETWORK_ARGUMENTS,
    ),
)
"""In the order in which they are shown."""

NAMES = tuple(about.name for about in TABLE)
NEEDS: Mapping[str, tuple[str, ...]] = {hook.name: hook.needs for hook in hooks()} | {
    about.name: about.needs for about in TABLE if about.needs
}
HOOKS = frozenset(hook.name for hook in hooks())


def table_of(name: str) -> str:
    """The dotted key of its table in ``koordlet.toml``."""
    return f"{'hooks' if name in HOOKS else 'strategies'}.{name}"


def switched_off(
    about: About, values: Mapping[str, str], origins: Mapping[str, str]
) -> tuple[str, str]:
    """(why, remedy) where the NodeSLO does not ask for it, else empty. ``values``: dotted key ->
    TOML text, of all keys that have one."""
    for group in about.switches:
        if any(_is_on(switch, values) for switch in group):
            continue
        name, _, wanted = group[0].partition("=")
        known = [key for key in (each.partition("=")[0] for each in group) if key in values]
        if known:
            why = f"{known[0]} is {values[known[0]]} ({origins.get(known[0], 'default')})"
        else:
            why = f"{name} is not set"
        such = ""
        if len(group) > 1:
            why += f", nor is any of {', '.join(_last_parts(group))} on"
            such = "one of them, such as "
        remedy = f"set {such}{name}{f' = {wanted}' if wanted else _example(name)}"
        return why, remedy + _also_arms(about, name, values)
    return "", ""


def _also_arms(about: About, switch: str, values: Mapping[str, str]) -> str:
    """What switching it on does besides, that nobody may expect."""
    is_on = values.get(f"{table_of(memory_evict.NAME)}.enable") == "true"
    if switch not in _ON or about.name == memory_evict.NAME or not is_on:
        return ""
    percent = values.get(_below("memoryEvictThresholdPercent")[0])
    return (
        f"; that arms memory eviction too, at {percent} % of memory in use, unless "
        f"{table_of(memory_evict.NAME)}.enable = false"
    )


def matches(about: About, key: str) -> bool:
    """Whether the strategy goes by this key."""
    own = key.startswith(f"{table_of(about.name)}.")
    return own or any(fnmatchcase(key, pattern) for pattern in about.arguments)


def _is_on(switch: str, values: Mapping[str, str]) -> bool:
    key, _, wanted = switch.partition("=")
    value = values.get(key)
    return value == wanted if wanted else value is not None and value not in _OFF


def _last_parts(group: tuple[str, ...]) -> list[str]:
    return [".".join(switch.split(".")[2:]) for switch in group[1:]]


def _example(key: str) -> str:
    if key.endswith(".enable"):
        return " = true"
    return {"policy": ' = "auto"', "totalNetworkBandwidth": ' = "10G"'}.get(key.split(".")[-1], "")
