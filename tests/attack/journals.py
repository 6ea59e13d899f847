"""Damaged journals: cut, emptied, reordered, mixed, with bits flipped. Restore never says that
everything is back while something is not, and never writes what nobody knows to be an original."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.actuator.journal.test_damage import MUTATIONS_OF, Story, judge
from tests.attack.attack import Attack, Trial

MUTATIONS = 60
"""Of each story; another one takes as long as some of them."""


def play(trial: Trial) -> None:
    chance = trial.chance
    for _ in trial.cycles:
        layout = chance.choice(("hybrid", "v2"))
        with tempfile.TemporaryDirectory(dir=trial.directory) as directory:
            story = Story(layout, Path(directory) / "a", seed=chance.getrandbits(32))
            other = Story(layout, Path(directory) / "b", seed=chance.getrandbits(32))
            for number in range(MUTATIONS):
                kind = chance.choice(MUTATIONS_OF)
                data = kind(chance, story.journal, story, other)
                report = judge(story, data, f"{layout}, {kind.__name__}, mutation {number}")
                trial.counts["mutations"] += 1
                trial.counts["said to be complete" if report.ok else "said to be damaged"] += 1
                trial.counts["files compared"] += len(story.held)


ATTACK = Attack("journals", play)
