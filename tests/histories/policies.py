"""Random configurations that are valid, or refused as they should be.

Reading a file takes longer than ten ticks, so each piece is read once and the pieces are put
together: a section of the NodeSLO, or a table, does not depend on the others.
"""

from __future__ import annotations

import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koordlet.config.errors import ConfigErrors
from koordlet.config.load import Loaded, load
from koordlet.config.origins import leaves
from koordlet.hooks import HOOKS
from koordlet.protocol.slo import ResourceThresholdStrategy
from koordlet.qos import STRATEGIES
from tests.histories.machine import APPLICATIONS

_THRESHOLDS = (
    "enable = false",
    "enable = true",
    'enable = true\ncpuSuppressPolicy = "cfsQuota"\ncpuSuppressThresholdPercent = 50',
    'enable = true\ncpuSuppressPolicy = "cfsQuota"\ncpuSuppressMinPercent = 25',
    'enable = true\ncpuSuppressPolicy = "cpuset"\ncpuSuppressMinPercent = 50',
    "enable = true\nmemoryEvictThresholdPercent = 30\nmemoryEvictLowerPercent = 20",
    "enable = true\nmemoryEvictThresholdPercent = 40\nevictEnabledPriorityThreshold = 5999",
    "enable = true\ncpuEvictThresholdPercent = 40\nevictEnabledPriorityThreshold = 7999",
    """enable = true
    cpuEvictBESatisfactionLowerPercent = 60
    cpuEvictBESatisfactionUpperPercent = 80
    cpuEvictTimeWindowSeconds = 2
    cpuEvictBEUsageThresholdPercent = 10""",
    """enable = true
    memoryAllocatableEvictThresholdPercent = 20
    memoryAllocatableEvictLowerPercent = 10
    allocatableEvictPriorityThreshold = 7999""",
)
_BURST = (
    'policy = "none"',
    'policy = "auto"',
    'policy = "cpuBurstOnly"\ncpuBurstPercent = 150',
    'policy = "cfsQuotaBurstOnly"\ncfsQuotaBurstPeriodSeconds = 10\nsharePoolThresholdPercent = 80',
    'policy = "auto"\ncfsQuotaBurstPercent = 200\nsharePoolThresholdPercent = 1',
)
_CLASS = "[slo.resourceQOSStrategy.{}Class.{}]\nenable = true\n"


def _of(qos: str, block: str, text: str = "") -> str:
    return _CLASS.format(qos, block) + text + "\n"


