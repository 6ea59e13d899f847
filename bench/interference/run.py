"""The arms, one after the other, and their figures."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import msgspec

from bench.figures import Figure, NotMeasuredError, quantile
from bench.interference.arms import (
    ARMS,
    LONG,
    LONG_INJECTIONS,
    LONG_SEEDS,
    SMOKE,
    WHOLE,
    Arm,
    Length,
)
from bench.interference.detectors import Detectors
from bench.interference.scene import Scene
from bench.interference.score import Injection, Score, gone_after_s, score

INJECTIONS = 10
_SEED = 7
_STORM = "forks"
_CLOSELY_S = 2.0
"""After so long of an injection a window is one of a second."""


def run(
    smoke: bool, say: Callable[[str], None], *, repeat: int = INJECTIONS, long: bool = False
) -> list[Figure]:
    """``repeat``: injections of each arm. ``long``: 64 injections in all, with each of two seeds.
    Raises PermissionError without root, NotMeasuredError where the kernel lacks what all arms
    need."""
    found: list[Figure] = []
    lacking: list[str] = []
    for arm in ARMS:
        if long and not smoke:
            for seed in LONG_SEEDS:
                name, count = f"{arm.resource}, seed {seed}", LONG_INJECTIONS[arm.resource]
                found += _played(arm, LONG, count, seed, name, say, lacking)
        else:
            length, count = (SMOKE, 2) if smoke else (WHOLE, repeat)
            found += _played(arm, length, count, _SEED, arm.resource, say, lacking)
    if not found:
        raise NotMeasuredError("; ".join(lacking))
    return found


def _played(
    arm: Arm,
    length: Length,
    count: int,
    seed: int,
    name: str,
    say: Callable[[str], None],
    lacking: list[str],
) -> list[Figure]:
    def say_of(text: str) -> None:
        say(f"{name}: {text}")

    say_of(f"{count} injections of {length.injection:g} s")
    with ExitStack() as stack:
        try:
            scene = Scene(arm, stack, say_of)
            injections = scene.play(length, count, random.Random(seed))
        except NotMeasuredError as error:
            say_of(str(error))
            lacking.append(str(error))
            return []
    _tell(injections, score(injections, scene.detectors.matrix.episodes), say_of)
    return [
        msgspec.structs.replace(figure, name=f"{name}: {figure.name}")
        for figure in _figures(injections, scene.detectors)
    ]


def _tell(injections: Sequence[Injection], ours: Score, say: Callable[[str], None]) -> None:
    first = injections[0].start
    if ours.delays_s:
        say(f"found after {', '.join(f'{each:.1f}' for each in ours.delays_s)} s")
    for each in ours.missed:
        say(f"missed {each.culprit} at {each.start - first:.1f} s")
    for time_s, name in ours.wrong:
        say(f"named {name} at {time_s - first:.1f} s, wrongly")
    for each in injections:
        if each.harms_from is None:
            say(f"{each.culprit} at {each.start - first:.1f} s did no harm")


def _figures(injections: Sequence[Injection], detectors: Detectors) -> list[Figure]:
    ours, logged, theirs = (
        score(injections, each.episodes)
        for each in (detectors.matrix, detectors.events, detectors.cpi2)
    )
    harmful = sum(each.harms_from is not None for each in injections)
    figures = [
        Figure("injections that did harm", harmful, ""),
        Figure("recall", ours.recall, "", 1.0, at_most=False),
        Figure("recall in events", logged.recall, "", 1.0, at_most=False),
        Figure("precision", ours.precision, "", 0.95, at_most=False),
        Figure("precision in events", logged.precision, "", 0.95, at_most=False),
    ]
    system = [name for _, name in ours.wrong if name.startswith("system")]
    if system:  # what else the machine does: it may be right
        within = ours.right / max(ours.right + len(ours.wrong) - len(system), 1)
        figures += [
            Figure("of the wrong names, work outside the scene", len(system), ""),
            Figure("precision without these", within, ""),
        ]
    if ours.delays_s:
        median, p90 = statistics.median(ours.delays_s), quantile(ours.delays_s, 0.9)
        figures += [
            Figure("delay, median", median, "s", 3.0),
            Figure("delay, p90", p90, "s"),
        ]
    if gone := gone_after_s(injections, detectors.matrix):
        figures += [
            Figure("name gone after, median", statistics.median(gone), "s", 2.0),
            Figure("name gone after, longest", max(gone), "s"),
        ]
    if storm := _windows_s(injections, detectors, _STORM):
        figures.append(Figure("longest window in a fork storm", max(storm), "s", 1.5))
    return [
        *figures,
        Figure("recall of CPI2's rule", theirs.recall, ""),
        Figure("precision of CPI2's rule", theirs.precision, ""),
    ]


def _windows_s(injections: Sequence[Injection], detectors: Detectors, culprit: str) -> list[float]:
    """Lengths of those in its injections, once it is looked at closely."""
    return [
        span_s
        for each in injections
        if each.culprit.endswith(culprit)
        for end, span_s in detectors.windows
        if each.start + _CLOSELY_S <= end <= each.end
    ]
