"""The killer, in the middle of the writer: plans as fast as they go, hundreds of kills a minute."""

from __future__ import annotations

from tests.actuator import killing
from tests.attack.attack import Attack, Trial


def play(trial: Trial) -> None:
    trial.counts.update(killing.play(trial.directory, trial.chance, trial.cycles))


ATTACK = Attack("writer", play, killing.lacks)
