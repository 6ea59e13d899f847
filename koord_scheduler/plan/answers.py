"""Answers of a ScheduleExplanation: an attempt that changes nothing
(docs/reference/central.md 9.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Rows
from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.model.cluster.verdict import FITS, REASONS
from koord_scheduler.plan import gangs
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.explain import MOST_NODES
from koord_scheduler.plan.network import Network
from koord_scheduler.plan.outcomes import Failure
from koord_scheduler.plan.preemption.budgets import Budget
from koord_scheduler.plan.preemption.jobs import JobPreemption
from koord_scheduler.plan.preemption.pods import Ledger, Preemption, Preemptor, may_make_room
from koord_scheduler.share.gang.book import Gangs
from koordlet.protocol.objects.explanation import (
    DetailedExplanation,
    NodeFailedDetail,
    NodePossibleVictims,
    PodOnNode,
    PossibleVictim,
    Scheduling,
)

MOST_DOMAINS = 64
_MOST_PODS = 100
_MOST_CHARACTERS = 1024


def domains(cluster: Cluster, key: str) -> dict[str, Rows]:
    """Rows by the value of a label of nodes, the first ``MOST_DOMAINS`` values by name."""
    found: dict[str, list[int]] = {}
    for row, node in enumerate(cluster.nodes):
        if node is not None and (value := node.labels.get(key)):
            found.setdefault(value, []).append(row)
    return {value: np.array(found[value], np.intp) for value in sorted(found)[:MOST_DOMAINS]}


def of_pod(
    engine: Engine,
    pod: Pod,
    preemptor: Preemptor | None = None,
    budgets: Iterable[Budget] = (),
    *,
    rows: Rows | None = None,
    domain: str = "",
) -> DetailedExplanation:
    """``rows``: of ``domain``; evictions are looked for on all nodes alone. Raises PluginError."""
    claim = engine.cluster.claims.get(pod.key)
    if claim is not None:
        return _has_node(engine.cluster, claim, rows, domain)
    with engine.cluster.trial():
        outcome = engine.place(pod, rows)
    if not isinstance(outcome, Failure):
        done = Scheduling(schedulable=True, feasible_scheduling_result=(_on(pod, outcome.node),))
        return DetailedExplanation(
            topology_domain=domain, schedulable=True, schedule_explanation=done
        )
    words = outcome.text()[:_MOST_CHARACTERS]
    scheduling = Scheduling(
        failed_message=words, node_failed_details=_details(engine, outcome, rows)
    )
    found = None
    may_help = may_make_room(engine, outcome)
    if preemptor is not None and rows is None and may_help:
        found = preemptor.preempt(pod, budgets)
    victims: Mapping[str, tuple[Pod, ...]] = {}
    after = None
    if isinstance(found, Preemption):
        victims, after = found.by_node(), _after(engine, pod, found)
    elif found is not None:
        after = Scheduling(failed_message=found.words[:_MOST_CHARACTERS])
    return DetailedExplanation(
        topology_domain=domain,
        schedulable_after_preemption=after is not None and after.schedulable,
        failed_message=words,
        schedule_explanation=scheduling,
        node_possible_victims=_victims(engine, victims),
        preempt_explanation=after,
    )


def of_group(
    engine: Engine,
    book: Gangs,
    group: str,
    network: Network | None = None,
    ledger: Ledger | None = None,
) -> DetailedExplanation:
    """Of the members of a gang group that have no node."""
    with engine.cluster.trial():
        outcome = gangs.place_group(engine, book, group, network)
    if isinstance(outcome, gangs.GroupPlaced):
        nodes = [_on(each.pod, each.node) for each in outcome.placements[:_MOST_PODS]]
        left = outcome.left[0].text()[:_MOST_CHARACTERS] if outcome.left else ""
        done = Scheduling(
            schedulable=not left, failed_message=left, feasible_scheduling_result=tuple(nodes)
        )
        return DetailedExplanation(
            schedulable=not left, failed_message=left, schedule_explanation=done
        )
    words = outcome.words[:_MOST_CHARACTERS]
    details = _details(engine, outcome.root, None) if outcome.root is not None else ()
    found = gangs.make_room(engine, book, outcome, ledger, network)
    victims: Mapping[str, tuple[Pod, ...]] = {}
    if isinstance(found, JobPreemption):
        by_key = {pod.key: pod for pod in outcome.pods}
        nominated = sorted(found.nominations.items())[:_MOST_PODS]
        nodes = [_on(by_key[key], node) for key, node in nominated if key in by_key]
        victims = found.victims
        after = Scheduling(schedulable=True, feasible_scheduling_result=tuple(nodes))
    else:
        after = Scheduling(failed_message=found.words[:_MOST_CHARACTERS])
    return DetailedExplanation(
        schedulable_after_preemption=after.schedulable,
        failed_message=words,
        schedule_explanation=Scheduling(failed_message=words, node_failed_details=details),
        node_possible_victims=_victims(engine, victims),
        preempt_explanation=after,
    )


def _has_node(
    cluster: Cluster, claim: Claim, rows: Rows | None, domain: str
) -> DetailedExplanation:
    here = rows is None or cluster.row.get(claim.node, -1) in rows
    words = "" if here else f"it has a node already: {claim.node}"
    where = (_on(claim.pod, claim.node),) if here else ()
    done = Scheduling(schedulable=here, failed_message=words, feasible_scheduling_result=where)
    return DetailedExplanation(
        topology_domain=domain,
        schedulable=here,
        failed_message=words,
        schedule_explanation=done,
    )


def _details(engine: Engine, failure: Failure, rows: Rows | None) -> tuple[NodeFailedDetail, ...]:
    """By the first reason against each node, sorted by plugin and reason."""
    if failure.refused_by:
        return ()
    pod = failure.pod
    why = engine.evaluator.judge(pod.cls, rows, engine.veto(pod)).why
    asked = np.arange(len(why)) if rows is None else rows
    found = []
    for code in np.unique(why[asked]).tolist():
        if code <= FITS:
            continue
        reason = REASONS[code]
        nodes = (engine.cluster.nodes[row] for row in asked[why[asked] == code][:MOST_NODES])
        names = tuple(node.name for node in nodes if node is not None)
        found.append((reason.plugin, reason.text, not reason.unresolvable, names))
    return tuple(
        NodeFailedDetail(
            failed_plugin=plugin, reason=text, preempt_might_help=helps, failed_nodes=names
        )
        for plugin, text, helps, names in sorted(found)
    )


def _after(engine: Engine, pod: Pod, found: Preemption) -> Scheduling:
    with engine.cluster.trial():
        for victim in found.victims:
            engine.cluster.remove(victim.key)
        outcome = engine.place(pod, np.array([engine.cluster.row[found.node]], np.intp))
    if isinstance(outcome, Failure):
        # Those that end there anyway still have their room.
        return Scheduling(schedulable=not found.victims, failed_message=outcome.text())
    return Scheduling(schedulable=True, feasible_scheduling_result=(_on(pod, outcome.node),))


def _victims(
    engine: Engine, by_node: Mapping[str, tuple[Pod, ...]]
) -> tuple[NodePossibleVictims, ...]:
    return tuple(
        NodePossibleVictims(
            node_name=node,
            possible_victims=tuple(
                PossibleVictim(
                    namespace=pod.cls.namespace,
                    name=_name(pod),
                    uid=pod.uid,
                    is_nominated_pod=pod.key in engine.nominated.get(node, {}),
                )
                for pod in pods[:_MOST_PODS]
            ),
        )
        for node, pods in sorted(by_node.items())[:_MOST_PODS]
    )


def _on(pod: Pod, node: str) -> PodOnNode:
    return PodOnNode(namespace=pod.cls.namespace, name=_name(pod), uid=pod.uid, node_name=node)


def _name(pod: Pod) -> str:
    return pod.key.rpartition("/")[2]
