"""What became of a decision for a pod."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koord_scheduler.model.cluster.pods import Claim, Pod
from koord_scheduler.model.cluster.verdict import REASONS


class Placement(msgspec.Struct, frozen=True):
    """``claim`` is counted in the cluster. ``annotations``: what the binding says of its grants.
    ``feasible``: on how many nodes the pod fitted, without a look at what allocators say."""

    pod: Pod
    node: str
    claim: Claim
    annotations: Mapping[str, str] = {}
    feasible: int = 0


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """``reasons``: code (`REASONS`) -> how many nodes it was the first reason of; empty where the
    pod was refused whatever the nodes are. Then ``refused_by`` names the gate or part, and
    ``words`` say why. ``nodes``: how many there are. ``untried``: on how many of them the pod may
    fit, because there were too many to ask allocators about: it is tried again soon. ``reported``:
    what plugins say beside the reasons against nodes.
    """

    pod: Pod
    nodes: int = 0
    reasons: Mapping[int, int] = {}
    untried: int = 0
    refused_by: str = ""
    words: str = ""
    reported: tuple[str, ...] = ()

    @property
    def plugins(self) -> frozenset[str]:
        """Who refused, for `plan.hints`."""
        if self.refused_by:
            return frozenset({self.refused_by})
        return frozenset(REASONS[code].plugin for code in self.reasons)

    @property
    def resolvable(self) -> bool:
        """Whether evictions may help on some node."""
        return bool(self.untried) or any(not REASONS[code].unresolvable for code in self.reasons)

    def text(self) -> str:
        """The message of the condition, as kube-scheduler writes it."""
        if self.refused_by:
            return self.words
        counts: dict[str, int] = {}
        for code, number in self.reasons.items():
            words = REASONS[code].text
            counts[words] = counts.get(words, 0) + number
        if self.untried:
            counts["node(s) not tried yet"] = self.untried
        told = sorted(f"{number} {words}" for words, number in counts.items())
        available = f"0/{self.nodes} nodes are available"
        text = f"{available}: {', '.join(told)}." if told else f"{available}."
        return f"{text} {', '.join(self.reported)}." if self.reported else text
