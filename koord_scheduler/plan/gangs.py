"""A gang group as one decision: enough of its members at once, or none
(docs/reference/central.md 3.4).

The reference lets members wait with their nodes until enough of them have one. Here all are tried
in one trial, so that nobody waits with resources that others could use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from koord_scheduler.model.annotations import NAME as ANNOTATIONS
from koord_scheduler.model.annotations import unbearable
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.model.cluster.verdict import FITS, reason
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.plan.network import Network, place_job
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.preemption.jobs import (
    JobPreemption,
    NoJobPreemption,
    preempt_for_job,
)
from koord_scheduler.plan.preemption.pods import Ledger
from koord_scheduler.plan.queue import Unit
from koord_scheduler.share.gang.book import Gangs, bind_annotations
from koord_scheduler.share.gang.declared import NAME, Policy
from koord_scheduler.share.gang.permit import missing_of

UNIT = "gang:"
BEGUN_PRIORITY = 1 << 31
"""Above that of every pod."""
_TOO_FEW = reason(NAME, "node(s) had room for too few members of the gang")
_MOST_CHARACTERS = 1024
_FIRST_LOOK = frozenset({NAME})


class GroupPlaced(msgspec.Struct, frozen=True):
    """``placements`` count in the cluster; their annotations name the group. ``left``: members
    that found no node, and without which the others may start."""

    group: str
    placements: tuple[Placement, ...]
    left: tuple[Failure, ...] = ()


class GroupFailed(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing has changed. ``root``: the failure of the member that all others fail with; None
    where the group may not be tried at all. ``refused_by`` is for `Queue.failed`."""

    group: str
    pods: tuple[Pod, ...]
    words: str
    root: Failure | None = None
    refused_by: frozenset[str] = _FIRST_LOOK

    def text(self, key: str) -> str:
        """The message of the condition of a member."""
        if self.root is not None and self.root.pod.key == key:
            return self.root.text()
        return self.words


def unit(gangs: Gangs, group: str, now_s: float) -> Unit | None:
    """The group in the queue; None where no member waits for a node. A group that an earlier leader
    began to bind is tried before all others. It looks at all members: ask once for a batch of
    changes."""
    unplaced = gangs.unplaced(group)
    pods = [pod for pod in unplaced if not pod.gates] or unplaced
    if not pods:
        return None
    priority = BEGUN_PRIORITY if gangs.comes_first(group, now_s) else pods[0].cls.priority
    return Unit(
        UNIT + group,
        priority,
        min(pod.created_s for pod in pods),
        tuple(pod.key for pod in pods),
        gangs.gate(group),
    )


def place_group(
    engine: Engine, gangs: Gangs, group: str, network: Network | None = None
) -> GroupPlaced | GroupFailed:
    """Members of a strict gang all fail with the first one that finds no node, unless enough have
    one by then; of a gang that is not strict the others are tried still."""
    pods = gangs.unplaced(group)
    if not pods:
        return GroupPlaced(group, ())
    said = gangs.gate(group)
    if said:
        return GroupFailed(group=group, pods=tuple(pods), words=said)
    pods = gangs.pending(group)
    if gangs.free(group):
        return _one_by_one(engine, group, pods)
    try:
        return _as_one(engine, gangs, group, pods, network)
    except PluginError as error:
        failure = Failure(pod=pods[0], refused_by=error.plugin, words=str(error))
        return _failed(engine, group, pods, failure, 0)


def _as_one(
    engine: Engine, gangs: Gangs, group: str, pods: Sequence[Pod], network: Network | None
) -> GroupPlaced | GroupFailed:
    asked = topology_of(gangs, group)
    if asked:
        outcome = place_job(engine, network, asked, pods)
        if isinstance(outcome, Failure):
            return _failed(engine, group, pods, outcome, 0)
        return _placed(engine, group, outcome, ())
    begun = gangs.begun(group, engine.cluster.now_s)
    short = _impossible(engine, gangs, group, pods, begun)
    if short is not None:
        return _failed(engine, group, pods, short, 0)
    return _together(engine, gangs, group, pods, begun)


