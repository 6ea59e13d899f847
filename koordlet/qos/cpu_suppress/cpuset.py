"""Policy ``cpuset``: best-effort cgroups are confined to some CPUs
(docs/reference/qos.md 2.3 to 2.5)."""

from __future__ import annotations

import math
from collections.abc import Mapping

from koordlet.decision.cgroups import inside, parent
from koordlet.decision.names import shown
from koordlet.decision.plan import Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Node, Snapshot
from koordlet.decision.why import Input, Why
from koordlet.protocol import keys
from koordlet.protocol.cpuset import CPUSet, format_cpulist
from koordlet.qos.cpu_suppress.below import Below, look
from koordlet.qos.cpu_suppress.limit import GROWTH_PER_S, Applied, Limit, ramp
from koordlet.qos.cpu_suppress.pick import Pools, choose, full_set, pools
from koordlet.qos.cpu_suppress.quota import quota_for
from koordlet.qos.cpu_suppress.targets import KUBE_DEPTH, BestEffortGroup, Tree, inner, read_cpus

# Adding a tenth ten times must come out as one.
_ROUNDING = 1e-6

_NEEDED = frozenset(
    key.name
    for key in (
        keys.NODE_RESERVATION,
        keys.SYSTEM_QOS_RESOURCE,
        keys.CPU_MANAGER_POLICY,
        keys.POD_CPU_ALLOCS,
    )
)
"""Annotations of the node that say which CPUs are not for best effort, and whether kubelet's
static CPU manager needs broad directories."""
_STATIC = Why(
    "cpu-suppress.static-policy",
    "kubelet's static CPU manager needs wide pod directories; only containers are confined",
)


def minimum_cpus(node: Node) -> int:
    """CPUs that BE always keeps: 2, and 1 on a node that has no more than two."""
    return 2 if len(node.topology.cpus) > 2 else 1


def apply(
    snapshot: Snapshot, targets: tuple[BestEffortGroup, ...], limit: Limit, below: Below
) -> tuple[Applied, Below]:
    """Settings of the cpuset policy, and what is known of cgroups below pods and containers."""
    node = snapshot.node
    if unread := node.unread_annotations & _NEEDED:
        return Applied(None, notes=(_unread(unread),)), below
    every = pools(node, snapshot.pods)
    # kubelet gives such a CPU to other containers again as soon as its own has ended, so the broad
    # lists of directories and pods hold it.
    found = every.within(node.topology.ids - node.kubelet.static_cpus)
    least = minimum_cpus(node)
    current = {target: read_cpus(snapshot.in_force, target.cgroup) for target in targets}
    readable = [target for target in targets if current[target]]
    notes = [_unreadable(target) for target in targets if target not in readable]
    if node.cpus.isolated:
        notes.append(_isolated(node))
    if found.size < least:
        notes.append(_too_few(found, least))
    if found.size < least or not readable:
        return Applied(None, notes=tuple(notes)), below

    wanted = min(max(math.ceil(limit.milli / 1000), least), found.size)
    level = limit.level
    if level is None:
        level = len(current[readable[0]] or ())
    step = math.ceil(len(node.topology.cpus) * GROWTH_PER_S)
    level = max(ramp(level, wanted, step, limit.growth_s), least)
    count = min(math.floor(level + _ROUNDING), found.size)
    why = _why(limit, count, wanted)

    trees = {target: inner(snapshot, target) for target in targets}
    below = _look_below(snapshot, trees, below)
    settings: list[Setting] = []
    keep: list[tuple[str, Resource]] = []
    for target, known in trees.items():
        others = [each for each in below.followers if inside(each, target.cgroup)]
        tree = (*known, *((each, _level(each, target)) for each in others))
        allowed = read_cpus(snapshot.in_force, parent(target.cgroup)) or node.topology.ids
        chosen = choose(found, count)
        if not chosen <= allowed:
            chosen = choose(found.within(allowed), count)
        if target in readable and chosen:
            full = full_set(every) & allowed
            settings += _confined(snapshot, target, tree, chosen, full, why)
            if below.left_out and others:
                stand_in, note = _by_quota(snapshot, target, count, below)
                settings += stand_in
                notes.append(note)
            continue
        if target in readable:
            notes.append(_outside(target, allowed))
        keep += [(cgroup, Resource.CPUSET_CPUS) for cgroup, _ in tree]
    return Applied(level, count, tuple(settings), tuple(keep), tuple(notes)), below


