"""How fast pods of one workload, of one namespace, and of all may go
(docs/reference/central.md 10.9)."""

from __future__ import annotations

from typing import NamedTuple

from koord_scheduler.balance.migration_args import NAME, MigrationArgs, limit_of, number_of
from koord_scheduler.balance.selecting import duration_s
from koord_scheduler.balance.world import Resident, World


class TokenBucket:
    """Full at first. ``now_s`` is any clock that does not go back; one that does adds nothing."""

    def __init__(self, per_s: float, burst: int) -> None:
        self.per_s, self.burst = per_s, burst
        self.used_s = 0.0
        self._tokens, self._at_s = float(burst), float("-inf")

    def tokens(self, now_s: float) -> float:
        if now_s > self._at_s:
            if self._at_s != float("-inf"):
                more = (now_s - self._at_s) * self.per_s
                self._tokens = min(self._tokens + more, float(self.burst))
            self._at_s = now_s
        return self._tokens

    def take(self, now_s: float) -> bool:
        self.used_s = now_s
        # What a rate adds up to misses a whole by a rounding error.
        if self.tokens(now_s) < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True

    def give_back(self) -> None:
        """What was taken was not used."""
        self._tokens = min(self._tokens + 1, float(self.burst))


class _Rate(NamedTuple):
    kind: str
    key: str
    per_s: float
    burst: int
    kept_s: float


class ObjectLimiters:
    """Buckets by workload and namespace. One that nobody used for 1.5 times its duration is full
    again anyway, and forgotten."""

    def __init__(self, args: MigrationArgs) -> None:
        self._args = args
        self._buckets: dict[tuple[str, str], tuple[TokenBucket, float]] = {}

    def refusal(self, world: World, resident: Resident) -> str | None:
        for rate in self._rates(world, resident):
            kept = self._buckets.get((rate.kind, rate.key))
            if kept is not None and kept[0].tokens(world.now_s) < 1 - 1e-9:
                return f"{rate.kind} {rate.key}: pods of it went too fast (objectLimiters)"
        return None

    def took(self, world: World, resident: Resident) -> None:
        """An eviction happened."""
        now_s = world.now_s
        for rate in self._rates(world, resident):
            key = (rate.kind, rate.key)
            bucket, _ = self._buckets.get(key, (TokenBucket(rate.per_s, rate.burst), 0.0))
            bucket.per_s, bucket.burst = rate.per_s, rate.burst
            bucket.take(now_s)
            self._buckets[key] = (bucket, rate.kept_s)
        old = [key for key, (b, kept_s) in self._buckets.items() if now_s - b.used_s > kept_s]
        for key in old:
            del self._buckets[key]

    def _rates(self, world: World, resident: Resident) -> list[_Rate]:
        found = []
        for kind, limiter in self._args.object_limiters.items():
            lasts_s = duration_s(NAME, kind, limiter.duration)
            if lasts_s <= 0:
                continue
            if kind == "workload":
                key, most = resident.pod.owner.uid, 0
                workload = world.workload_of(resident) if key else None
                if workload is not None:
                    value = limiter.max_migrating
                    if value is None:
                        value = self._args.max_migrating_per_workload
                    most = 0 if value == 0 else limit_of(workload.replicas, value)
            else:
                key, most = resident.namespace, number_of(limiter.max_migrating)
            if key and most > 0:
                burst = max(limiter.burst, 1)
                found.append(_Rate(kind, key, most / lasts_s, burst, 1.5 * lasts_s))
        return found