class _Tried(NamedTuple):
    done: list[Placement]
    left: list[Failure]
    root: Failure | None


def _together(
    engine: Engine, gangs: Gangs, group: str, pods: Sequence[Pod], begun: bool
) -> GroupPlaced | GroupFailed:
    with engine.cluster.trial():
        done, left, root = _try(engine, gangs, group, pods, begun)
    if root is not None:
        return _failed(engine, group, pods, root, len(done))
    return _placed(engine, group, done, left)


def _try(engine: Engine, gangs: Gangs, group: str, pods: Sequence[Pod], begun: bool) -> _Tried:
    """In a trial. ``root`` is None where enough members have a node in the end."""
    done: list[Placement] = []
    left: list[Failure] = []
    waiting: Counter[str] = Counter()
    untried = Counter(pod.gang for pod in pods)
    failed: dict[int, Failure] = {}
    enough = False
    for pod in pods:
        untried[pod.gang] -= 1
        outcome = _again(failed, pod) or engine.place(pod)
        if isinstance(outcome, Placement):
            done.append(outcome)
            waiting[pod.gang] += 1
            continue
        failed[pod.cls.number] = outcome
        left.append(outcome)
        enough = enough or not any(_missing(gangs, group, waiting, begun).values())
        if enough:
            continue
        gang = gangs.gang(pod.gang)
        alone = gang is not None and gang.policy is Policy.ONCE_SATISFIED and gangs.satisfied(group)
        if gang is not None and gang.strict and not alone:
            return _Tried(done, left, outcome)
        missing = _missing(gangs, group, waiting, begun)
        if any(number > untried[each] for each, number in missing.items()):
            return _Tried(done, left, left[0])
    if enough or not any(_missing(gangs, group, waiting, begun).values()):
        return _Tried(done, left, None)
    return _Tried(done, left, left[0] if left else _too_few(pods[0]))


def _missing(gangs: Gangs, group: str, waiting: Counter[str], begun: bool) -> dict[str, int]:
    return {
        each: missing_of(gangs.members(each, waiting[each], begun))
        for each in gangs.gangs_of(group)
    }


def _again(failed: dict[int, Failure], pod: Pod) -> Failure | None:
    """Nodes that all refused a pod of the class refuse this one too; a gate is asked anew, and so
    is who looks at other pods, which have come meanwhile."""
    known = failed.get(pod.cls.number)
    if known is None or known.refused_by or pod.nominated or pod.cls.affinity or pod.cls.spread:
        return None
    return msgspec.structs.replace(known, pod=pod)


def make_room(
    engine: Engine,
    gangs: Gangs,
    failed: GroupFailed,
    ledger: Ledger | None = None,
    network: Network | None = None,
) -> JobPreemption | NoJobPreemption:
    """After a failure, where ``enablePreemption`` is on. The caller nominates and evicts; where
    there is no room, all nominations of the gang end (docs/reference/central.md 8.2, 8.4)."""
    if failed.root is None or not gangs.args.enable_preemption:
        return NoJobPreemption("Preemption is not helpful for scheduling")
    asked = topology_of(gangs, failed.group)
    return preempt_for_job(engine, failed.root.pod, failed.pods, ledger, asked, network)


def _one_by_one(engine: Engine, group: str, pods: Iterable[Pod]) -> GroupPlaced:
    done: list[Placement] = []
    left: list[Failure] = []
    failed: dict[int, Failure] = {}
    for pod in pods:
        outcome = _again(failed, pod) or engine.place(pod)
        if isinstance(outcome, Placement):
            done.append(outcome)
        else:
            failed[pod.cls.number] = outcome
            left.append(outcome)
    return GroupPlaced(group, tuple(done), tuple(left))


