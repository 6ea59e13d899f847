"""What pods are told of themselves: conditions that `kubectl describe pod` shows, and the events
beside them. Pure; times are monotonic seconds.

The reference tells of evictions alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from koordlet.decision.conflicts import Conflict
from koordlet.decision.snapshot import Fault, Pod

SUPPRESSED = "koordinator.sh/Suppressed"
REFUSED = "koordinator.sh/AnnotationsRefused"
CONFLICT = "koordinator.sh/AllocationConflict"
EVICTED = "koordinator.sh/Evicted"

BEGINS_BELOW, ENDS_AT = 0.9, 1.0
"""Share of what best-effort pods request that they may use."""
BEGINS_AFTER_S, ENDS_AFTER_S = 30.0, 120.0
"""How long it must be so. Suppression follows production from second to second, and whoever reads
a condition wants to know of what lasts."""
STEP_PERCENT = 25
"""Shares are told in such steps, so that a message changes seldom."""
MESSAGE_CHARACTERS = 1000
FAULTS_TOLD = 3
REASON_OF_REFUSAL = "InvalidAnnotation"
OTHERS_NAMED = 3


class Told(NamedTuple):
    """One condition. ``warns``: its event is a warning."""

    type: str
    status: bool
    reason: str
    message: str
    warns: bool = False


class Level(NamedTuple):
    """``percent``: of their requests, at most so much."""

    percent: int


@dataclass
class Suppression:
    """Whether best-effort pods get less CPU than they request, for long enough to tell them."""

    told: Level | None = None
    """None: they are not suppressed."""
    _candidate: Level | None = None
    _since_s: float | None = None

    def see(self, now_s: float, limit_milli: float | None, request_milli: float | None) -> None:
        """``limit_milli``: what all of them may use; None: not measured, nothing changes."""
        if limit_milli is None:
            return
        level = self._level(limit_milli, request_milli or 0.0)
        if level == self.told:
            self._candidate, self._since_s = None, None
            return
        if self._since_s is None or (level is None) != (self._candidate is None):
            self._since_s = now_s
        self._candidate = level
        after_s = ENDS_AFTER_S if level is None else BEGINS_AFTER_S
        if now_s - self._since_s >= after_s:
            self.told, self._candidate, self._since_s = level, None, None

    def _level(self, limit_milli: float, request_milli: float) -> Level | None:
        if request_milli <= 0:
            return None
        share = limit_milli / request_milli
        if share >= (BEGINS_BELOW if self.told is None else ENDS_AT):
            return None
        return Level(min(100, STEP_PERCENT * (int(100 * share) // STEP_PERCENT + 1)))


def suppressed(level: Level | None) -> Told:
    if level is None:
        text = "best-effort pods of this node may use all of the CPU that they request"
        return Told(SUPPRESSED, False, "CPUAvailable", text)
    text = (
        f"production needs CPU: best-effort pods of this node may use less than {level.percent} % "
        "of what they request"
    )
    return Told(SUPPRESSED, True, "CPUSuppressed", text)


def refused(faults: Iterable[Fault]) -> Told:
    """The first few, and how many more there are."""
    found = [f"{fault.path}: {fault.message}" for fault in faults]
    if not found:
        text = "koordlet can read all labels and annotations"
        return Told(REFUSED, False, "AllRead", text)
    text = "; ".join(found[:FAULTS_TOLD])
    if len(found) > FAULTS_TOLD:
        text += f"; and {len(found) - FAULTS_TOLD} more"
    text = text[:MESSAGE_CHARACTERS]
    return Told(REFUSED, True, REASON_OF_REFUSAL, text, warns=True)


def conflicting(found: Iterable[Conflict]) -> Told:
    """``found``: of one pod. Pods of other namespaces are counted and not named: whoever may read
    a pod need not know them."""
    texts = []
    for each in found:
        same = [pod.name for pod in each.others if pod.namespace == each.pod.namespace]
        named = same[:OTHERS_NAMED]
        rest = len(each.others) - len(named)
        holders = [f"pod {name}" for name in named]
        if rest:
            holders.append(f"{rest} other {'pod' if rest == 1 else 'pods'}")
        texts.append(f"{each.things}: given to {' and '.join(holders)} too")
    if not texts:
        text = "what the pod was given is its own"
        return Told(CONFLICT, False, "AllocationFree", text)
    text = "; ".join(texts)[:MESSAGE_CHARACTERS]
    return Told(CONFLICT, True, "AllocationTaken", text, warns=True)


def evicted(feature: str, message: str) -> Told:
    return Told(EVICTED, True, feature, message[:MESSAGE_CHARACTERS], warns=True)


class Due(NamedTuple):
    """``turns``: the condition's status is another one than before."""

    pod: Pod
    told: Told
    turns: bool


@dataclass
class Ledger:
    """What each pod has been told in this run, by uid and type. A pod that was never told a
    condition is not told that it does not hold."""

    _told: dict[str, dict[str, Told]] = field(default_factory=dict)

    def due(
        self,
        pods: Iterable[Pod],
        suppression: Level | None,
        conflicts: Mapping[str, tuple[Conflict, ...]] | None = None,
    ) -> list[Due]:
        """What is to be told now. Pods without a name are not known to the cluster. ``conflicts``:
        by the pod's uid."""
        found = []
        for pod in pods:
            if not pod.name or not pod.is_active:
                continue
            level = suppression if pod.is_best_effort else None
            taken = conflicting((conflicts or {}).get(pod.uid, ()))
            for told in (refused(pod.faults), suppressed(level), taken):
                before = self._told.get(pod.uid, {}).get(told.type)
                was = before is not None and before.status
                if told != before and (told.status or was):
                    found.append(Due(pod, told, told.status != was))
        return found

    def done(self, due: Due) -> None:
        self._told.setdefault(due.pod.uid, {})[due.told.type] = due.told

    def forget_others(self, uids: Iterable[str]) -> None:
        """Of pods that are gone nothing is kept."""
        here = set(uids)
        self._told = {uid: told for uid, told in self._told.items() if uid in here}

    def learn(self, uid: str, types: Iterable[str]) -> None:
        """Conditions that an earlier run has set: they end here, where they no longer hold."""
        known = self._told.setdefault(uid, {})
        for type_ in types:
            known.setdefault(type_, Told(type_, True, "", ""))
