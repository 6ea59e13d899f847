"""Who lent whom how much, and what other quotas would change, in the same integers by which pods
are admitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from koord_scheduler.share.quota.overuse import revoked
from koord_scheduler.share.quota.quotas import Quotas
from koord_scheduler.share.quota.runtime import split
from koord_scheduler.share.quota.tree import Share, Tree
from koord_scheduler.share.quota.words import (
    Amounts,
    Quota,
    added,
    exceeding,
    in_words,
    masked,
)
from koordlet.protocol.objects.quota import BUILT_IN


class Loan(NamedTuple):
    """``borrower`` may use ``amount`` of ``resource`` beyond its own ``min``. ``lender`` empty: it
    is nobody's, but of what ``parent`` has beyond the ``min`` of all."""

    parent: str
    resource: str
    lender: str
    borrower: str
    amount: int


class Debt(NamedTuple):
    """What a quota uses beyond what it may use by now: it must give it back."""

    quota: str
    resource: str
    amount: int


class Invoice(NamedTuple):
    loans: tuple[Loan, ...]
    debts: tuple[Debt, ...]


def invoice(quotas: Quotas) -> Invoice:
    """Of all trees. A borrower takes first of what is nobody's, then of all lenders in proportion
    to what each still has to lend; the loans of a borrower sum up to what it has beyond its min.
    """
    loans: list[Loan] = []
    debts: list[Debt] = []
    for tree in quotas.trees().values():
        tree.refresh()
        for parent in tree.shares.values():
            for resource in sorted(parent.by_resource):
                loans += _loans(tree, parent, resource)
        for share in tree.shares.values():
            if share is tree.root:
                continue
            runtime = tree.runtime_of(share)
            debts += (
                Debt(share.name, name, share.used[name] - runtime[name])
                for name in exceeding(share.used, runtime)
            )
    return Invoice(tuple(loans), tuple(debts))


def own(share: Share, resource: str) -> int:
    """What is a quota's own of a resource: its min after scaling, or what is guaranteed."""
    return max(share.auto_min.get(resource, 0), share.guaranteed.get(resource, 0))


def _loans(tree: Tree, parent: Share, resource: str) -> list[Loan]:
    children = parent.by_resource[resource]
    free = tree.has(parent).get(resource, 0) - sum(own(each, resource) for each in children)
    free = max(free, 0)
    spare = {
        each.name: left
        for each in children
        if (left := own(each, resource) - each.runtime.get(resource, 0)) > 0
    }
    found = []
    for each in children:
        borrowed = each.runtime.get(resource, 0) - own(each, resource)
        if borrowed <= 0:
            continue
        taken = min(borrowed, free)
        free -= taken
        if taken:
            found.append(Loan(parent.name, resource, "", each.name, taken))
        rest = min(borrowed - taken, sum(spare.values()))
        if rest:
            names = sorted(spare)
            for name, part in zip(
                names, split(rest, [spare[n] for n in names], names), strict=True
            ):
                if part:
                    found.append(Loan(parent.name, resource, name, each.name, part))
                    spare[name] -= part
    return found


class Change(NamedTuple):
    """None: as it is."""

    least: Amounts | None = None
    most: Amounts | None = None


class Outcome(msgspec.Struct, frozen=True):
    """Of one quota. ``evicted``: pods that would have to go, where overuse is revoked, the least
    important one first. ``waiting``: how many of its waiting pods the quota would let in, one after
    the other, the most important one first."""

    quota: str
    runtime: Amounts
    runtime_then: Amounts
    used: Amounts
    over: tuple[str, ...]
    evicted: tuple[str, ...]
    waiting: int
    waiting_then: int


class WhatIf(NamedTuple):
    """``outcomes``: of quotas for which something changes. ``notes``: what admission or a reader
    would object to."""

    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...]


class NoQuotaError(Exception):
    """There is no quota of this name, or it has no place in its tree."""


def what_if(quotas: Quotas, changes: Mapping[str, Change]) -> WhatIf:
    """What ``min`` and ``max`` of some quotas, by name, would change. Raises NoQuotaError."""
    made: dict[str, Quota] = {}
    for name, change in changes.items():
        found = quotas.share(name)
        if name in BUILT_IN or found is None:
            known = sorted(each.name for each in quotas.quotas.values())
            why = quotas.problems.get(name) or f"there is no quota {name}"
            raise NoQuotaError(f"{why}; there are: {', '.join(known[:20]) or 'none'}")
        made[name] = _changed(found[1].quota, change)
    then = quotas.changed(made)
    outcomes = []
    for tree in quotas.trees().values():
        for name, share in sorted(tree.shares.items()):
            other = then.share(name)
            if share is tree.root or other is None:
                continue
            outcome = _outcome(quotas, then, (tree, share), other)
            if name in made or outcome.runtime != outcome.runtime_then:
                outcomes.append(outcome)
    return WhatIf(tuple(outcomes), tuple(_notes(then, made)))


def _changed(quota: Quota, change: Change) -> Quota:
    most = quota.max if change.most is None else {**quota.max, **change.most}
    least = quota.min if change.least is None else {**quota.min, **change.least}
    # A weight that is the maximum follows it, as it does where no annotation gives one.
    weight = {
        name: most[name] if quota.weight.get(name) == quota.max.get(name) else quota.weight[name]
        for name in most
    }
    return msgspec.structs.replace(quota, min=least, max=most, weight=weight)


def _outcome(
    now: Quotas, then: Quotas, here: tuple[Tree, Share], there: tuple[Tree, Share]
) -> Outcome:
    share = here[1]
    before, after = dict(here[0].runtime_of(share)), dict(there[0].runtime_of(there[1]))
    over = tuple(exceeding(there[1].used, after))
    gone = revoked(then, *there).claims if over else ()
    return Outcome(
        share.name,
        before,
        after,
        masked(there[1].used, there[1].quota.max),
        over,
        tuple(claim.pod.key for claim in gone),
        _let_in(now, share, before),
        _let_in(then, there[1], after),
    )


def _let_in(quotas: Quotas, share: Share, limit: Amounts) -> int:
    pods = [pod for pod, claim in quotas.pods_of(share.name) if claim is None]
    used: Amounts = share.used
    count = 0
    for pod in sorted(pods, key=lambda each: (-each.cls.priority, each.created_s, each.key)):
        wanted = added(used, quotas.member(pod.cls).request)
        if not exceeding(wanted, limit):
            used, count = wanted, count + 1
    return count


def _notes(then: Quotas, made: Mapping[str, Quota]) -> list[str]:
    notes = []
    for name, quota in made.items():
        if above := exceeding(quota.min, quota.max):
            notes.append(f"quota {name}: min is more than max in {', '.join(above)}")
        found = then.share(name)
        line = tuple(found[1].line())[:2] if found is not None else ()
        for share in line:
            if share.parent is None or not share.children:
                continue
            least: Amounts = {}
            for child in share.children.values():
                least = added(least, child.quota.min)
            if exceeding(least, share.quota.min):
                notes.append(
                    f"the quotas below {share.name} have more min together than it has: "
                    f"{in_words(least)} of {in_words(share.quota.min)}"
                )
    return notes
