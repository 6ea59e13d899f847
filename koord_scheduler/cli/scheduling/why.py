"""``koord-scheduler explain pod|gang|quota|node NAME``: why it is as it is, and what would change
that."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from koord_scheduler.cli.errors import BadInputError, WrongUseError
from koord_scheduler.cli.explain import main as explain_offers
from koord_scheduler.cli.output import amount as shown
from koord_scheduler.cli.output import clean, columns, emit
from koord_scheduler.cli.scheduling.outlook import Outlook, member_lines, of_member, outlook
from koord_scheduler.cli.scheduling.source import Looked, look, profiles_of
from koord_scheduler.kube.scheduling.journal import Entry
from koord_scheduler.kube.scheduling.loading import World
from koord_scheduler.kube.scheduling.shapes import PODS
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.cluster.verdict import FITS, REASONS
from koord_scheduler.plan import gangs
from koord_scheduler.plan.evaluator import GONE
from koord_scheduler.plan.explain import Explanation, condition, explain, table
from koord_scheduler.plan.outcomes import Failure
from koord_scheduler.plan.preemption.pods import Preemption, may_make_room
from koord_scheduler.plan.state import bare
from koord_scheduler.share.gang.summary import summary
from koord_scheduler.share.quota.answers import invoice
from koord_scheduler.share.quota.views import summary_of

_MOST_PODS = 20
_MOST_CHARACTERS = 2048
Tree = dict[str, Any]


def main(args: argparse.Namespace) -> int:
    """What it is about may be told by its name alone: a bare one is a node's, as ever; one with a
    slash a pod's, or a gang's."""
    what, name = args.what, args.name
    if not name and "/" not in what:
        return _offers(args, what)
    if not name:
        what, name = "", what
    elif what not in _ABOUT:
        raise WrongUseError(f"explain {what}: there are {', '.join(_ABOUT)}")
    looked = look(args, profiles_of(args), until=_before_bound(name, args))
    if not what:
        what = "pod" if looked.world.pod(name) is not None else "gang"
    tree, lines = _ABOUT[what](looked, name)
    emit(tree, args.output, lambda: lines)
    if what == "node" and not args.journal and args.output == "table":
        print()
        return _offers(args, name)
    return 0


def _offers(args: argparse.Namespace, name: str) -> int:
    """What the node offers to batch and mid pods."""
    args.node = name
    return explain_offers(args)


def _before_bound(name: str, args: argparse.Namespace) -> Callable[[Entry, World], bool] | None:
    """A journal is left where the pod gets its node, so that its decision is made again."""
    if not args.journal or args.at or "/" not in name:
        return None
    namespace, _, own = name.partition("/")
    kind = str(PODS)

    def until(entry: Entry, world: World) -> bool:
        if entry.k != kind or name not in world.waiting:
            return False
        tree = msgspec.json.decode(entry.o)
        meta = tree.get("metadata") or {}
        same = (meta.get("namespace"), meta.get("name")) == (namespace, own)
        return same and bool((tree.get("spec") or {}).get("nodeName"))

    return until


# Pods.


def _pod(looked: Looked, name: str) -> tuple[Tree, list[str]]:
    world = looked.world
    pod = world.pod(name)
    if pod is None:
        raise BadInputError(f"there is no pod {name!r} (write NAMESPACE/NAME)")
    engine = world.engine(pod)
    node = pod.node
    room: Tree = {}
    says = ""
    with world.cluster.trial():
        if node:
            world.cluster.remove(name)
            pod = bare(pod)
        found = explain(engine, pod)
        outcome = engine.place(pod)
        if isinstance(outcome, Failure):
            if not outcome.untried:
                found = msgspec.structs.replace(found, fits=0)
            room = _room(world, outcome)
            says = condition(outcome.text(), None, room.get("words", ""))
    gate = _gate(world, pod)
    gang = of_member(world, pod) if not node else {}
    tree: Tree = {
        "pod": name,
        "node": node,
        "scheduler": pod.scheduler,
        "decided_here": pod.scheduler in world.parts.engines,
        "gate": gate,
        **({"gang": gang} if gang else {}),
        **_tree(found),
        "preemption": room,
        "condition": world.said.get(name, ""),
        "says": says,
    }
    return tree, list(_pod_lines(tree, found, pod))


def _room(world: World, failure: Failure) -> Tree:
    """What preemption would do."""
    pod = failure.pod
    preemptor = world.parts.preemptors.get(pod.scheduler)
    may_help = world.parts.may_evict(pod) and may_make_room(world.engine(pod), failure)
    if preemptor is None or not may_help:
        return {}
    found = preemptor.preempt(pod, tuple(world.budgets.values()))
    if isinstance(found, Preemption):
        room = {"node": found.node, "victims": [each.key for each in found.victims]}
        return {**room, "elsewhere": dict(found.elsewhere)} if found.elsewhere else room
    return {"words": found.words}


def _gate(world: World, pod: Pod) -> str:
    book = world.parts.gangs
    return book.why_not_queued(pod) if book is not None and pod.gang else ""


def _tree(found: Explanation) -> Tree:
    return {
        "nodes": found.nodes,
        "fits": found.fits,
        "refused": found.refused,
        "reasons": [each._asdict() for each in found.against],
        "changes": [each._asdict() for each in found.changes],
        "best": [each._asdict() for each in found.best],
    }


def _pod_lines(tree: Tree, found: Explanation, pod: Pod) -> Iterator[str]:
    where = f"runs on {clean(tree['node'])}; now it" if tree["node"] else "waits; it"
    yield f"pod {clean(tree['pod'])} {where} fits on {found.fits} of {found.nodes} nodes"
    if not tree["decided_here"]:
        yield f"scheduler {clean(pod.scheduler)!r} decides for it; this is what we would say"
    if found.refused:
        yield f"refused whatever the nodes are: {clean(found.refused)}"
    if tree["gate"]:
        yield f"not tried yet: {clean(tree['gate'])}"
    yield from member_lines(tree.get("gang", {}))
    yield from _said_lines(tree)
    yield from _reason_lines(found)
    room = tree["preemption"]
    if room.get("victims"):
        others = sorted({*room.get("elsewhere", {}).values()})[:_MOST_PODS]
        nodes = ", ".join(map(clean, (room["node"], *others)))
        yield f"preemption: {len(room['victims'])} pods would go from {nodes}: " + (
            ", ".join(map(clean, room["victims"][:_MOST_PODS]))
        )
    elif room.get("words"):
        yield f"preemption: {clean(room['words'])}"


def _said_lines(tree: Tree) -> Iterator[str]:
    """Say what stands at the pod, and what would stand there now if that is something else."""
    live, says = tree["condition"][:_MOST_CHARACTERS], tree["says"]
    if live:
        yield f"its condition says: {clean(live)}"
    if live and says and says != live:
        yield f"decided now, it would say: {clean(says)}"
    elif live and not says:
        yield "decided now, it would get a node: what the condition names has changed since"


def _reason_lines(found: Explanation) -> Iterator[str]:
    if found.against:
        yield ""
        rows = [
            (str(e.nodes), str(e.only), e.plugin, e.text, ", ".join(e.opens[:3]))
            for e in found.against
        ]
        yield from columns((">NODES", ">ALONE", "PLUGIN", "REASON", "WOULD OPEN"), rows)
    if found.changes:
        yield ""
        yield from columns(
            ("SMALLEST CHANGE", "NODE"), ((each.words, each.node) for each in found.changes)
        )
    if found.best:
        yield ""
        head, lines = table(found.best)
        yield from columns(("#", "NODE", *(f">{name}" for name in head[2:])), lines)


# Gangs.


def _gang(looked: Looked, name: str) -> tuple[Tree, list[str]]:
    world = looked.world
    book = world.parts.gangs
    if book is None:
        raise BadInputError("this profile has no Coscheduling, so there are no gangs")
    said = summary(book, name)
    if said is None:
        raise BadInputError(f"there is no gang and no pod {name!r} (write NAMESPACE/NAME)")
    group = book.group_of(name)
    pending = book.pending(group)
    seen = outlook(world, group)
    tree: Tree = {**said, "gate": book.gate(group), "placed": {}, "why": "", "member": {}}
    tree["outlook"] = seen.tree()
    if pending:
        engine = world.engine(pending[0])
        with world.cluster.trial():
            outcome = gangs.place_group(engine, book, group, world.network)
        if isinstance(outcome, gangs.GroupPlaced):
            tree["placed"] = {each.pod.key: each.node for each in outcome.placements}
        else:
            tree["why"] = outcome.words
            if seen.lacks is not None:
                tree["member"] = {"pod": seen.lacks.pod, **_tree(seen.lacks)}
    return tree, list(_gang_lines(tree, seen))


def _gang_lines(tree: Tree, seen: Outlook) -> Iterator[str]:
    bound, children = tree["boundChildren"], tree["children"]
    yield (
        f"gang {clean(tree['name'])}: {tree['mode'] or 'not declared'}, "
        f"{len(bound)} of {len(children)} members have a node, "
        f"{tree['minRequiredNumber']} are needed ({tree['gangMatchPolicy'] or 'no policy'})"
    )
    if len(tree["gangGroup"]) > 1:
        yield f"placed together with: {', '.join(map(clean, tree['gangGroup']))}"
    if tree["gate"]:
        yield f"not tried yet: {clean(tree['gate'])}"
    elif tree["placed"]:
        yield "would be placed now:"
        yield from columns(("POD", "NODE"), tree["placed"].items())
    elif tree["why"]:
        yield clean(tree["why"])
    if tree["placed"]:
        return
    yield from seen.lines()
    if seen.lacks is not None:
        where = f"{seen.lacks.fits} of {seen.lacks.nodes} nodes"
        yield ""
        yield f"the next member, {clean(seen.lacks.pod)}, fits on {where} beside them"
        if seen.lacks.refused:
            yield f"refused whatever the nodes are: {clean(seen.lacks.refused)}"
        yield from _reason_lines(seen.lacks)


# Quotas.


def _quota(looked: Looked, name: str) -> tuple[Tree, list[str]]:
    quotas = looked.world.parts.quotas
    if quotas is None:
        raise BadInputError("this profile has no ElasticQuota, so quotas decide nothing")
    found = quotas.share(name)
    if found is None:
        said = quotas.problems.get(name)
        why = f": {said}" if said else ""
        raise BadInputError(f"there is no quota {name!r}, or it has no place{why}")
    tree, share = found
    waiting = [pod for pod, claim in quotas.pods_of(name) if claim is None]
    refused = {pod.key: said for pod in waiting if (said := quotas.admit(pod)) is not None}
    bill = invoice(quotas)
    answer: Tree = {
        **summary_of(quotas, tree, share),
        "waiting": len(waiting),
        "refused": refused,
        "borrowed": [e._asdict() for e in bill.loans if e.borrower == name],
        "lent": [e._asdict() for e in bill.loans if e.lender == name],
        "debts": [e._asdict() for e in bill.debts if e.quota == name],
    }
    return answer, list(_quota_lines(answer))


def _quota_lines(tree: Tree) -> Iterator[str]:
    parent = f" below {clean(tree['parentName'])}" if tree["parentName"] else ""
    yield f"quota {clean(tree['name'])}{parent}"
    yield ""
    names = sorted({*tree["max"], *tree["used"], *tree["request"]})
    rows = [
        (name, *(str(tree[k].get(name, "-")) for k in ("min", "max", "used", "request", "runtime")))
        for name in names
    ]
    yield from columns(("RESOURCE", ">MIN", ">MAX", ">USED", ">REQUEST", ">RUNTIME"), rows)
    for each in tree["borrowed"]:
        yield f"borrows {each['amount']} {each['resource']} of {clean(each['lender'] or 'nobody')}"
    for each in tree["lent"]:
        yield f"lends {each['amount']} {each['resource']} to {clean(each['borrower'])}"
    for each in tree["debts"]:
        yield f"must give back {each['amount']} {each['resource']}"
    yield f"{tree['waiting']} pods wait, {len(tree['refused'])} of them for this quota"
    counts = Counter(tree["refused"].values())
    yield from (
        columns(
            (">PODS", "REFUSED BECAUSE"),
            ((str(n), why) for why, n in counts.most_common(_MOST_PODS)),
        )
        if counts
        else ()
    )


# Nodes.


def _node(looked: Looked, name: str) -> tuple[Tree, list[str]]:
    world = looked.world
    cluster = world.cluster
    row = cluster.row.get(name)
    node = cluster.nodes[row] if row is not None else None
    if row is None or node is None:
        raise BadInputError(f"there is no node {name!r}")
    at = np.array([row], np.intp)
    against: Counter[tuple[str, str]] = Counter()
    lets_in = 0
    for pod in world.waiting.values():
        engine = world.engine(pod)
        codes = [int(why[0]) for why in engine.evaluator.every(pod.cls, at).values()]
        refusals = [code for code in codes if code not in (FITS, GONE)]
        lets_in += not refusals
        against.update((REASONS[code].plugin, REASONS[code].text) for code in refusals)
    amounts = {
        column: {
            "allocatable": int(cluster.allocatable[row, at]),
            "requested": int(cluster.requested[row, at]),
        }
        for at, column in enumerate(cluster.columns.names)
        if cluster.allocatable[row, at] or cluster.requested[row, at]
    }
    tree: Tree = {
        "node": name,
        "unschedulable": node.unschedulable,
        "ready": node.ready,
        "taints": [each._asdict() for each in node.taints],
        "pods": len(cluster.claims_on(row)),
        "resources": amounts,
        "waiting": len(world.waiting),
        "lets_in": lets_in,
        "reasons": [
            {"plugin": plugin, "text": text, "pods": number}
            for (plugin, text), number in against.most_common()
        ],
    }
    return tree, list(_node_lines(tree))


def _node_lines(tree: Mapping[str, Any]) -> Iterator[str]:
    flags = ["cordoned"] * tree["unschedulable"] + ["not ready"] * (not tree["ready"])
    taints = (f"{each['key']}={each['value']}:{each['effect']}" for each in tree["taints"])
    said = ", ".join(map(clean, (*flags, *taints)))
    yield f"node {clean(tree['node'])}: {tree['pods']} pods" + (f"; {said}" if said else "")
    yield ""
    rows: Iterable[tuple[str, ...]] = (
        (
            name,
            shown(name, each["allocatable"]),
            shown(name, each["requested"]),
            shown(name, each["allocatable"] - each["requested"]),
        )
        for name, each in tree["resources"].items()
    )
    yield from columns(("RESOURCE", ">ALLOCATABLE", ">REQUESTED", ">FREE"), rows)
    yield ""
    yield f"lets in {tree['lets_in']} of {tree['waiting']} pods that wait"
    if tree["reasons"]:
        rows = [(str(e["pods"]), e["plugin"], e["text"]) for e in tree["reasons"][:_MOST_PODS]]
        yield from columns((">PODS", "PLUGIN", "REFUSED BECAUSE"), rows)


_ABOUT: dict[str, Callable[[Looked, str], tuple[Tree, list[str]]]] = {
    "pod": _pod,
    "gang": _gang,
    "quota": _quota,
    "node": _node,
}
