"""All quotas with the pods that are charged to them: whether a pod may take anything at all now
(docs/reference/central.md 4.2, 4.3, 4.7, 4.8).

Pods count by class, so a new version of a quota makes the trees anew without a look at each pod.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from koord_scheduler.model.cluster.arguments import read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.share.quota.nodes import NodeSums
from koord_scheduler.share.quota.tree import Share, Tree
from koord_scheduler.share.quota.words import (
    NAME,
    NOTHING,
    Amounts,
    ElasticQuotaArgs,
    Quota,
    QuotaGates,
    added,
    built_in_amounts,
    exceeding,
    in_words,
    masked,
)
from koordlet.protocol import keys
from koordlet.protocol.objects.quota import DEFAULT, ROOT, SYSTEM

_LABEL = keys.QUOTA_NAME.name
_PREEMPTIBLE = keys.PREEMPTIBLE.name
_MOST_MEMBERS = 65_536


_ARGS, _GATES = ElasticQuotaArgs(), QuotaGates()


def make(args: Mapping[str, Any], gates: QuotaGates = _GATES) -> Quotas:
    """Raises ArgumentError."""
    return Quotas(read_args(NAME, ElasticQuotaArgs, args), gates)


class Member(NamedTuple):
    """To which quota pods of a class are charged, and with what. ``share`` None: to none, or, where
    ``problem`` says why, to one that has no place in its tree. ``firm``: never preempted."""

    quota: str
    tree: Tree | None
    share: Share | None
    request: Amounts
    firm: bool = False
    problem: str = ""


class _Count:
    __slots__ = ("claimed", "cls", "waiting")

    def __init__(self, cls: PodClass) -> None:
        self.cls, self.claimed, self.waiting = cls, 0, 0


class Quotas:
    """A `Gate`. ``follow`` gives it the cluster; ``set_quota`` and ``wait`` what else it must know:
    pods request from creation, and use from the moment when they have a node."""

    name = NAME

    def __init__(self, args: ElasticQuotaArgs = _ARGS, gates: QuotaGates = _GATES) -> None:
        """Raises ArgumentError."""
        self.args, self.gates = args, gates
        self.version = 0
        """Grows with whatever may change a figure."""
        self.waiting: dict[str, Pod] = {}
        """Pods that count from their creation, by key; those that have a claim count there."""
        self.quotas: dict[tuple[str, str], Quota] = {}
        """By namespace and name; built-in ones as far as somebody made them."""
        self._built_in = tuple(
            Quota(name=name, namespace=args.quota_group_namespace, max=top, weight=top)
            for name, top in (
                (SYSTEM, built_in_amounts(args.system_quota_group_max, "systemQuotaGroupMax")),
                (DEFAULT, built_in_amounts(args.default_quota_group_max, "defaultQuotaGroupMax")),
            )
        )
        self._cluster = Cluster()
        self._counts: dict[int, _Count] = {}
        self._trees: dict[str, Tree] | None = None
        self._by_name: dict[str, Quota] = {}
        self._of_namespace: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self._members: dict[int, Member] = {}
        self._nodes = NodeSums(self._cluster)
        self._elsewhere: Amounts = NOTHING
        """What other trees have of the nodes."""
        self._admitted: tuple[str, int, bool] = ("", -1, False)

    # What it is told.

    def follow(self, cluster: Cluster) -> None:
        """Once, before the first pod waits."""
        self._cluster, self._nodes = cluster, NodeSums(cluster)
        cluster.follow(self._on_claim)

    def set_quota(self, quota: Quota) -> None:
        key = (quota.namespace, quota.name)
        if self.quotas.get(key) != quota:
            self.quotas[key] = quota
            self._plant_later()

    def drop_quota(self, namespace: str, name: str) -> None:
        if self.quotas.pop((namespace, name), None) is not None:
            self._plant_later()

    def wait(self, pod: Pod) -> None:
        """A pod that wants a node, or a new version of one. Pods that have ended want none."""
        before = self.waiting.get(pod.key)
        if before is not None and before.cls is pod.cls and self._counts_pod(pod):
            self.waiting[pod.key] = pod
            return
        self.forget(pod.key)
        if self._counts_pod(pod):
            self.waiting[pod.key] = pod
            if pod.key not in self._cluster.claims:
                self._add(pod.cls, 0, 1)

    def forget(self, key: str) -> None:
        """It is gone; a claim of it counts as long as it is there."""
        pod = self.waiting.pop(key, None)
        if pod is not None and key not in self._cluster.claims:
            self._add(pod.cls, 0, -1)

    def _on_claim(self, claim: Claim, sign: int) -> None:
        waiting = self.waiting.get(claim.pod.key)
        counts = self._counts_pod(claim.pod)
        if waiting is not None and counts and waiting.cls is claim.pod.cls:
            self._add(waiting.cls, sign, -sign)
            return
        if counts:
            self._add(claim.pod.cls, sign, 0)
        if waiting is not None:
            self._add(waiting.cls, 0, -sign)

    def _counts_pod(self, pod: Pod) -> bool:
        if pod.holds or pod.phase in ("Succeeded", "Failed"):
            return False
        gates = self.gates
        ignores = gates.ignore_terminating_pod or gates.immediate_ignore_terminating_pod
        return not (ignores and pod.terminating)

    def _add(self, cls: PodClass, claimed: int, waiting: int) -> None:
        self.version += 1
        count = self._counts.get(cls.number)
        if count is None:
            count = self._counts[cls.number] = _Count(cls)
        count.claimed += claimed
        count.waiting += waiting
        if not (count.claimed or count.waiting):
            del self._counts[cls.number]
        if self._trees is not None:
            _charge(self.member(cls), claimed, waiting)

    def _plant_later(self) -> None:
        self.version += 1
        self._trees = None

    # What it is asked.

    def admit(self, pod: Pod) -> str | None:
        """Spec/central.md 4.7. A pod that has a node already is in."""
        if pod.holds or pod.key in self._cluster.claims:
            return None
        member = self.member(pod.cls)
        if member.share is None or member.tree is None:
            return member.problem or None
        self.trees()
        known = pod.key in self.waiting
        if not known:
            _charge(member, 0, 1)
        try:
            return self._refusal(member, member.tree, member.share)
        finally:
            if not known:
                _charge(member, 0, -1)

    def may_preempt(self, pod: Pod, victim: Pod) -> bool:
        """Where a quota refuses the pod, only pods of the same quota make room in it (4.8)."""
        if is_firm(victim.cls) or victim.cls.priority >= pod.cls.priority:
            return False
        key, version, admitted = self._admitted
        if key != pod.key or version != self.version:
            admitted = self.admit(pod) is None
            self._admitted = (pod.key, self.version, admitted)
        if admitted:
            return True
        quota = self.member(pod.cls).quota
        if quota == DEFAULT and self.args.disable_default_quota_preemption:
            return False
        return quota == self.member(victim.cls).quota

    def limit_of(self, member: Member) -> Amounts:
        """What the pods of its quota may use together now."""
        if member.share is None or member.tree is None:
            return NOTHING
        return self._limit(member.tree, member.share)

    def trees(self) -> Mapping[str, Tree]:
        """By id, with their totals as of now."""
        trees = self._trees
        if trees is None:
            trees = self._plant()
        if self._nodes.look():
            self.version += 1
        tree = trees[""]
        apart = [tree.shares[name].used for name in (SYSTEM, DEFAULT)]
        total = dict(self._nodes.sums)
        for each in (*apart, self._elsewhere):
            for name, amount in each.items():
                if name in total:
                    total[name] = max(total[name] - amount, 0)
        tree.total = total
        return trees

    def member(self, cls: PodClass) -> Member:
        if self._trees is None:
            self._plant()
        found = self._members.get(cls.number)
        if found is None:
            if len(self._members) >= _MOST_MEMBERS:
                self._members.clear()
            found = self._members[cls.number] = self._resolve(cls)
        return found

    def share(self, name: str) -> tuple[Tree, Share] | None:
        """None where there is no such quota, or it has no place."""
        for tree in self.trees().values():
            found = tree.shares.get(name)
            if found is not None:
                return tree, found
        return None

    @property
    def problems(self) -> Mapping[str, str]:
        """Why quotas have no place in a tree, by name."""
        self.trees()
        return self._problems

    def pods_of(self, name: str) -> Iterator[tuple[Pod, Claim | None]]:
        """All that are charged to a quota. It looks at every pod."""
        for claim in self._cluster.claims.values():
            if self.member(claim.pod.cls).quota == name and self._counts_pod(claim.pod):
                yield claim.pod, claim
        for key, pod in self.waiting.items():
            if key not in self._cluster.claims and self.member(pod.cls).quota == name:
                yield pod, None

    def changed(self, quotas: Mapping[str, Quota]) -> Quotas:
        """The same pods and nodes under other quotas, by name: for what-if. It follows nothing."""
        other = Quotas(self.args, self.gates)
        other.quotas = {key: quotas.get(quota.name, quota) for key, quota in self.quotas.items()}
        other._cluster, other._nodes = self._cluster, NodeSums(self._cluster)
        other._counts = dict(self._counts)
        other.waiting = self.waiting
        return other

    def _refusal(self, member: Member, tree: Tree, share: Share) -> str | None:
        limit = self._limit(tree, share)
        over = exceeding(added(share.used, member.request), limit)
        if over:
            return _insufficient("quotas", member, f"quotaName: {share.name}", share, limit, over)
        if member.firm:
            over = exceeding(added(share.firm_used, member.request), share.min)
            if over:
                return (
                    f"Insufficient non-preemptible quotas, quotaName: {share.name}, "
                    f"min: {in_words(share.min)}, nonPreemptibleUsed: {in_words(share.firm_used)}, "
                    f"pod's request: {in_words(member.request)}, exceedDimensions: {over}"
                )
        if self.args.enable_check_parent_quota:
            for above in share.line():
                if above is share or above is tree.root:
                    continue
                limit = self._limit(tree, above)
                used = masked(above.used, member.request)
                over = exceeding(added(used, member.request), limit)
                if over:
                    line = [each.name for each in share.line() if each is not tree.root]
                    where = f"quotaNameTopo: {line[::-1]}, quotaName: {above.name}"
                    return _insufficient("quotas", member, where, above, limit, over)
        return None

    def _limit(self, tree: Tree, share: Share) -> Amounts:
        return tree.runtime_of(share) if self.args.enable_runtime_quota else share.quota.max

    # How trees are made.

    def _plant(self) -> dict[str, Tree]:
        given = {each.name: each for each in self._built_in}
        for _, quota in sorted(self.quotas.items(), reverse=True):
            given[quota.name] = quota
        self._by_name = given
        self._of_namespace = {}
        for name in sorted(given):
            for namespace in given[name].namespaces:
                self._of_namespace.setdefault(namespace, name)
        several = self.gates.multi_quota_tree
        groups: dict[str, list[Quota]] = {"": []}
        elsewhere: dict[str, int] = {}
        totals: dict[str, dict[str, int]] = {}
        for name, quota in given.items():
            tree = quota.tree if several and name not in (ROOT, SYSTEM, DEFAULT) else ""
            groups.setdefault(tree, []).append(quota)
            if tree and quota.is_root:
                totals[tree] = added(totals.get(tree, NOTHING), quota.total)
                if not quota.ignores_default_tree:
                    elsewhere = added(elsewhere, quota.total)
        self._elsewhere = elsewhere
        self._problems, self._members = {}, {}
        trees = self._trees = {}
        for tree, quotas in groups.items():
            made = trees[tree] = Tree(
                tree,
                scales=self.args.enable_min_quota_scale,
                guarantees=self.gates.guarantee_usage,
            )
            made.total = totals.get(tree, {})
            self._problems |= made.plant(quotas)
        for count in self._counts.values():
            _charge(self.member(count.cls), count.claimed, count.waiting)
        return trees

    def _resolve(self, cls: PodClass) -> Member:
        name = self._name_for(cls)
        if not name:
            return Member("", None, None, NOTHING)
        if name in self._problems:
            return Member(name, None, None, NOTHING, problem=self._problems[name])
        tree = self._tree_of(name)
        share = tree.shares[name]
        request = cls.requests
        if self.gates.ignore_pod_overhead and cls.overhead:
            request = added(request, cls.overhead, -1)
        if share.names is not None:
            request = masked(request, share.names)
        return Member(name, tree, share, request, is_firm(cls))

    def _name_for(self, cls: PodClass) -> str:
        """Empty: no quota counts."""
        label = cls.labels.get(_LABEL, "")
        if self.gates.disable_default_quota:
            return label if label in self._by_name else ""
        if label:
            return label if label in self._by_name else DEFAULT
        if (cls.namespace, cls.namespace) in self.quotas:
            return cls.namespace
        return self._of_namespace.get(cls.namespace, DEFAULT)

    def _tree_of(self, name: str) -> Tree:
        trees = self._trees or {}
        return next(tree for tree in trees.values() if name in tree.shares)


def is_firm(cls: PodClass) -> bool:
    """Whether such pods must never be preempted."""
    return cls.labels.get(_PREEMPTIBLE) == "false"


def _charge(member: Member, claimed: int, waiting: int) -> None:
    if member.tree is not None and member.share is not None:
        member.tree.count(
            member.share,
            member.request,
            requested=claimed + waiting,
            used=claimed,
            firm=member.firm,
        )


def _insufficient(
    what: str, member: Member, where: str, share: Share, limit: Amounts, over: list[str]
) -> str:
    return (
        f"Insufficient {what}, {where}, runtime: {in_words(limit)}, used: {in_words(share.used)}, "
        f"pod's request: {in_words(member.request)}, exceedDimensions: {over}"
    )
