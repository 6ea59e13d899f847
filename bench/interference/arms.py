"""Who disturbs whom, by resource, and for how long."""

from __future__ import annotations

from typing import NamedTuple

VICTIM, FILLER = "ls", "filler"
UNDECLARED = "undeclared-"
"""Prefix of an antagonist's cgroup that is no application of the configuration."""
LIMIT_BYTES = 384 << 20
"""Of memory, of all below an arm that is ``limited``."""


class Arm(NamedTuple):
    """``service`` and the others: names in ``load``. ``feature``: the capability that it needs.
    ``idle``: decoys under ``cpu.idle``. ``elsewhere``: decoys that run on another CPU. ``limited``:
    all share one limit of memory, which is full from the start."""

    resource: str
    feature: str
    service: str
    antagonists: tuple[str, ...]
    idle: tuple[str, ...] = ()
    decoys: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    limited: bool = False


ARMS = (
    Arm(
        "cpu",
        "bpf-run-queue",
        "service",
        ("spin", "forks", "copy", "hog"),
        idle=("spin",),
        decoys=("light-fsync",),
        elsewhere=("copy",),
    ),
    Arm(
        "io",
        "bpf-block-io",
        "io-service",
        ("io-write", "io-read"),
        elsewhere=("light-read", "light-fsync"),
    ),
    Arm(
        "memory",
        "bpf-memory-stalls",
        "memory-service",
        ("map-dirty", "cache-grow"),
        elsewhere=("cache-read", "own-memory"),
        limited=True,
    ),
)


class Length(NamedTuple):
    """Seconds. ``pause``: before each injection, and up to ``more`` at random. ``check``: so long a
    service is watched beside a decoy, and so long alone. ``closely``: it learns from windows of a
    second, as if there were an alarm, and not from calm ones of ten."""

    injection: float
    pause: float
    more: float
    check: float
    closely: bool = False


WHOLE = Length(6.0, 8.0, 1.0, 10.0)
LONG = Length(6.0, 4.0, 8.0, 10.0)
SMOKE = Length(3.0, 0.5, 1.0, 0.5, closely=True)
LONG_INJECTIONS = {"cpu": 22, "io": 21, "memory": 21}
LONG_SEEDS = (7, 11)
