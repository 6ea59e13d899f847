"""The figures of a run, fixed before its first arm."""

from __future__ import annotations

from dataclasses import dataclass

from koordlet.demo.model import ARMS, Settings

# The service takes this part of the node; a request lasts at least MIN_SERVICE_MS, and longer
# where one Python client could not send fast enough to reach that part.
LS_UTILISATION = 0.30
MIN_SERVICE_MS = 2.5
MAX_RATE = 1200.0
THRASH_MIB = 64
MIN_SLICE_S, MAX_SLICE_S = 2.0, 60.0
MAX_SLICES = 1000


@dataclass(frozen=True)
class Wish:
    """What the user asked for; ``rate`` None: what makes the service use LS_UTILISATION."""

    slice_s: float
    slices: int
    arms: tuple[str, ...]
    rate: float | None = None
    seed: int = 1


def problem(wish: Wish) -> str:
    """Why this cannot be run, with what to do; empty when it can."""
    unknown = [name for name in wish.arms if name not in ARMS]
    if unknown or not wish.arms:
        return f"--arms: no arm {unknown[0] if unknown else ''!r}; there are: {', '.join(ARMS)}"
    if len(set(wish.arms)) != len(wish.arms):
        return "--arms: each arm once; use --slices to measure them more often"
    if not MIN_SLICE_S <= wish.slice_s <= MAX_SLICE_S:
        return f"--seconds must be from {MIN_SLICE_S:g} to {MAX_SLICE_S:g}, not {wish.slice_s:g}"
    if not 1 <= wish.slices <= MAX_SLICES:
        return f"--slices must be from 1 to {MAX_SLICES}, not {wish.slices}"
    if wish.rate is not None and not 0 < wish.rate <= 1e5:
        return f"--rate must be above 0 and at most 100000, not {wish.rate:g}"
    return ""


def service_ms(cpus: int) -> float:
    """How long one request keeps a CPU busy."""
    return max(MIN_SERVICE_MS, LS_UTILISATION * cpus * 1000 / MAX_RATE)


def plan(
    wish: Wish, *, cpus: int, layout: str, kernel: str, rounds: int, simulated: bool
) -> Settings:
    lasts_ms = service_ms(cpus)
    return Settings(
        slice_s=wish.slice_s,
        slices=wish.slices,
        seed=wish.seed,
        arms=wish.arms,
        rate_per_s=wish.rate or round(LS_UTILISATION * cpus * 1000 / lasts_ms, 1),
        service_ms=lasts_ms,
        rounds=rounds,
        workers=cpus,
        burners=2 * cpus,
        thrash_mib=THRASH_MIB,
        cpus=cpus,
        simulated=simulated,
        kernel=kernel,
        cgroup_layout=layout,
    )
