"""What ``doctor`` says, as far as daemon and command share it: the daemon's state, the kernel's
features and other managers on the node, each as ok, limited or fail."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from koordlet.admin.cluster import NODE_SLO_DEFINITION, ClusterView
from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.admin.model.status import CollectorView, StatusView, VerdictState
from koordlet.admin.nri_check import nri_check
from koordlet.decision.resource import Resource
from koordlet.decision.why import Capability
from koordlet.kernel.host import Host

# Without these nothing sensible can be decided or done; any other lack costs one feature.
ESSENTIAL = frozenset((Resource.CPU_QUOTA_US, Resource.CPUACCT_USAGE, Resource.MEMORY_STAT))

KERNEL = "kernel: "
"""How the names of checks of kernel features begin."""

_PSI = "boot with psi=1, on a kernel with CONFIG_PSI"
_CAPABILITY = "give koordlet CAP_SYS_RESOURCE (koordlet.service does, where the machine has it)"
REMEDIES: dict[str, str] = {
    "psi-node": _PSI,
    "psi-cgroup": f"use cgroup v2; {_PSI}",
    "psi-trigger-500ms": _CAPABILITY,
    "psi-trigger-100ms": _CAPABILITY,
    "cpu.cfs_burst_us": "use a kernel of 5.14 or later",
    "cpu.idle": "use a kernel of 5.15 or later",
    "cgroup.kill": "use a kernel of 5.14 or later",
}
_CORE_SCHED = "core-sched"
"""The hook, and the feature that it needs."""
_NO_REMEDY = "use a kernel or machine that has it, or do without"


@dataclass(frozen=True)
class Manager:
    """Another program that writes what koordlet writes. ``comm`` as in ``/proc/PID/comm``."""

    comm: str
    state: CheckState
    cost: str
    remedy: str


_SAME_JOB = "two managers write the same cgroup files; koordlet will back off from them"
MANAGERS: dict[str, Manager] = {
    manager.comm: manager
    for manager in (
        Manager("koordlet", CheckState.FAIL, _SAME_JOB, "stop the other koordlet"),
        Manager("crane-agent", CheckState.FAIL, _SAME_JOB, "stop crane-agent"),
        Manager("katalyst-agent", CheckState.FAIL, _SAME_JOB, "stop katalyst-agent"),
        Manager(
            "cgrulesengd",
            CheckState.LIMITED,
            "it moves processes to other cgroups, away from what koordlet set",
            "take the managed programs out of cgrules.conf",
        ),
        Manager(
            "numad",
            CheckState.LIMITED,
            "it changes CPU affinity and cpusets of busy processes",
            "stop numad, or exclude the managed processes (numad -x)",
        ),
    )
}


def of_status(status: StatusView) -> tuple[CheckView, ...]:
    """The state of a running daemon; what is well is one line, what is not says what it costs."""
    return (
        *_of_daemon(status),
        *_of_measuring(status),
        *_of_cluster(status.cluster),
        *_of_findings(status),
        *_of_core_scheduling(status),
        *of_capabilities(status.capabilities),
    )


def of_capabilities(capabilities: Iterable[Capability]) -> tuple[CheckView, ...]:
    return tuple(_of_capability(capability) for capability in capabilities)


def _of_capability(capability: Capability) -> CheckView:
    name = f"{KERNEL}{capability.feature}"
    if capability.supported:
        return CheckView(name=name, state=CheckState.OK, why=capability.why)
    return CheckView(
        name=name,
        state=CheckState.FAIL if capability.feature in ESSENTIAL else CheckState.LIMITED,
        why=capability.why,
        cost=capability.cost,
        remedy=capability.remedy or REMEDIES.get(capability.feature, _NO_REMEDY),
    )


def other_managers(host: Host, proc_root: str = "/proc") -> tuple[CheckView, ...]:
    """One line per other manager that runs, or one that says there is none."""
    found = sorted(_managers(host, proc_root), key=lambda pair: (pair[1].comm, pair[0]))
    if not found:
        return (
            CheckView(
                name="other managers",
                state=CheckState.OK,
                why=f"none of {', '.join(MANAGERS)} runs here",
            ),
        )
    return tuple(
        CheckView(
            name=f"other managers: {manager.comm}",
            state=manager.state,
            why=f"runs as pid {pid}",
            cost=manager.cost,
            remedy=manager.remedy,
        )
        for pid, manager in found
    )


def _managers(host: Host, proc_root: str) -> Iterator[tuple[int, Manager]]:
    for entry in host.subdirs(proc_root):
        if not entry.isdigit():
            continue
        try:
            comm = host.read(f"{proc_root}/{entry}/comm").decode(errors="replace").strip()
            manager = MANAGERS.get(comm)
            # Ours is a script, so its command line begins with the interpreter; the reference
            # is a program.
            if manager and not (comm == "koordlet" and _is_python(host, f"{proc_root}/{entry}")):
                yield int(entry), manager
        except OSError:
            continue  # the process has ended meanwhile


def _is_python(host: Host, directory: str) -> bool:
    program = host.read(f"{directory}/cmdline").split(b"\0")[0]
    return os.path.basename(program).startswith(b"python")


def _of_daemon(status: StatusView) -> Iterator[CheckView]:
    yield _of_verdict(status)
    reasons = "; ".join(status.not_ready)
    yield _check("daemon: ready", status.ready, reasons, "not everything is managed yet", "wait")
    yield _check(
        "daemon: configuration",
        not status.config.error,
        status.config.error,
        "the previous configuration stays in force",
        f"mend it, then `koordlet config check {status.config.file}`",
    )
    yield _check(
        "daemon: journal",
        status.journal.healthy,
        status.journal.why,
        "nothing is written, since originals cannot be recorded",
        f"make {status.journal.path} writable",
        state=CheckState.FAIL,
    )
    yield _check(
        "daemon: store",
        not status.tsdb.error,
        status.tsdb.error,
        "history is lost at a restart",
        f"make room in {status.tsdb.directory}",
    )
    yield _check(
        "daemon: decision log",
        not status.decision_log.error,
        status.decision_log.error,
        "`koordlet explain` forgets at a restart",
        f"make {status.decision_log.path} writable",
    )
    yield nri_check(status.nri)
    for endpoint in status.endpoints:
        yield _check(
            f"daemon: {endpoint.name} on {endpoint.address}",
            endpoint.listening,
            endpoint.error,
            "nobody can ask there",
            "free the address, or choose another one in the configuration",
        )


def _of_verdict(status: StatusView) -> CheckView:
    """Paused is a state that somebody wanted, and that nobody must overlook; what is degraded has
    checks of its own, and to observe is a choice."""
    name, found = "daemon: verdict", status.verdict
    if found.state is not VerdictState.PAUSED:
        return CheckView(name=name, state=CheckState.OK, why=found.line)
    return CheckView(
        name=name,
        state=CheckState.LIMITED,
        why=found.line,
        cost="nothing of what is paused is written; what it would be is shown",
        remedy="`koordlet resume` when it is time",
    )


def _of_measuring(status: StatusView) -> Iterator[CheckView]:
    for collector in status.collectors:
        yield _check(
            f"daemon: collector {collector.name}",
            (collector.success or bool(collector.missing)) and not collector.shed,
            "shed to keep koordlet within its budget" if collector.shed else collector.error,
            "what it measures is missing",
            "raise the budget in the configuration" if collector.shed else "see the error",
            well=f"not on this kernel: {collector.missing}"
            if collector.missing
            else "; ".join(filter(None, (collector.about, _of_rounds(collector)))),
        )
    for source in status.sources:
        yield _check(
            f"daemon: source {source.name}",
            source.synced and not source.error,
            source.error or "has not listed yet",
            "pods or applications it knows may be missing",
            "see the error" if source.error else "wait",
        )


def _of_cluster(cluster: ClusterView) -> Iterator[CheckView]:
    if not cluster.enabled:
        return
    yield _check(
        "cluster: API server",
        cluster.connected,
        cluster.error or "is not heard yet",
        "the node acts on what was last known, and nobody hears of it",
        "see the error; `koordlet status` shows how old what is known is",
        well=f"{cluster.server}, as {cluster.node}",
    )
    for each in cluster.objects:
        good = not each.error and each.state not in ("missing", "deleted", "last known")
        cost, remedy = _WITHOUT.get(each.kind, ("what it tells is not known", "see the error"))
        yield _check(
            f"cluster: {each.kind}",
            good,
            each.error or f"{each.name} is {each.state}".strip(),
            cost,
            remedy,
            well=f"{each.name} is {each.state}",
        )


_WITHOUT = {
    "Node": (
        "what the node offers, and CPUs that are reserved by annotation, are not known",
        "set node.name to the name of the Node",
    ),
    "NodeSLO": (
        "slo.file or the defaults apply, or what it said last",
        "run the manager (koord-scheduler run --roles manager), or koord-manager",
    ),
    NODE_SLO_DEFINITION: (
        "the API server drops what it does not have: set in a NodeSLO, it does not arrive here",
        "apply deploy/crds, which helm does not upgrade; slo.file can set what Koordinator's lacks",
    ),
    "Pod": (
        "pods are known by what runtimes say, or by kubelet",
        "see the error; the rights that koordlet needs are in deploy/",
    ),
    "kubelet": (
        "its CPU manager policy and pinned CPUs are not known",
        "see the error; cluster.kubelet_ca, or cluster.kubelet = false",
    ),
}
"""Kind -> what does not work without it, and what to do."""


def _of_rounds(collector: CollectorView) -> str:
    """How long koordlet itself is busy with it; empty before its first round."""
    if collector.last_duration_s is None:
        return ""
    took_ms = 1000 * collector.last_duration_s
    return f"a round each {collector.interval_s:g} s, the last one took {took_ms:.1f} ms"


def _of_findings(status: StatusView) -> Iterator[CheckView]:
    for conflict in status.conflicts:
        yield CheckView(
            name=f"second writer: {conflict.path}",
            state=CheckState.LIMITED,
            why=f"koordlet wrote {conflict.expected} and found {conflict.found}",
            cost="koordlet keeps its hands off for a while",
            remedy="find who writes this file and switch one of the two off",
        )
    for problem in status.problems:
        if problem.remedy:
            yield CheckView(
                name=problem.part,
                state=CheckState.LIMITED,
                why=problem.why,
                cost=problem.cost,
                remedy=problem.remedy,
            )
            continue
        yield CheckView(
            name=f"daemon: {problem.part}",
            state=CheckState.FAIL,
            why=problem.why,
            cost="this part of koordlet does not work; the rest goes on",
            remedy="see the log of koordlet for where it comes from",
        )
    for refused in status.refused_inputs:
        yield CheckView(
            name=f"refused input: {refused.subject}",
            state=CheckState.LIMITED,
            why=f"{refused.path}: {refused.message}",
            cost="it is treated as if it were absent",
            remedy="mend it where it is set",
        )


def _of_core_scheduling(status: StatusView) -> Iterator[CheckView]:
    """Whether it is used, where the kernel has it. Not to use it is a choice."""
    has = {each.feature for each in status.capabilities if each.supported}
    hook = next((each for each in status.strategies if each.name == _CORE_SCHED), None)
    if hook is None or has.isdisjoint((_CORE_SCHED, Resource.SYSCTL_SCHED_CORE)):
        return
    off = "hooks.core-sched.enable is false: groups may share hyperthreads of one core"
    why = hook.result if hook.enabled else off
    yield CheckView(name="daemon: core scheduling", state=CheckState.OK, why=why or "starting")


def _check(
    name: str,
    good: bool,
    why: str,
    cost: str,
    remedy: str,
    *,
    state: CheckState = CheckState.LIMITED,
    well: str = "",
) -> CheckView:
    if good:
        return CheckView(name=name, state=CheckState.OK, why=well or "works")
    return CheckView(name=name, state=state, why=why, cost=cost, remedy=remedy)