_QOS = (
    "",
    _of("be", "cpuQOS", "groupIdentity = -1"),
    _of("be", "cpuQOS", "groupIdentity = -1") + _of("ls", "cpuQOS", "groupIdentity = 2"),
    '[slo.resourceQOSStrategy.policies]\ncpuPolicy = "coreSched"\n'
    + _of("be", "cpuQOS", "schedIdle = 1")
    + _of("ls", "cpuQOS"),
    _of("ls", "memoryQOS", "minLimitPercent = 100\nlowLimitPercent = 100\nthrottlingPercent = 80")
    + _of("be", "memoryQOS", "throttlingPercent = 50\nwmarkRatio = 80"),
    _of("lsr", "memoryQOS", "minLimitPercent = 100\nthrottlingPercent = 100")
    + _of("ls", "memoryQOS", "lowLimitPercent = 50\noomKillGroup = 1")
    + _of("be", "memoryQOS", "pageCacheEnable = true\npageCacheLimitPercent = 50"),
    _of("be", "resctrlQOS", "catRangeEndPercent = 30\nmbaPercent = 20") + _of("ls", "resctrlQOS"),
    _of("be", "blkioQOS")
    + '[[slo.resourceQOSStrategy.beClass.blkioQOS.blocks]]\nname = "/dev/vda"\ntype = "device"\n'
    "ioCfg = {readIOPS = 100, writeBPS = 1048576, ioWeightPercent = 10}\n",
    '[slo.resourceQOSStrategy.policies]\nnetQOSPolicy = "terway-qos"\n'
    + _of("be", "networkQOS", "ingressLimit = 40\negressLimit = 40")
    + _of("ls", "networkQOS", "ingressRequest = 50"),
    _of("be", "networkQOS", 'ingressRequest = 30\negressRequest = 60\negressLimit = "20M"')
    + _of("ls", "networkQOS", "ingressRequest = 50\negressRequest = 70"),
    _of("be", "networkQOS", "ingressLimit = 10\negressLimit = 20"),
)
_SYSTEM = (
    "",
    "minFreeKbytesFactor = 100\nwatermarkScaleFactor = 150",
    "minFreeKbytesFactor = 300\nmemcgReapBackGround = 1\nschedGroupIdentityEnabled = 1",
    'totalNetworkBandwidth = "100M"',
    'totalNetworkBandwidth = "40M"\nminFreeKbytesFactor = 100',
)
PER_MINUTE = 3
"""Evictions of one strategy."""
_BASE = f"""
[evictions]
start_grace_seconds = 0
[node]
name = "node-1"
[node.allocatable]
"kubernetes.io/batch-cpu" = "3000"
"kubernetes.io/batch-memory" = "4Gi"
[strategies.cpu-evict]
max_per_minute = {PER_MINUTE}
cool_down_seconds = 2
[strategies.memory-evict]
max_per_minute = {PER_MINUTE}
cool_down_seconds = 1
[strategies.resctrl-monitor]
enable = true
max_pods = 3
"""
FAST = 1.25
"""As many times as a normal CPU."""
_FAST = f"""
[node.annotations]
"node.koordinator.sh/cpu-normalization-ratio" = "{FAST}"
"""
_REFUSED = (
    """[slo.resourceUsedThresholdWithBE]
    memoryEvictThresholdPercent = 30
    memoryEvictLowerPercent = 60
    """,
    _of("be", "resctrlQOS", "catRangeStartPercent = 80\ncatRangeEndPercent = 20"),
    "[slo.resourceUsedThresholdWithBE]\ncpuSuppressThresholdPercent = 101\n",
    "[hooks.cpuset\n",
    '[daemon]\nmode = "sometimes"\n',
)


class Policy(msgspec.Struct, frozen=True):
    """Which piece of each table is in force; ``off``: strategies and hooks switched off. ``fast``:
    the CPU is faster than a normal one. ``rival``: what the rival wants, see there."""

    thresholds: int = 0
    burst: int = 0
    qos: int = 0
    system: int = 0
    evict: str = "never"
    observe: bool = False
    restore_on_stop: bool = False
    off: frozenset[str] = frozenset()
    fast: bool = False
    rival: int = 0


def first(chance: random.Random) -> Policy:
    """One with something to do."""
    return Policy(
        chance.randrange(1, len(_THRESHOLDS)),
        chance.randrange(len(_BURST)),
        chance.randrange(len(_QOS)),
        chance.randrange(len(_SYSTEM)),
        chance.choice(("never", "stop", "freeze")),
        fast=chance.random() < 0.3,
        rival=chance.choice((0, 0, chance.getrandbits(16))),
    )


def another(policy: Policy, chance: random.Random) -> Policy:
    """The same with one or two parts of the NodeSLO changed."""
    for _ in range(chance.choice((1, 2))):
        name, pieces = chance.choice(
            (
                ("thresholds", _THRESHOLDS),
                ("burst", _BURST),
                ("qos", _QOS),
                ("qos", _QOS),
                ("system", _SYSTEM),
            )
        )
        policy = msgspec.structs.replace(policy, **{name: chance.randrange(len(pieces))})
    return policy


def switched(policy: Policy, chance: random.Random) -> Policy:
    """With a strategy or hook off, or on again."""
    switches = [f"strategies.{part.attribute}" for part in STRATEGIES.values()]
    switches += [f"hooks.{part.attribute}" for part in HOOKS.values() if part.writes]
    return msgspec.structs.replace(policy, off=policy.off ^ {chance.choice(switches)})


