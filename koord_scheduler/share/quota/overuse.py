"""Which pods must go because their quota uses more than it may by now
(docs/reference/central.md 4.9)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from koord_scheduler.model.cluster.pods import Claim
from koord_scheduler.share.quota.quotas import Quotas, is_firm
from koord_scheduler.share.quota.tree import Share, Tree
from koord_scheduler.share.quota.words import Amounts, added, exceeding, in_words, masked
from koordlet.protocol.objects.quota import SYSTEM


class Revocation(NamedTuple):
    """``why``, in words, for the eviction of ``claims``, the least important one first."""

    quota: str
    why: str
    claims: tuple[Claim, ...]


class Overuse:
    """Since when each quota uses too much. ``due`` is asked every ``revokePodInterval``."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._since_s: dict[str, float] = {}

    def due(self, now_s: float) -> list[Revocation]:
        """Of quotas that used too much for longer than ``delayEvictTime``, without a break; their
        time begins anew then. ``now_s`` is monotonic. Nothing unless ``monitorAllQuotas`` and
        ``enableRuntimeQuota`` are on."""
        args = self._quotas.args
        if not (args.monitor_all_quotas and args.enable_runtime_quota):
            return []
        found = []
        since_s: dict[str, float] = {}
        for tree in self._quotas.trees().values():
            for share in tree.shares.values():
                if share is tree.root or share.name == SYSTEM or not is_over(tree, share):
                    continue
                begun_s = self._since_s.get(share.name, now_s)
                if now_s - begun_s > args.delay_evict_s:
                    revocation = revoked(self._quotas, tree, share)
                    if revocation.claims:
                        found.append(revocation)
                    begun_s = now_s
                since_s[share.name] = begun_s
        self._since_s = since_s
        return found


def is_over(tree: Tree, share: Share) -> bool:
    return bool(exceeding(share.used, tree.runtime_of(share)))


def revoked(quotas: Quotas, tree: Tree, share: Share) -> Revocation:
    """What would be evicted now, whatever the arguments say."""
    limit = tree.runtime_of(share)
    claims = [claim for _, claim in quotas.pods_of(share.name) if claim is not None]
    requests = [quotas.member(claim.pod.cls).request for claim in claims]
    chosen = victims(claims, requests, share.used, limit)
    why = (
        f"quota {share.name} uses {in_words(masked(share.used, limit))} and may use "
        f"{in_words(limit)} now"
    )
    return Revocation(share.name, why, tuple(claims[at] for at in chosen))


def victims(
    claims: Sequence[Claim], requests: Sequence[Amounts], used: Amounts, limit: Amounts
) -> list[int]:
    """Indices, the least important pod first. All resources count, also those of which the pods
    that go have nothing."""
    order = [
        at
        for at in sorted(
            range(len(claims)),
            key=lambda at: (claims[at].pod.cls.priority, -claims[at].since_s, claims[at].pod.key),
        )
        if not is_firm(claims[at].pod.cls)
    ]
    gone: list[int] = []
    for at in order:
        if not exceeding(used, limit):
            break
        used = added(used, requests[at], -1)
        gone.append(at)
    if exceeding(used, limit):
        return gone
    evicted = []
    for at in reversed(gone):
        again = added(used, requests[at])
        if exceeding(again, limit):
            evicted.append(at)
        else:
            used = again
    return evicted[::-1]
