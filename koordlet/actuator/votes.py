"""What all owners want of every file, merged. A file is voted on again when a claim on it changed:
of thousands that stand, a few do."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping

from koordlet.actuator.claims import absorb
from koordlet.actuator.merge import Claim, Key, Merged, bound_protection, merge, within_quota
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import Resource, Value

Fault = tuple[Result, str]
"""Why a claim can be written nowhere and never."""

_PROTECTION = frozenset({Resource.MEMORY_MIN, Resource.MEMORY_LOW})


class Votes:
    """``find_fault`` is asked about each new value, and about one that has a fault at each count.
    ``ranks``, ``memory_bytes``: see ``merge`` and ``bound_protection``.

    ``targets``: file -> what it shall hold, as of the last ``count``.
    """

    def __init__(
        self,
        claims: Mapping[str, Mapping[Key, Claim]],
        ranks: Mapping[str, int],
        find_fault: Callable[[Claim], Fault | None],
        memory_bytes: int | None,
    ) -> None:
        self.targets: dict[Key, Merged] = {}
        self.faults: dict[Key, dict[str, Fault]] = {}
        """File -> owner -> what is wrong with its claim."""
        self._ranks = ranks
        self._find_fault = find_fault
        self._memory_bytes = memory_bytes
        self._wanted: dict[str, Mapping[Key, Claim]] = {}
        self._plans: dict[str, Plan] = {}
        self._ballots: dict[Key, dict[str, Claim]] = {}
        self._sound: dict[tuple[str, Key], Value] = {}
        self._unbound: dict[Key, Merged] = {}
        """What protects memory, before it is bounded by the memory there is."""
        self._touched: dict[Key, None] = {}
        for owner, wanted in claims.items():
            self._set(owner, wanted, wanted)

    def take(self, plan: Plan) -> None:
        """Replace, or amend, what the plan's owner wants."""
        before = self._wanted.get(plan.owner, {})
        if self._plans.get(plan.owner) is plan:
            return
        wanted = absorb(before, plan)
        keys = [Key(each.cgroup, each.resource) for each in plan.settings]
        self._set(plan.owner, wanted, keys if plan.amends else dict.fromkeys((*before, *wanted)))
        if not plan.amends:
            self._plans[plan.owner] = plan

    def drop(self, owner: str) -> None:
        self._set(owner, {}, self._wanted.get(owner, {}))

    def clear(self) -> None:
        for owner in tuple(self._wanted):
            self.drop(owner)

    def claim(self, owner: str, key: Key) -> Claim:
        return self._wanted[owner][key]

    def without(self, owner: str, key: Key) -> Value | None:
        """What the others want of a file; None where they want nothing that can be written."""
        faults = self.faults.get(key, {})
        ballot = self._ballots.get(key, {})
        others = [c for each, c in ballot.items() if each != owner and each not in faults]
        return merge(others, self._ranks).value if others else None

    def claims(self) -> Iterator[tuple[str, Key]]:
        """(owner, file) of every claim."""
        return ((owner, key) for owner, wanted in self._wanted.items() for key in wanted)

    def size(self, owner: str) -> int:
        """How many claims the owner has."""
        return len(self._wanted.get(owner, ()))

    def count(self, only: Container[Key] | None = None) -> tuple[Key, ...]:
        """Bring ``targets`` and ``faults`` up to date. Returns the files of which a claim or the
        target changed.

        ``only``: the files whose faults are looked for again, None for all.
        """
        again = [key for key in self.faults if only is None or key in only]
        changed, self._touched = self._touched, {}
        for key in self._order((*changed, *again)):
            before = self.targets.get(key)
            self._count(key)
            if self.targets.get(key) != before:
                changed[key] = None
        if self._memory_bytes is not None and any(k.resource in _PROTECTION for k in changed):
            bound = dict(self._unbound)
            bound_protection(bound, self._memory_bytes)
            changed.update((key, None) for key, each in bound.items() if self.targets[key] != each)
            self.targets.update(bound)
        return tuple(changed)

    def _set(self, owner: str, wanted: Mapping[Key, Claim], keys: Iterable[Key]) -> None:
        """``keys``: where the claims may differ from those before."""
        before = self._wanted.get(owner, {})
        for key in keys:
            claim = wanted.get(key)
            if claim == before.get(key):
                continue
            self._touched[key] = None
            ballot = self._ballots.setdefault(key, {})
            if claim is not None:
                ballot[owner] = claim
                continue
            del ballot[owner]
            self._sound.pop((owner, key), None)
            if not ballot:
                del self._ballots[key]
        self._wanted[owner] = wanted
        self._plans.pop(owner, None)
        if not wanted:
            del self._wanted[owner]

    def _count(self, key: Key) -> None:
        faults = dict(self._faults(key))
        valid = [c for owner, c in self._ballots.get(key, {}).items() if owner not in faults]
        for table in (self.faults, self.targets, self._unbound):
            table.pop(key, None)
        if faults:
            self.faults[key] = faults
        if valid:
            merged = merge(valid, self._ranks)
            if key.resource is Resource.CPU_BURST_US:
                quota = self.targets.get(Key(key.cgroup, Resource.CPU_QUOTA_US))
                merged = within_quota(merged, quota)
            self.targets[key] = merged
            if key.resource in _PROTECTION:
                self._unbound[key] = self.targets[key]

    def _order(self, keys: Iterable[Key]) -> Iterable[Key]:
        """``keys``, and the bursts of those that are quotas, each after its quota."""
        found = dict.fromkeys(keys)
        for key in tuple(found):
            burst = Key(key.cgroup, Resource.CPU_BURST_US)
            if key.resource is Resource.CPU_QUOTA_US and burst in self._ballots:
                found.pop(burst, None)
                found[burst] = None
        return found

    def _faults(self, key: Key) -> Iterator[tuple[str, Fault]]:
        for owner, claim in self._ballots.get(key, {}).items():
            value = claim.setting.value
            if not claim.active or self._sound.get((owner, key)) == value:
                continue
            fault = self._find_fault(claim)
            if fault is None:
                self._sound[owner, key] = value
            else:
                self._sound.pop((owner, key), None)
                yield owner, fault
