"""The daemon as a member of a cluster: from a write at the API server to the kernel, after an
outage, and what the membership costs."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bench.child import Daemon, daemon, prepare
from bench.figures import Figure, quantile
from bench.quota import Quota
from bench.tree import besteffort_of, kubepods_of, make_pods, scratch_root
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from tests.fakekube import FakeKube, serving

NODE = "bench-node"
CRDS = Path(__file__).parents[1] / "deploy" / "crds"
CONFIG = """
[node]
name = "{node}"
[sources]
kubepods_root = "{kubepods}"
cri = "off"
[nri]
enable = false
"""
CLUSTER = """
[cluster]
api = "{kubeconfig}"
kubelet = false
"""
UNLIMITED = float("inf")
MIB = 1 << 20
_SETTLE_S = 4.0


def run(smoke: bool, tell: Callable[[str], None]) -> list[Figure]:
    """Raises PermissionError without root."""
    pods, writes, outages, idle_s = (10, 3, 1, 3.0) if smoke else (110, 30, 5, 30.0)
    cgroups = Cgroups(host := LinuxHost(), detect(host))
    name = f"koordlet-bench-{os.getpid()}"
    with scratch_root(cgroups, name) as make:
        tell(f"making {pods} pods")
        make_pods(cgroups, make, name, pods, 2)
        quota = Quota(cgroups.path(besteffort_of(name), Resource.CPU_QUOTA_US))
        config = CONFIG.format(node=NODE, kubepods=kubepods_of(name))
        prepare()
        try:
            tell("alone")
            with daemon(config) as child:
                time.sleep(_SETTLE_S)
                alone = _cost(child, idle_s)
            return asyncio.run(_member(config, quota, alone, (writes, outages, idle_s), tell))
        finally:
            quota.close()


async def _member(
    config: str,
    quota: Quota,
    alone: tuple[float, float],
    sizes: tuple[int, int, float],
    tell: Callable[[str], None],
) -> list[Figure]:
    writes, outages, idle_s = sizes
    definitions = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
    async with serving(*definitions) as kube:
        with tempfile.TemporaryDirectory() as directory:
            more = CLUSTER.format(kubeconfig=_kubeconfig(directory, kube.url))
            _furnish(kube)
            return await asyncio.to_thread(
                _measure,
                config + more,
                quota,
                alone,
                (writes, outages, idle_s),
                _Hands(kube, asyncio.get_running_loop()),
                tell,
            )


def _measure(
    config: str,
    quota: Quota,
    alone: tuple[float, float],
    sizes: tuple[int, int, float],
    hands: _Hands,
    tell: Callable[[str], None],
) -> list[Figure]:
    writes, outages, idle_s = sizes
    with daemon(config) as child:
        time.sleep(_SETTLE_S)
        tell("idle")
        cpu, rss = _cost(child, idle_s)
        tell("writes")
        seen = [_switch(hands, quota, number % 2 == 0) for number in range(writes)]
        tell("outages")
        after = [_outage(hands, quota, number % 2 == writes % 2) for number in range(outages)]
    return [
        Figure("NodeSLO written to BE's limit in the kernel, median", quantile(seen, 0.5), "ms"),
        Figure("the same, slowest", max(seen), "ms", goal=200.0),
        Figure("server is back to what was missed in the kernel, slowest", max(after), "s", 5.0),
        Figure("CPU idle, % of a core, alone", alone[0], "%"),
        Figure("the same in a cluster", cpu, "%"),
        Figure("resident memory that the membership adds", rss - alone[1], "MiB"),
    ]


class _Hands:
    """What changes the server from another thread."""

    def __init__(self, kube: FakeKube, loop: asyncio.AbstractEventLoop) -> None:
        self.kube = kube
        self._loop = loop

    def do(self, work: Callable[[], object]) -> float:
        """Unix time at which it was done."""

        async def done() -> float:
            work()
            return time.time()

        return asyncio.run_coroutine_threadsafe(done(), self._loop).result()

    def slo(self, enable: bool) -> float:
        patch = {"spec": {"resourceUsedThresholdWithBE": {"enable": enable}}}
        resource = self.kube.resource("nodeslos")
        return self.do(lambda: self.kube.store.merge(resource, ("", NODE), patch))

    def away(self) -> None:
        self.kube.faults.down = True
        self.kube.faults.cut_watches()

    def back(self) -> None:
        self.kube.faults.down = False


def _switch(hands: _Hands, quota: Quota, enable: bool) -> float:
    """Milliseconds."""
    written = hands.slo(enable)
    limited = quota.wait(lambda us: (us < UNLIMITED) is enable, "the NodeSLO had no effect")
    time.sleep(0.3)
    return 1000 * (limited - written)


def _outage(hands: _Hands, quota: Quota, enable: bool) -> float:
    """Seconds."""
    hands.do(hands.away)
    time.sleep(20.0)  # the longest wait between two looks is reached
    hands.slo(enable)
    back = hands.do(hands.back)
    limited = quota.wait(lambda us: (us < UNLIMITED) is enable, "what was missed did not come")
    time.sleep(1.0)
    return limited - back


def _cost(child: Daemon, seconds: float) -> tuple[float, float]:
    """Percent of a core, MiB."""
    before = child.cpu_s()
    time.sleep(seconds)
    return 100 * (child.cpu_s() - before) / seconds, child.rss_bytes() / MIB


def _kubeconfig(directory: str, url: str) -> str:
    path = os.path.join(directory, "kubeconfig")
    tree: dict[str, Any] = {
        "current-context": "bench",
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(tree, file)
    return path


def _furnish(kube: FakeKube) -> None:
    use = {"enable": False, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
    slo = {"metadata": {"name": NODE}, "spec": {"resourceUsedThresholdWithBE": use}}
    kube.store.create(kube.resource("nodeslos"), "", slo)
    kube.store.create(kube.resource("nodes"), "", {"metadata": {"name": NODE}})
