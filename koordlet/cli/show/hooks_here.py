"""Effects of hooks, looked at without a daemon: on this machine, and to a pod in a file as if it
were alone on it."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable

from koordlet.admin.runtime import HooksView
from koordlet.cli.main import warn
from koordlet.cli.pod_file import read_pod
from koordlet.config.load import Loaded
from koordlet.decision.metrics import Aggregate, Metric, Reading
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Capability, Node, Pod, Snapshot, Wake
from koordlet.decision.strategy import AnyHook
from koordlet.engine.options import enabled_hooks, node_options
from koordlet.engine.parts import node_name
from koordlet.hooks import HOOKS, describe
from koordlet.hooks.combine import in_guest
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import Kubepods, find
from koordlet.kernel.cgroup.layout import Layout, detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.probe.probe import probe
from koordlet.kernel.topology import read_topology
from koordlet.state.node import memory_bytes, node_of, read_hardware

_ASSUMED = "not tried, taken as there"
_NO_TREE = Kubepods("kubepods")


def look(loaded: Loaded, file: str | None, *, try_kernel: bool) -> HooksView:
    """Look without a daemon. Raises ConfigErrors for the file, OSError and ParseError for the
    host."""
    host, paths = LinuxHost(), loaded.config.paths
    layout = detect(host, cgroup_root=paths.cgroup_root, proc_root=paths.proc_root)
    tree = find(Cgroups(host, layout), loaded.config.sources.kubepods_root) or _NO_TREE
    running = enabled_hooks(loaded.config)
    every = tuple(HOOKS.values())
    if try_kernel and os.geteuid() != 0:
        warn("trying kernel features takes root: all are taken as there")
        try_kernel = False
    tried = _probed(host, layout, loaded) if try_kernel else _assumed((*every, *running))
    node = node_of(
        node_options(loaded.config, node_name(loaded.config)),
        read_topology(host, paths.sys_root),
        memory_bytes(host, paths.proc_root),
        tried,
        tree,
        read_hardware(host, sys_root=paths.sys_root, proc_root=paths.proc_root),
    )
    rows = describe.table(every, node, running)
    if file is None:
        return HooksView(hooks=rows)
    pod = read_pod(file, tree)
    actions = describe.actions(running, _alone(pod, node, loaded), describe.of_pod(pod.uid))
    matched = f"{pod.qos} {pod.title}, kube class {pod.kube_qos}, alone on this node"
    return HooksView(
        target=file,
        matched="; ".join(filter(None, (matched, in_guest(pod)))),
        hooks=rows,
        actions=actions,
        faults=pod.faults,
    )


def _probed(host: LinuxHost, layout: Layout, loaded: Loaded) -> dict[str, Capability]:
    paths = loaded.config.paths
    found = asyncio.run(probe(host, layout, proc_root=paths.proc_root, sys_root=paths.sys_root))
    return {capability.feature: capability for capability in found}


def _assumed(every: Iterable[AnyHook]) -> dict[str, Capability]:
    return {need: Capability(need, True, _ASSUMED) for hook in every for need in hook.needs}


def _alone(pod: Pod, node: Node, loaded: Loaded) -> Snapshot:
    return Snapshot(
        now=time.monotonic(),
        time=time.time(),
        wake=Wake(),
        node=node,
        pods=(pod,),
        applications=(),
        slo=loaded.slo,
        metrics=_NoMetrics(),
        in_force=_NothingThere(),
    )


class _NoMetrics:
    """``MetricView`` of a pod that never ran."""

    def read(
        self,
        metric: Metric,
        labels: tuple[str, ...] = (),
        *,
        window_s: float,
        aggregate: Aggregate = Aggregate.LAST,
    ) -> Reading | None:
        return None

    def newest(self, metric: Metric, *, window_s: float) -> dict[tuple[str, ...], Reading]:
        return {}


class _NothingThere:
    """``InForce`` of a pod whose cgroups are not made."""

    def value(self, cgroup: str, resource: Resource) -> Value | None:
        return None

    def reaches(self, cgroup: str, resource: Resource, least: int) -> bool:
        return False

    def original(self, cgroup: str, resource: Resource) -> Value | None:
        return None

    def without(self, owner: str, cgroup: str, resource: Resource) -> Value | None:
        return None

    def is_ours(self, cgroup: str, resource: Resource) -> bool:
        return False

    def children(self, cgroup: str, of: Resource | None = None) -> tuple[str, ...]:
        return ()
