"""A busy node on the fake kernel, with every hook or none: what the hook bench asks about.

A third of the pods is best effort with batch resources, some have CPUs of their own, most are
latency sensitive or have no class. Its kernel has group identity, so that every cgroup has at least
one value of a hook.
"""

from __future__ import annotations

import gc
import json
import uuid
from pathlib import Path

from koordlet_fakefs import FakeHost, shape

from koordlet.config.load import load
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, Resources
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, Parts, build
from koordlet.hooks import HOOKS
from koordlet.protocol import keys
from koordlet.protocol.cpuset import format_cpulist
from koordlet.qos import STRATEGIES

_CONFIG = """
[node]
name = "bench"
[paths]
state_dir = "{0}/state"
run_dir = "{0}/run"
[api]
socket = "{0}/run/koordlet.sock"
[nri]
enable = true
socket = "{0}/nri.sock"
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
[slo.resourceQOSStrategy.lsClass.cpuQOS]
enable = true
groupIdentity = 2
[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true
groupIdentity = -1
[slo.resourceQOSStrategy.beClass.networkQOS]
enable = true
egressLimit = 50
[slo.systemStrategy]
totalNetworkBandwidth = "10G"
[[applications]]
name = "batch"
cgroup = "batch"
qos = "BE"
"""
_BATCH = {
    "requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"},
    "limits": {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "2Gi"},
}
_PINNED_CPUS = 2
_MOST_PINNED = 15
_TIERS = ("burstable", "besteffort", "guaranteed")


class Node:
    """``pods`` of two containers and a sandbox each, all of them known."""

    def __init__(self, directory: Path, pods: int, *, hooks: bool = True) -> None:
        topology = shape(sockets=2, cores_per_l3=16, smt=2)
        self.host = FakeHost("hybrid", step_s=1.0, topology=topology, anolis=True)
        self.host.make_cgroup("batch")
        self.pods = [self.make(number) for number in range(pods)]
        file = directory / "koordlet.toml"
        text = _CONFIG.format(directory)
        others = STRATEGIES.keys() - {"cpu-suppress"}
        text += "".join(f"[strategies.{name}]\nenable = false\n" for name in sorted(others))
        text += "".join(f"[hooks.{each}]\nenable = {str(hooks).lower()}\n" for each in HOOKS)
        file.write_text(text)
        loaded = load(str(file))
        self.parts: Parts = build(
            self.host,
            loaded.config,
            Callbacks(lambda: None, lambda wake: None, lambda outcome: self.engine.heard(outcome)),
        )
        self.engine = Engine(self.parts, loaded)
        self.parts.state.start()
        self.engine.rescan()
        self.parts.reported["nri"].replace(self.pods)
        self.engine.set_capabilities([Capability(str(each), True, "") for each in Resource])
        self.engine.changed()
        # What the collector of garbage would look through is mostly the fake kernel.
        gc.collect()
        gc.freeze()

    def stop(self) -> None:
        parts = self.parts
        parts.alarms.close()
        parts.worker.close()
        parts.state.stop()
        parts.runner.close()
        parts.decisions.close()
        parts.store.close()

    def make(self, number: int) -> PodFacts:
        """What kubelet and the runtime make of the pod, and what the runtime tells of it."""
        uid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"pod {number}"))
        ids = [f"{number:032x}{part:032x}" for part in range(3)]
        qos = _TIERS[number % 3]
        groups = self.host.make_pod(qos=qos, uid=uid, containers=ids)
        labels, annotations = _labels(number)
        sandbox, *containers = zip(ids, groups.containers, strict=True)
        limits = Resources(limit_cpu_milli=500) if qos == "guaranteed" else None
        return PodFacts(
            uid,
            cgroup=groups.pod,
            name=f"pod-{number}",
            namespace="default",
            labels=labels,
            annotations=annotations,
            resources=limits,
            ips=(f"10.0.{number // 250}.{number % 250 + 1}",),
            containers=(
                ContainerFacts(f"containerd://{sandbox[0]}", sandbox[1], "", True),
                *(
                    ContainerFacts(
                        f"containerd://{each}",
                        cgroup,
                        f"main-{place}",
                        False,
                        requested={Resource.CPU_SHARES: 1024},
                    )
                    for place, (each, cgroup) in enumerate(containers)
                ),
            ),
        )


def _labels(number: int) -> tuple[dict[str, str], dict[str, str]]:
    """Labels and annotations."""
    if number % 3 == 1:
        spec = {"containers": {f"main-{place}": _BATCH for place in range(2)}}
        annotations = {keys.EXTENDED_RESOURCE_SPEC.name: json.dumps(spec)}
        if number % 4 == 0:
            annotations[keys.NETWORK_QOS.name] = json.dumps({"egressLimit": "100M"})
        return {keys.QOS_CLASS.name: "BE", keys.PRIORITY_CLASS.name: "koord-batch"}, annotations
    if number % 3 == 2 and number < 3 * _MOST_PINNED:
        first = number // 3 * _PINNED_CPUS
        status = {"cpuset": format_cpulist(range(first, first + _PINNED_CPUS))}
        return {keys.QOS_CLASS.name: "LSR"}, {keys.RESOURCE_STATUS.name: json.dumps(status)}
    if number % 6 == 0:
        annotations = {keys.OOM_SCORE_ADJ.name: "-500"} if number % 12 == 0 else {}
        return {keys.QOS_CLASS.name: "LS"}, annotations
    return {}, {}