def _impossible(
    engine: Engine, gangs: Gangs, group: str, pods: Sequence[Pod], begun: bool
) -> Failure | None:
    """By how many members each node takes on its own, which is never fewer than it takes beside
    others: a gang for which that is too few is refused without a trial."""
    missing = _missing(gangs, group, Counter(), begun)
    room: Counter[str] = Counter()
    worst: dict[str, Pod] = {}
    offered: dict[int, int] = {}
    members = Counter((pod.gang, pod.cls.number) for pod in pods)
    seen: set[tuple[str, int]] = set()
    for pod in pods:
        of = (pod.gang, pod.cls.number)
        if of in seen:
            continue
        seen.add(of)
        number = offered.get(of[1])
        if number is None:
            most = len(pods)
            number = offered[of[1]] = int(engine.offers(pod.cls, most).sum())
        room[pod.gang] += min(number, members[of])
        if number < members[of]:
            worst.setdefault(pod.gang, pod)
    waiting = Counter(pod.gang for pod in pods)
    for gang, number in missing.items():
        if waiting[gang] < number:
            return _too_few(pods[0])
        if room[gang] < number and gang in worst:
            refused = engine.refused(worst[gang])
            return refused or _short(engine, worst[gang])
    return None


def _too_few(pod: Pod) -> Failure:
    words = "too few members of the gang wait for a node"
    return Failure(pod=pod, refused_by=NAME, words=words)


def _short(engine: Engine, pod: Pod) -> Failure:
    """Every node with its reason; those that would take some members have too little room."""
    why = engine.evaluator.local(pod.cls)
    codes, numbers = np.unique(why[why >= FITS], return_counts=True)
    counts = dict(zip(codes.tolist(), numbers.tolist(), strict=True))
    fitting = counts.pop(FITS, 0)
    if fitting:
        counts[_TOO_FEW] = fitting
    return Failure(pod=pod, nodes=int(engine.cluster.alive.sum()), reasons=counts)


def topology_of(gangs: Gangs, group: str) -> str:
    """What the group asks of the network; it counts only where ``awareNetworkTopology`` is on and
    all members are needed (docs/reference/central.md 8.1)."""
    if not gangs.args.aware_network_topology:
        return ""
    found = [gangs.gang(each) for each in gangs.gangs_of(group)]
    if any(gang is None or gang.minimum != gang.total for gang in found):
        return ""
    return next((gang.topology for gang in found if gang is not None and gang.topology), "")


def _placed(
    engine: Engine, group: str, done: Sequence[Placement], left: Sequence[Failure]
) -> GroupPlaced | GroupFailed:
    said = bind_annotations(group, len(done))
    named = tuple(
        msgspec.structs.replace(each, annotations={**each.annotations, **said}) for each in done
    )
    for each in named:
        words = unbearable(each.pod.annotations, each.pod.annotation_bytes, each.annotations)
        if words:
            failure = Failure(pod=each.pod, refused_by=ANNOTATIONS, words=words)
            pods = [*(e.pod for e in done), *(e.pod for e in left)]
            return _failed(engine, group, pods, failure, len(done))
    for placement in done:
        engine.cluster.add(placement.claim)
    return GroupPlaced(group, named, tuple(left))


def _failed(
    engine: Engine, group: str, pods: Sequence[Pod], root: Failure, placed: int
) -> GroupFailed:
    words = (
        f'GangGroup "{group[:_MOST_CHARACTERS]}" gets rejected due to member Pod '
        f'"{root.pod.key}" is unschedulable with reason "{root.text()}", '
        f"alreadyWaitForBound: {placed}"
    )
    refused_by = root.plugins
    if NAME in refused_by:
        # How many a node takes was told by these, whatever the first reason of other nodes is.
        refused_by |= {
            plugin.name for plugin, enabled in engine.plugins if hasattr(plugin, "offers")
        } | {"NodeResourcesFit"}
    return GroupFailed(group=group, pods=tuple(pods), words=words, root=root, refused_by=refused_by)
