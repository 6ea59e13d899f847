"""A tree of quotas with what its pods request and use, and what each may use now.

Requests and use flow up as they change
(docs/reference/central.md 4.3); what may be used is computed from the
root down, when it is asked for, and only where something changed (4.4).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from koord_scheduler.share.quota.runtime import Min, Want, scaled, shared
from koord_scheduler.share.quota.words import (
    NOTHING,
    Amounts,
    Quota,
    capped,
    largest,
    masked,
)
from koordlet.protocol.objects.quota import DEFAULT, ROOT, SYSTEM

APART = frozenset({SYSTEM, DEFAULT})
"""Quotas that share nothing: each may use its maximum, and what it uses the others do not have."""


class Share:
    """One quota in its tree. ``firm``: of pods that must not be preempted. ``own``: of pods that
    name this quota, not one below it. ``names``: resources that count here, None: all.

    ``runtime`` and ``auto_min`` hold what was computed last; ask `Tree.runtime_of`.
    """

    __slots__ = (
        "allocated",
        "auto_min",
        "by_resource",
        "child_request",
        "children",
        "firm_request",
        "firm_used",
        "guaranteed",
        "lends",
        "limited",
        "min",
        "names",
        "own_firm_request",
        "own_firm_used",
        "own_request",
        "own_used",
        "parent",
        "quota",
        "request",
        "runtime",
        "spread",
        "stale",
        "used",
    )

    def __init__(self, quota: Quota, parent: Share | None, lends: bool) -> None:
        self.quota, self.parent, self.lends = quota, parent, lends
        self.names: frozenset[str] | None = frozenset(quota.max) if parent is not None else None
        self.min: Amounts = masked(quota.min, quota.max)
        self.children: dict[str, Share] = {}
        self.by_resource: dict[str, tuple[Share, ...]] = {}
        """The children that share a resource."""
        self.own_request: dict[str, int] = {}
        self.own_used: dict[str, int] = {}
        self.own_firm_request: dict[str, int] = {}
        self.own_firm_used: dict[str, int] = {}
        self.child_request: dict[str, int] = {}
        self.request: Amounts = {}
        self.limited: Amounts = {}
        """The request, at most ``max``: what the parent sees."""
        self.used: dict[str, int] = {}
        self.firm_request: dict[str, int] = {}
        self.firm_used: dict[str, int] = {}
        self.allocated: dict[str, int] = {}
        self.guaranteed: Amounts = {}
        self.auto_min: dict[str, int] = {}
        self.runtime: dict[str, int] = {}
        self.stale: set[str] = set()
        """Resources that must be shared anew among the children."""
        self.spread: Amounts = {}
        """What was shared last."""

    @property
    def name(self) -> str:
        return self.quota.name

    def line(self) -> Iterator[Share]:
        """It, and what is above it."""
        at: Share | None = self
        while at is not None:
            yield at
            at = at.parent


class Tree:
    """``total``: what the root has. ``scales``: ``min`` shrinks where the parent has too little.
    ``guarantees``: what is used counts as guaranteed, and nothing is lent."""

    def __init__(self, tree: str, *, scales: bool = True, guarantees: bool = False) -> None:
        self.id = tree
        self.scales, self.guarantees = scales, guarantees
        self.total: Amounts = {}
        self.root = Share(Quota(name=ROOT, tree=tree, is_parent=True, lends=False), None, False)
        self.shares: dict[str, Share] = {ROOT: self.root}

    def plant(self, quotas: Iterable[Quota]) -> dict[str, str]:
        """Quotas of this tree in any order; once. Gives why some have no place, by name."""
        missing = {each.name: each for each in quotas if each.name != ROOT}
        below: dict[str, list[Quota]] = {}
        for quota in sorted(missing.values(), key=lambda each: each.name):
            below.setdefault(quota.parent, []).append(quota)
        reached = [self.root]
        for parent in reached:
            for quota in below.get(parent.name, ()):
                share = Share(quota, parent, quota.lends and not self.guarantees)
                parent.children[quota.name] = self.shares[quota.name] = share
                reached.append(share)
                del missing[quota.name]
            self._see_children(parent)
        for share in reversed(reached):
            self._request_again(share)
        return {name: _no_place(quota, missing) for name, quota in missing.items()}

    def count(
        self, share: Share, amounts: Amounts, *, requested: int, used: int, firm: bool
    ) -> None:
        """So many more pods that name this quota and want ``amounts`` each; ``used`` of them have a
        node now. Fewer where the numbers are negative."""
        names = share.names
        if requested:
            _into(share.own_request, amounts, names, requested)
            _into(share.child_request, amounts, names, requested)
            if firm:
                _into(share.own_firm_request, amounts, names, requested)
                for each in share.line():
                    _into(each.firm_request, amounts, each.names, requested)
        if used:
            _into(share.own_used, amounts, names, used)
            for each in share.line():
                _into(each.used, amounts, each.names, used)
            if firm:
                _into(share.own_firm_used, amounts, names, used)
                for each in share.line():
                    _into(each.firm_used, amounts, each.names, used)
            if self.guarantees:
                _into(share.allocated, amounts, names, used)
        if requested or self.guarantees:
            self._request_again(share)

    def runtime_of(self, share: Share) -> Amounts:
        """What it may use now; the total of the tree for its root."""
        if share is self.root:
            return self.total
        if share.name in APART:
            return share.quota.max
        for each in reversed(tuple(share.line())[1:]):
            self._share_out(each)
        return share.runtime

    def refresh(self) -> None:
        """All of it, from the root down."""
        for share in self.shares.values():
            self._share_out(share)

    def has(self, share: Share) -> Amounts:
        """What its children share: what it may use, less what pods that name it use."""
        if share is self.root:
            has = self.total
        else:
            has = share.quota.max if share.name in APART else share.runtime
        if not any(share.own_used.values()):
            return has
        return {name: max(n - share.own_used.get(name, 0), 0) for name, n in has.items()}

    def _see_children(self, parent: Share) -> None:
        found: dict[str, list[Share]] = {}
        for child in parent.children.values():
            if child.name not in APART:
                for name in child.quota.max:
                    found.setdefault(name, []).append(child)
        parent.by_resource = {name: tuple(each) for name, each in found.items()}
        parent.stale = set(found)

    def _request_again(self, share: Share) -> None:
        """From it up, as far as it changes anything."""
        at: Share | None = share
        while at is not None:
            request = dict(at.child_request) if at.lends else largest(at.child_request, at.min)
            limited = capped(request, at.quota.max)
            guaranteed: Amounts = largest(at.allocated, at.min) if self.guarantees else NOTHING
            more = _changes(at.limited, limited)
            raised = _changes(at.guaranteed, guaranteed)
            at.request, at.limited, at.guaranteed = request, limited, guaranteed
            parent = at.parent
            if parent is None or not (more or raised):
                return
            if at.name not in APART:
                parent.stale.update(more, raised)
            _into(parent.child_request, more, parent.names)
            _into(parent.allocated, raised, parent.names)
            at = parent

    def _share_out(self, parent: Share) -> None:
        total = self.has(parent)
        before = parent.spread
        stale = parent.stale
        if total is not before and total != before:
            names = total.keys() | before.keys()
            stale |= {name for name in names if total.get(name) != before.get(name)}
        if not stale:
            return
        for name in stale:
            children = parent.by_resource.get(name, ())
            has = total.get(name, 0)
            mins = [each.min.get(name, 0) for each in children]
            if self.scales:
                flags = (each.quota.scalable for each in children)
                mins = scaled(has, map(Min, mins, flags))
            wants = [
                Want(
                    each.quota.name,
                    each.quota.weight.get(name, 0),
                    each.limited.get(name, 0),
                    max(least, each.guaranteed.get(name, 0)),
                    each.lends,
                )
                for each, least in zip(children, mins, strict=True)
            ]
            for each, least, runtime in zip(children, mins, shared(has, wants), strict=True):
                each.auto_min[name] = least
                each.runtime[name] = runtime
        parent.stale = set()
        parent.spread = dict(total)


def _changes(before: Amounts, now: Amounts) -> dict[str, int]:
    """Return by how much each name of ``now`` differs."""
    return {name: more for name, n in now.items() if (more := n - before.get(name, 0))}


def _into(
    target: dict[str, int], amounts: Amounts, names: frozenset[str] | None, times: int = 1
) -> None:
    for name, amount in amounts.items():
        if amount and (names is None or name in names):
            target[name] = target.get(name, 0) + times * amount


def _no_place(quota: Quota, missing: dict[str, Quota]) -> str:
    seen = {quota.name}
    at = quota
    while at.parent in missing:
        at = missing[at.parent]
        if at.name in seen:
            return f"quota {quota.name}: its parents are a circle through {at.name}"
        seen.add(at.name)
    return f"quota {quota.name}: there is no parent quota {at.parent} in its tree"