def _look_below(snapshot: Snapshot, trees: Mapping[BestEffortGroup, Tree], below: Below) -> Below:
    """On v2 what is below a container needs no list: it runs on no more than its parents."""
    if not snapshot.node.rules.cpusets_nest:
        return Below()
    tops = (cgroup for tree in trees.values() for cgroup, _ in tree)
    in_force = snapshot.in_force
    return look(
        in_force, tops, below, lambda each: bool(in_force.value(each, Resource.CPUSET_CPUS))
    )


def _level(cgroup: str, target: BestEffortGroup) -> int:
    return cgroup.count("/") - target.cgroup.count("/")


def _by_quota(
    snapshot: Snapshot, target: BestEffortGroup, cpus: int, below: Below
) -> tuple[tuple[Setting, ...], Why]:
    """v1 does not shrink a list below one of a cgroup inside, and there are too many of these to
    write. A quota does not depend on them."""
    text = (
        f"{target.name}: too many cgroups inside have CPU lists of their own; {below.left_out} of "
        f"them, such as {shown(below.example)}, are not managed, so lists above them cannot "
        f"shrink; {target.name} gets a quota of {cpus} CPUs instead"
    )
    why = Why("cpu-suppress.crowd", text)
    return quota_for(snapshot, target, cpus, why), why


def _unread(names: frozenset[str]) -> Why:
    text = (
        f"annotation {', '.join(sorted(names))} of the node cannot be read, so koordlet does "
        "not know which CPUs belong to others or what kubelet expects; CPU lists stay as they are"
    )
    return Why("cpu-suppress.unread-node", text)


def _confined(
    snapshot: Snapshot,
    target: BestEffortGroup,
    tree: Tree,
    chosen: CPUSet,
    full: CPUSet,
    why: Why,
) -> list[Setting]:
    """Settings of a target and of what is below it.

    Kubernetes: QoS directory, pods, containers. With the static CPU manager policy of kubelet
    only containers are confined: kubelet rewrites their lists and expects broad parents. Whatever
    else has a list of its own follows, since v1 does not shrink a parent below it.
    """
    static = target.is_kube and snapshot.node.kubelet.static_policy
    pins = _pins(snapshot)
    settings = []
    for cgroup, level in tree:
        if static and level < KUBE_DEPTH:
            value, reason = full, _STATIC
        else:
            # A pod's own placement holds as far as its parent's new list lets it.
            pin = pins.get(cgroup) or pins.get(parent(cgroup)) or frozenset()
            value, reason = (pin & chosen) or chosen, why
        text = format_cpulist(value)
        settings.append(Setting(cgroup, Resource.CPUSET_CPUS, text, reason))
    return settings


def _pins(snapshot: Snapshot) -> dict[str, CPUSet]:
    return {
        pod.cgroup: pod.pinned_cpus
        for pod in snapshot.pods
        if pod.pinned_cpus and pod.is_active and inside(pod.cgroup, snapshot.node.tree.besteffort)
    }


def _why(limit: Limit, count: int, wanted: int) -> Why:
    text = f"{limit.text}; that makes {count} CPU{'s' if count != 1 else ''}"
    if count < wanted:
        text += f" now, growing to {wanted} by at most {GROWTH_PER_S:.0%} of the node per second"
    return Why("cpu-suppress.cpuset", text, (*limit.inputs, Input("CPUs wanted", wanted)))


def _isolated(node: Node) -> Why:
    text = (
        f"CPUs {format_cpulist(node.cpus.isolated)} are isolated on the kernel's command line; "
        "best effort is kept off them (node.best_effort_on_isolated_cpus)"
    )
    return Why("cpu-suppress.isolated", text)


def _unreadable(target: BestEffortGroup) -> Why:
    text = (
        f"{target.name}: cgroup {shown(target.cgroup)} has no CPU list that can be read; it is "
        "left as it is (on v1 the list may be empty; on v2 the parent must list cpuset in "
        "cgroup.subtree_control)"
    )
    return Why("cpu-suppress.no-cpuset", text)


def _too_few(found: Pools, least: int) -> Why:
    text = (
        f"BE needs at least {least} CPUs, but {found.size} are not reserved, isolated, "
        "exclusive to the system, held by LSE pods or by containers of kubelet's static policy; "
        "CPU lists stay as they are"
    )
    return Why("cpu-suppress.no-cpus", text)


def _outside(target: BestEffortGroup, allowed: CPUSet) -> Why:
    text = (
        f"{target.name}: the parent of {shown(target.cgroup)} allows CPUs "
        f"{format_cpulist(allowed)}, none of which BE may use; left as it is"
    )
    return Why("cpu-suppress.outside-parent", text)