def squeezing(policy: Policy, chance: random.Random) -> Policy:
    """With another threshold above which somebody has to go."""
    found = [n for n, text in enumerate(_THRESHOLDS) if "Evict" in text]
    return msgspec.structs.replace(policy, thresholds=chance.choice(found))


def highest_priority(policy: Policy, feature: str) -> int:
    """Of those whom ``feature`` may evict, where not the class BE is what counts."""
    rules = _thresholds(policy)
    told = (
        rules.allocatable_evict_priority_threshold
        if "Allocatable" in feature
        else rules.evict_enabled_priority_threshold
    )
    return -1 if told is None else told


def minimum_percent(policy: Policy) -> int:
    """Of the node's CPU, which best effort always gets; 0 where suppress is off or has none."""
    if "strategies.cpu_suppress" in policy.off:
        return 0
    rules = _thresholds(policy)
    return (rules.cpu_suppress_min_percent or 0) if rules.enable else 0


def _thresholds(policy: Policy) -> ResourceThresholdStrategy:
    slo = _piece("resourceUsedThresholdWithBE", _THRESHOLDS[policy.thresholds]).slo
    assert slo.resource_used_threshold_with_be is not None
    return slo.resource_used_threshold_with_be


def loaded(policy: Policy, directory: Path) -> Loaded:
    """The configuration of ``policy`` for a daemon with its files in ``directory``."""
    base = _read(_BASE + _FAST if policy.fast else _BASE)
    config = base.config
    for switch in policy.off:
        config = _switched_off(config, switch)
    replace = msgspec.structs.replace
    config = replace(
        config,
        paths=replace(config.paths, state_dir=f"{directory}/state", run_dir=f"{directory}/run"),
        daemon=replace(
            config.daemon,
            mode="observe" if policy.observe else "enforce",
            on_stop="restore" if policy.restore_on_stop else "keep",
            cpu_budget_percent=0.0,  # of this test's process: the fake has none of its own
            memory_budget_bytes=0,
        ),
        applications=_read(_applications(policy.evict)).config.applications,
    )
    slo = replace(
        base.slo,
        resource_used_threshold_with_be=_piece(
            "resourceUsedThresholdWithBE", _THRESHOLDS[policy.thresholds]
        ).slo.resource_used_threshold_with_be,
        cpu_burst_strategy=_piece("cpuBurstStrategy", _BURST[policy.burst]).slo.cpu_burst_strategy,
        system_strategy=_piece("systemStrategy", _SYSTEM[policy.system]).slo.system_strategy,
        resource_qos_strategy=_read(_QOS[policy.qos]).slo.resource_qos_strategy,
    )
    told = (*leaves(config), *leaves(slo, "slo"))
    return replace(base, config=config, slo=slo, origins={leaf.path: "a history" for leaf in told})


@cache
def refused() -> None:
    """What cannot be read is kept out before it reaches the engine."""
    for text in _REFUSED:
        with pytest.raises(ConfigErrors):
            _read.__wrapped__(text)


def _applications(evict: str) -> str:
    return "".join(
        f'[[applications]]\nname = "{name}"\ncgroup = "{name}"\nqos = "{qos}"\n'
        f'evict = "{evict if qos == "BE" else "never"}"\n'
        'memory_request = "256Mi"\n'
        for name, qos in APPLICATIONS.items()
    )


def _switched_off(config: Any, switch: str) -> Any:
    table, name = switch.split(".")
    tables = getattr(config, table)
    off = msgspec.structs.replace(getattr(tables, name), enable=False)
    tables = msgspec.structs.replace(tables, **{name: off})
    return msgspec.structs.replace(config, **{table: tables})


def _piece(section: str, text: str) -> Loaded:
    return _read(f"[slo.{section}]\n{text}\n")


@cache
def _read(text: str) -> Loaded:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "koordlet.toml")
        file.write_text(text)
        return load(str(file))
