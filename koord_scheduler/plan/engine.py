"""Decides for one pod, or for several as one: the best node, what allocators give there, the claim.

Every decision counts in the cluster at once. Who only wants to know asks within `Cluster.trial`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from koord_scheduler.model.annotations import NAME as ANNOTATIONS
from koord_scheduler.model.annotations import unbearable
from koord_scheduler.model.cluster.arguments import Declared
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.columns import Bools, Ints, Rows
from koord_scheduler.model.cluster.pods import NO_GRANTS, Claim, Pod, PodClass
from koord_scheduler.model.cluster.verdict import FITS, ByPods, Codes, Gate, Plugin, Refusal
from koord_scheduler.plan.evaluator import GONE, Evaluator, PluginError
from koord_scheduler.plan.hints import Event, helps
from koord_scheduler.plan.node_backoff import NAME, NodeBackoff, expire
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.profile import Enabled

MOST_TRIES = 64
"""Nodes on which allocators are asked for one pod, the best first. What they refuse is kept until
the node changes, so the next attempt goes on with others."""
_FIT = "NodeResourcesFit"
_OF_PODS = frozenset({Event.POD_PLACED, Event.POD_GONE})
UNSUPPORTED = "Unsupported"
"""``Failure.refused_by`` of a pod with needs that this scheduler does not serve."""
SCHEDULING_GATES = "SchedulingGates"


class Chosen(NamedTuple):
    """What allocators give a pod on a node. A grant that has ``reservation`` names the one that the
    pod uses."""

    grants: Mapping[str, Any]
    annotations: Mapping[str, str]


class Engine:
    """``plugins``: as `profile.make` gives them, in the order in which they are asked. Those that
    have ``allocate`` are the allocators."""

    def __init__(
        self,
        cluster: Cluster,
        plugins: Sequence[tuple[Plugin, Enabled]],
        gates: Iterable[Gate] = (),
    ) -> None:
        self.cluster = cluster
        avoid = Enabled(Declared(NAME, "leaves nodes alone that refused a pod", ""), scores=False)
        self.evaluator = Evaluator(cluster, ((NodeBackoff(), avoid), *plugins))
        self.gates: list[Gate] = list(gates)
        self.allocators: tuple[Any, ...] = tuple(
            plugin for plugin, _ in plugins if hasattr(plugin, "allocate")
        )
        self._by_name = {plugin.name: plugin for plugin, _ in self.plugins}
        self.nominated: dict[str, dict[str, Pod]] = {}
        """Node -> pods for which room was made there, by key (docs/reference/central.md 8.4)."""
        self._node_of: dict[str, str] = {}
        self.tell: Callable[[PluginError], None] = lambda error: None
        """Told once of each plugin that failed where no pod is refused for it, and for what."""
        self._told: set[tuple[str, str]] = set()

    def tick(self, now_s: float) -> bool:
        """It is ``now_s`` (Unix time): call it before each round of decisions. Whether a node that
        was left alone may be used again (`hints.Event.TIME`). A plugin with ``tick(cluster)``
        touches the rows on which its verdict changes with time."""
        self.cluster.now_s = now_s
        for plugin, _ in self.plugins:
            tick = getattr(plugin, "tick", None)
            if tick is not None:
                self._or_none("tick", plugin.name, tick, self.cluster)
        return expire(self.cluster, now_s)

    # Decisions.

    def place(self, pod: Pod, rows: Rows | None = None) -> Placement | Failure:
        """``rows``: only these nodes may be chosen. Ties go to the lowest row."""
        refused = self.refused(pod)
        if refused is not None:
            return refused
        try:
            return self._place(pod, rows)
        except PluginError as error:
            return self._refusal(pod, error.plugin, str(error))

    def _place(self, pod: Pod, rows: Rows | None) -> Placement | Failure:
        judged = self.evaluator.judge(pod.cls, rows, self.veto(pod))
        found, why = judged.rows, judged.why
        scores = judged.scores.copy()
        first = self._preferred(pod, found)
        for _ in range(min(MOST_TRIES, len(found))):
            best = int(np.argmax(scores)) if first is None else first
            first, row = None, int(found[best])
            chosen = self.choose(pod, row)
            if isinstance(chosen, Refusal):
                scores[best] = np.iinfo(np.int64).min
                why[row] = chosen.why
                continue
            said = unbearable(pod.annotations, pod.annotation_bytes, chosen.annotations)
            if said:
                return self._refusal(pod, ANNOTATIONS, said)
            return self._take(pod, row, chosen, len(found))
        return self._failure(pod, why, rows)

    def place_all(
        self, pods: Sequence[Pod], rows: Rows | None = None
    ) -> tuple[Placement, ...] | Failure:
        """All of them or none, in their order; each sees those before it. The failure is that of
        the first one that finds no node."""
        done: list[Placement] = []
        with self.cluster.trial():
            for pod in pods:
                outcome = self.place(pod, rows)
                if isinstance(outcome, Failure):
                    return outcome
                done.append(outcome)
        for placement in done:
            self.cluster.add(placement.claim)
        return tuple(done)

    def refused(self, pod: Pod) -> Failure | None:
        """By what does not depend on nodes."""
        if pod.cls.unsupported:
            words = f"not supported by koord-scheduler: {'; '.join(pod.cls.unsupported)}"
            return self._refusal(pod, UNSUPPORTED, words)
        if pod.gates:
            words = f"waits for scheduling gates: {', '.join(pod.gates)}"
            return self._refusal(pod, SCHEDULING_GATES, words)
        for gate in self.gates:
            said = gate.admit(pod)
            if said is not None:
                return self._refusal(pod, gate.name, said)
        return None

    def choose(self, pod: Pod, row: int) -> Chosen | Refusal:
        """What the allocators give the pod on this node. Changes nothing in the cluster. Raises
        PluginError."""
        grants: dict[str, Any] = {}
        annotations: dict[str, str] = {}
        for allocator in self.allocators:
            if not self.evaluator.applies(allocator, pod.cls):
                continue
            grant = _asked(allocator.name, allocator.allocate, self.cluster, pod, row, grants)
            if isinstance(grant, Refusal):
                if not getattr(allocator, "by_pod", False):
                    self.evaluator.refuse(pod.cls, row, grant.why)
                return grant
            if grant is not None:
                grants[allocator.name] = grant
                annotations.update(_asked(allocator.name, allocator.annotations, pod, grant))
        return Chosen(grants, annotations)

    def recognise(self, pod: Pod) -> Mapping[str, Any]:
        """The grants of a pod on a node, whoever placed it there. An allocator that fails has
        granted nothing."""
        grants: dict[str, Any] = {}
        for allocator in self.allocators:
            grant = self._or_none("recognise", allocator.name, allocator.recognise, pod)
            if grant is not None:
                grants[allocator.name] = grant
        return grants or NO_GRANTS

    def _or_none(self, what: str, name: str, ask: Callable[..., Any], *about: Any) -> Any:
        try:
            return _asked(name, ask, *about)
        except PluginError as error:
            if (name, what) not in self._told:
                self._told.add((name, what))
                self.tell(error)
            return None

    # Questions.

    def feasible(self, cls: PodClass) -> Bools:
        """Where such a pod fits now, by all plugins, without allocators. Raises PluginError."""
        mask: Bools = self.evaluator.judge(cls).why == FITS
        return mask

    def helped(
        self,
        pod: Pod,
        refused_by: Iterable[str],
        event: Event,
        rows: Rows,
        others: Collection[PodClass] = (),
    ) -> bool:
        """Whether what happened on these nodes may help a pod that these refused: whether to try it
        again. ``others``: the classes of the pods that came or went."""
        local, gates = False, {gate.name: gate for gate in self.gates}
        try:
            for name in refused_by:
                if not helps(event, (name,)):
                    continue
                plugin = self._by_name.get(name)
                if plugin is not None and plugin.local:
                    local = True
                elif name in gates:
                    if gates[name].admit(pod) is None:
                        return True
                elif self._may_help(plugin, pod.cls, event, others):
                    return True
            return local and self.evaluator.opens(pod.cls, rows)
        except PluginError:
            return True

    def _may_help(
        self, plugin: Plugin | None, cls: PodClass, event: Event, others: Collection[PodClass]
    ) -> bool:
        if event not in _OF_PODS or not others or not isinstance(plugin, ByPods):
            return True
        return plugin.helped(self.cluster, cls, others, gone=event is Event.POD_GONE)

    def fits(self, pod: Pod, row: int) -> int:
        """FITS or the reason, now, with gates left out and allocators asked. Raises PluginError."""
        code = int(self.evaluator.fits(pod.cls, np.array([row], np.intp))[0])
        if code != FITS:
            return code
        chosen = self.choose(pod, row)
        return chosen.why if isinstance(chosen, Refusal) else FITS

    def offers(self, cls: PodClass, most: int) -> Ints:
        """For each row how many such pods fit there, at most ``most`` (``offerSlot`` of
        docs/reference/central.md 8.1): never fewer than do. A plugin with ``offers(cluster, cls,
        rows,
        most)`` says how many it lets in; of others it is known only whether they let in one."""
        try:
            return self._offers(cls, most)
        except PluginError:  # placing one of them says which plugin failed, and how
            return np.where(self.cluster.alive[: len(self.cluster.nodes)], most, 0)

    def _offers(self, cls: PodClass, most: int) -> Ints:
        counts = np.zeros(len(self.cluster.nodes), np.int64)
        rows = np.flatnonzero(self.evaluator.local(cls) == FITS)
        if not len(rows):
            return counts
        found = np.full(len(rows), most, np.int64)
        by_name = {plugin.name: plugin for plugin, each in self.plugins if each.filters}
        for plugin in by_name.values():
            offers = getattr(plugin, "offers", None)
            if offers is not None and self.evaluator.applies(plugin, cls):
                offered = _asked(plugin.name, offers, self.cluster, cls, rows, most)
                np.minimum(found, offered, out=found)
        if _FIT in by_name and not hasattr(by_name[_FIT], "offers"):
            credit = getattr(by_name.get("Reservation"), "credit", None)
            beside = None
            if credit is not None:
                beside = credit(self.cluster, cls, rows, together=True)
            np.minimum(found, room(self.cluster, cls, rows, most, beside), out=found)
        counts[rows] = found
        return counts

    @property
    def plugins(self) -> tuple[tuple[Plugin, Enabled], ...]:
        return self.evaluator.plugins

    # Nominations.

    def nominate(self, pod: Pod, node: str) -> None:
        """Room was made for the pod there; pods of lower priority lose a nomination for that
        node (as in kube-scheduler)."""
        self.forget(pod.key)
        others = self.nominated.setdefault(node, {})
        for key, other in tuple(others.items()):
            if other.cls.priority < pod.cls.priority and other.scheduler == pod.scheduler:
                self.forget(key)
        self.nominated.setdefault(node, {})[pod.key] = pod
        self._node_of[pod.key] = node

    def forget(self, key: str) -> None:
        """The pod has a node, or is gone."""
        node = self._node_of.pop(key, None)
        if node is not None:
            there = self.nominated[node]
            del there[key]
            if not there:
                del self.nominated[node]

    def nominated_to(self, key: str) -> str:
        """The node, empty without one; what the pod itself says does not count."""
        return self._node_of.get(key, "")

    def nomination(self, pod: Pod) -> str:
        """The node, empty without one."""
        return self._node_of.get(pod.key, pod.nominated)

    def ahead(self, pod: Pod, row: int) -> list[Claim]:
        """Of the pods that are nominated there and must find their room: what they take."""
        node = self.cluster.nodes[row]
        if node is None:
            return []
        return [
            Claim(each, node.name, self.cluster.now_s)
            for each in self.nominated.get(node.name, {}).values()
            if _counts(each, pod) and each.key not in self.cluster.claims
        ]

    def veto(self, pod: Pod) -> dict[int, int]:
        """Rows where the pod fits only without the pods that are nominated there."""
        found: dict[int, int] = {}
        if not self.nominated:
            return found
        local = self.evaluator.local(pod.cls)
        for node in self.nominated:
            row = self.cluster.row.get(node)
            if row is None or local[row] != FITS:
                continue
            ahead = self.ahead(pod, row)
            if not ahead:
                continue
            with self.cluster.trial():
                for claim in ahead:
                    self.cluster.add(claim)
                code = int(self.evaluator.fits(pod.cls, np.array([row], np.intp))[0])
            if code not in (FITS, GONE):
                found[row] = code
        return found

    def _preferred(self, pod: Pod, rows: Rows) -> int | None:
        """The place of the nominated node in ``rows``: it is tried first."""
        row = self.cluster.row.get(self.nomination(pod))
        if row is None:
            return None
        at = np.flatnonzero(rows == row)
        return int(at[0]) if len(at) else None

    def _take(self, pod: Pod, row: int, chosen: Chosen, feasible: int) -> Placement:
        node = self.cluster.nodes[row]
        assert node is not None
        reservation = ""
        for grant in chosen.grants.values():
            reservation = getattr(grant, "reservation", reservation)
        grants = chosen.grants or NO_GRANTS
        claim = Claim(pod, node.name, self.cluster.now_s, grants, reservation)
        self.cluster.add(claim)
        return Placement(pod, node.name, claim, chosen.annotations, feasible)

    def _refusal(self, pod: Pod, by: str, words: str) -> Failure:
        return Failure(pod=pod, nodes=int(self.cluster.alive.sum()), refused_by=by, words=words)

    def _failure(self, pod: Pod, why: Codes, rows: Rows | None) -> Failure:
        counted = why if rows is None else why[rows]
        codes, numbers = np.unique(counted[counted > FITS], return_counts=True)
        reasons = dict(zip(codes.tolist(), numbers.tolist(), strict=True))
        untried = int((counted == FITS).sum())
        nodes = int((counted != GONE).sum())
        reported = self.reports(pod.cls, why)
        return Failure(pod=pod, nodes=nodes, reasons=reasons, untried=untried, reported=reported)

    def reports(self, cls: PodClass, why: Codes) -> tuple[str, ...]:
        """Return what plugins with ``report(cluster, cls, why)`` say of such a pod that finds no
        node; ``why``: the reason against each row."""
        found: list[str] = []
        for plugin, _ in self.plugins:
            report = getattr(plugin, "report", None)
            if report is not None:
                found += self._or_none("report", plugin.name, report, self.cluster, cls, why) or ()
        return tuple(found)


def _asked(name: str, ask: Callable[..., Any], *about: Any) -> Any:
    """Raises PluginError."""
    try:
        return ask(*about)
    except Exception as error:  # as in `Evaluator`: whatever another package's code raises
        raise PluginError(name, repr(error)) from error


def room(
    cluster: Cluster, cls: PodClass, rows: Rows, most: int, credit: Ints | None = None
) -> Ints:
    """How many such pods the allocatable resources of nodes leave room for, where one fits.
    ``credit``: what they find beside what is free, of each row and column. A resource that lets one
    in without having it does not count."""
    ask = cluster.vector(cls)
    free = cluster.allocatable[rows] - cluster.requested[rows]
    if credit is not None:
        free = free + credit
    columns = np.flatnonzero(ask)
    many = free[:, columns] // ask[columns]
    found: Ints = np.where(many > 0, many, most).min(axis=1, initial=most)
    return np.minimum(found, most)


def _counts(nominated: Pod, pod: Pod) -> bool:
    """Of the same or a higher priority, as in kube-scheduler; pods of the same job are left out.
    One of another scheduler that was not told that it fits nowhere is about to be bound: no room
    was made for it, it has it."""
    if nominated.key == pod.key or (pod.gang and pod.gang == nominated.gang):
        return False
    if nominated.scheduler != pod.scheduler and not nominated.refused:
        return True
    return nominated.cls.priority >= pod.cls.priority
