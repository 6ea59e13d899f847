"""What an attack is, and how one is played: its cycles are repeated until the time or their number
is up, and counted."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass
class Trial:
    """``directory`` is the attack's own. ``counts``: how often what happened. ``cycles`` yields
    until the attack is over."""

    chance: random.Random
    directory: Path
    counts: Counter[str]
    cycles: Iterator[int]


class Attack(NamedTuple):
    """``play`` raises AssertionError at the first difference. ``lacks`` says what this machine
    has not that it needs; empty where it can be played."""

    name: str
    play: Callable[[Trial], None]
    lacks: Callable[[], str] = lambda: ""


def for_seconds(seconds: float) -> Iterator[int]:
    """Cycles until the time is up, one at least."""
    until = time.monotonic() + seconds
    number = 0
    while not number or time.monotonic() < until:
        yield number
        number += 1


def run(attack: Attack, seed: int, cycles: Iterator[int]) -> Counter[str]:
    """What happened how often. Raises AssertionError with the seed that repeats it."""
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="koordlet-attack-") as directory:
        trial = Trial(random.Random(f"{attack.name} {seed}"), Path(directory), counts, cycles)
        try:
            attack.play(trial)
        except AssertionError as error:
            error.add_note(f"{attack.name}, seed {seed}, after {dict(counts)}")
            raise
    return counts
