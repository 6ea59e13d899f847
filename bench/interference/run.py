"""The arms, one after the other, and their figures."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import msgspec

from bench.figures import Figure, NotMeasuredError, quantile
from bench.interference.arms import ARMS, SMOKE, WHOLE
from bench.interference.scene import Scene
from bench.interference.score import Injection, Score, score

INJECTIONS = 10


def run(smoke: bool, say: Callable[[str], None], *, repeat: int = INJECTIONS) -> list[Figure]:
    """``repeat``: injections of each arm. Raises PermissionError without root, NotMeasuredError
    where the kernel lacks what all arms need."""
    length, count = (SMOKE, 1) if smoke else (WHOLE, repeat)
    found: list[Figure] = []
    lacking = []
    for arm in ARMS:

        def say_of(text: str, resource: str = arm.resource) -> None:
            say(f"{resource}: {text}")

        say_of(f"{count} injections of {length.injection:g} s")
        with ExitStack() as stack:
            try:
                scene = Scene(arm, stack, say_of)
                injections = scene.play(length, count, random.Random(7))
            except NotMeasuredError as error:
                say_of(str(error))
                lacking.append(str(error))
                continue
        ours = score(injections, scene.detectors.matrix.episodes)
        theirs = score(injections, scene.detectors.cpi2.episodes)
        _tell(injections, ours, say_of)
        found += [
            msgspec.structs.replace(figure, name=f"{arm.resource}: {figure.name}")
            for figure in _figures(injections, ours, theirs)
        ]
    if not found:
        raise NotMeasuredError("; ".join(lacking))
    return found


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


def _figures(injections: Sequence[Injection], ours: Score, theirs: Score) -> list[Figure]:
    harmful = sum(each.harms_from is not None for each in injections)
    figures = [
        Figure("injections that did harm", harmful, ""),
        Figure("recall", ours.recall, "", 0.95, at_most=False),
        Figure("precision", ours.precision, "", 0.95, at_most=False),
    ]
    system = [name for _, name in ours.wrong if name.startswith("system")]
    if system:  # what else the machine does: it may be right
        figures.append(Figure("of the wrong names, system", len(system), ""))
    if ours.delays_s:
        median, p90 = statistics.median(ours.delays_s), quantile(ours.delays_s, 0.9)
        figures += [
            Figure("delay, median", median, "s", 3.0),
            Figure("delay, p90", p90, "s"),
        ]
    return [
        *figures,
        Figure("recall of CPI2's rule", theirs.recall, ""),
        Figure("precision of CPI2's rule", theirs.precision, ""),
    ]
