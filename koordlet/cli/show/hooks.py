"""``koordlet hooks``: what each hook would do to a pod, at which stage, and why.

The daemon tells it of pods that run here. A pod in a file is looked at without any daemon, as if
it were alone on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

from koordlet.admin.client import Client, NotReachableError
from koordlet.admin.runtime import HooksView
from koordlet.cli import output
from koordlet.cli.arguments import DEFAULT_CONFIG
from koordlet.cli.connect import socket_of
from koordlet.cli.main import Exit, complain, warn
from koordlet.cli.pod_file import read_pod
from koordlet.config.load import Loaded, load
from koordlet.decision.metrics import Aggregate, Metric, Reading
from koordlet.decision.resource import Resource, Value
from koordlet.decision.snapshot import Capability, Node, Pod, Snapshot, Wake
from koordlet.decision.strategy import AnyHook, Level
from koordlet.engine.options import enabled_hooks, node_options
from koordlet.engine.parts import node_name
from koordlet.hooks import HOOKS, describe
from koordlet.hooks.combine import in_guest
from koordlet.hooks.describe import Action, HookRow
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.kubepods import Kubepods, find
from koordlet.kernel.cgroup.layout import Layout, detect
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.parse import ParseError
from koordlet.kernel.probe.probe import probe
from koordlet.kernel.topology import read_topology
from koordlet.state.node import memory_bytes, node_of, read_hardware

_ASSUMED = "not tried, taken as there"
_NO_TREE = Kubepods("kubepods")


def main(args: argparse.Namespace) -> int:
    """1 where something in the pod of a file is refused."""
    output.log_to_stderr()
    if args.file and args.target:
        return complain("give a pod of this node or a file, not both", Exit.USAGE)
    try:
        loaded = load(args.config or DEFAULT_CONFIG, missing_ok=args.config is None)
        view = _ask_daemon(args, loaded) or _look(loaded, args.file, try_kernel=not args.no_probe)
    except (OSError, ParseError) as error:
        return complain(f"this machine cannot be looked at: {error}", Exit.BAD)
    output.emit(view, args.output, lambda: lines(view))
    return Exit.BAD if args.file and view.faults else Exit.OK


def _ask_daemon(args: argparse.Namespace, loaded: Loaded) -> HooksView | None:
    """None: it is not needed, or does not run and the table of hooks can do without it."""
    if args.file or (args.no_probe and not args.target):
        return None
    try:
        with Client(socket_of(args, loaded.config)) as client:
            return client.hooks(args.target)
    except NotReachableError as error:
        if args.target:
            raise
        warn(f"{error} What follows was found without it.")
        return None


def _look(loaded: Loaded, file: str | None, *, try_kernel: bool) -> HooksView:
    """Without a daemon. Raises ConfigErrors for the file, OSError and ParseError for the host."""
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


def lines(view: HooksView) -> list[str]:
    if not view.target:
        return [line for row in view.hooks for line in _about_hook(row)]
    found = output.wrap(output.clean(f"{view.target}: {view.matched}"))
    for subject, actions in groupby(view.actions, key=_subject):
        found += ["", subject]
        for action in actions:
            found += _about_action(action)
    acting = {action.hook for action in view.actions}
    idle = [f"{row.name}: {_why_not(row)}" for row in view.hooks if row.name not in acting]
    refused = [output.clean(f"{fault.path}: {fault.message}") for fault in view.faults]
    return [
        *found,
        *output.section("Refused inputs", refused),
        *output.section("No word from", idle),
    ]


def _about_hook(row: HookRow) -> Iterator[str]:
    state = "on" if row.enabled else "off"
    if not row.available:
        state += ", not possible here"
    needs = (
        each.feature if each.available else f"{each.feature} (missing: {each.why})"
        for each in row.needs
    )
    facts: Mapping[str, str] = {
        "levels": ", ".join(row.levels),
        "asked at": ", ".join(row.stages) or "no stage; it is reconciled",
        "sets": ", ".join(row.writes),
        "overrides": ", ".join(row.overrides),
        "needs one of" if len(row.needs) > 1 else "needs": "; ".join(needs),
        "without": row.without,
    }
    yield f"{row.name} ({state})"
    for name, text in facts.items():
        if text:
            yield from output.wrap(output.clean(f"{name}: {text}"), "  ", "    ")


def _subject(action: Action) -> str:
    name = f" {action.container}" if action.level is Level.CONTAINER else ""
    return output.clean(f"{action.level}{name} ({action.cgroup})")


def _about_action(action: Action) -> list[str]:
    what = f"{action.name} = {action.value}" if action.name else action.kind
    if action.name and action.kind != "setting":
        what = f"{action.kind} {what}"
    when = f", at {', '.join(action.stages)}" if action.stages else ""
    overridden = f"; {action.overridden_by} overrides it" if action.overridden_by else ""
    return [
        *output.wrap(output.clean(f"{what}, by {action.hook}{when}{overridden}"), "  ", "    "),
        *output.wrap(output.clean(action.why.text), "    "),
        *(line for text in _has(action) for line in output.wrap(output.clean(text), "    ")),
    ]


def _has(action: Action) -> Iterator[str]:
    """What is there instead of what should be; nothing where it is the same."""
    if action.missed:
        has = "does not have it" if action.has is None else f"has {action.has}"
        needs = "" if action.kind == "env" else " (mounts and devices need NRI)"
        yield f"{has}: the container was created without it; restart the pod to mend that{needs}"
    elif action.has not in (None, action.value) and not action.overridden_by:
        yield f"has {action.has}"


def _why_not(row: HookRow) -> str:
    if not row.enabled:
        return "switched off"
    if not row.available:
        return f"not possible here{f': {row.without}' if row.without else ''}"
    if row.levels == (Level.NODE,):
        return "it speaks about the whole node"
    return "nothing in this pod asks for it"
