"""CPU spread: threads of best-effort work are kept each on one CPU, as many on each.

Beside best-effort work that fills the CPUs, tasks of an ordinary service pile up behind each other
on one CPU while the other runs best effort: what the kernel's load balancer moves is what weighs
least, and that is best-effort work. Threads that stay where they are leave it the service's tasks
(``docs/concepts/cpu-spread.md``, with figures).
"""

from __future__ import annotations

from koordlet.decision import slo_keys
from koordlet.decision.cgroups import parent
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Snapshot
from koordlet.decision.strategy import Strategy
from koordlet.decision.why import Input, Why
from koordlet.protocol.cpuset import format_cpulist
from koordlet.qos.cpu_suppress.targets import read_cpus, targets

NAME = "cpu-spread"


def decide(snapshot: Snapshot, memory: None, _: Options = DEFAULTS) -> Decision:
    """The complete plan."""
    strategy = snapshot.slo.resource_qos_strategy if snapshot.slo is not None else None
    best_effort = strategy.be_class.cpu_qos if strategy and strategy.be_class else None
    if best_effort is None or not best_effort.enable:
        return Decision(Plan(NAME))
    if not snapshot.means.spread:
        text = (
            "threads run where they like: cpu-means has found, or tries, that this is better here"
        )
        return Decision(Plan(NAME), None, (Why("cpu-spread.means", text),))
    found, refused = targets(snapshot)
    settings, keep = [], []
    for target in found:
        cpus = read_cpus(snapshot.in_force, target.cgroup)
        cpus = cpus or read_cpus(snapshot.in_force, parent(target.cgroup))
        cpus = cpus or snapshot.node.topology.ids
        if not cpus:
            keep.append((target.cgroup, Resource.CPU_SPREAD))
            continue
        text = (
            f"{target.name}: each thread is kept on one of {len(cpus)} CPUs, as many on each, so "
            "that the kernel moves latency-sensitive tasks to where only best effort runs, and not "
            "the other way round"
        )
        facts = (Input("CPUs", format_cpulist(cpus)),)
        why = Why("cpu-spread.each", text, facts)
        settings.append(Setting(target.cgroup, Resource.CPU_SPREAD, format_cpulist(cpus), why))
    notes = tuple(Why("cpu-spread.left-alone", text) for text in refused)
    return Decision(Plan(NAME, tuple(settings), tuple(keep)), None, notes)


STRATEGY = Strategy(
    name=NAME,
    help="Keep each best-effort thread on one CPU, so that latency-sensitive tasks find another.",
    function=decide,
    initial=None,
    options=DEFAULTS,
    writes=(Resource.CPU_SPREAD,),
    switches=(slo_keys.of_classes("cpuQOS", "beClass"),),
    arguments=slo_keys.below(slo_keys.CLASSES, "beClass.cpuQOS.enable"),
)
