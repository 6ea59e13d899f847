"""Means tried in turn in short slices under the same load, and which of them is kept. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from statistics import fmean

import msgspec

from koordlet.decision.snapshot import Means
from koordlet.protocol.intervals import Interval, mean_of, ratio
from koordlet.qos.cpu_means.look import Look

ROUNDS, ROUNDS_OF_ALL = 6, 2
WORSE = 1.5
"""After ``ROUNDS_OF_ALL`` rounds a means that costs so many times as much as the cheapest one, and
one under which best effort gets too little, is not tried any more: services wait meanwhile."""
SLICE_S, DROP_S = 5.0, 2.0
"""The beginning of each slice is dropped: the kernel and the limits follow within it."""
LEAST_BE_SHARE = 0.8
"""A means under which best effort gets less than this part of what the best one gives is none."""


class Trial(msgspec.Struct, frozen=True):
    """``left``: indices of ``candidates`` that have their turn yet in the current round, which is
    ``round``, from 1 on; empty when the trial is over. ``since``: when the current slice began (as
    ``Snapshot.now``). ``looks``: of the current slice. ``done``: means of
    slices, by candidate."""

    candidates: tuple[Means, ...]
    seed: int
    round: int
    left: tuple[int, ...]
    since: float
    looks: tuple[Look, ...] = ()
    done: tuple[tuple[Look, ...], ...] = ()

    @property
    def is_over(self) -> bool:
        return not self.left

    @property
    def means(self) -> Means:
        """Return what is tried now; the first candidate when it is over."""
        return self.candidates[self.left[0] if self.left else 0]

    @property
    def most_left_s(self) -> float:
        """Time until it is over, if nothing more turns out to be too bad."""
        return (len(self.left) + (ROUNDS - self.round) * len(_worth(self))) * SLICE_S


class Kept(msgspec.Struct, frozen=True):
    """Outcome of a trial. ``figures``: of each candidate, in its order; ``ratio``: cost of what
    is kept by that of the first candidate, None where they are the same."""

    means: Means
    candidates: tuple[Means, ...]
    figures: tuple[Look, ...]
    ratio: Interval | None
    at: float
    ls_cores: float


def begin(candidates: Sequence[Means], now: float, seed: int) -> Trial:
    """Start a trial. ``candidates``: the default first."""
    trial = Trial(tuple(candidates), seed, 0, (), now, done=((),) * len(candidates))
    return _next_round(trial)


def step(trial: Trial, seen: Look | None, now: float) -> Trial | None:
    """The trial a tick later. None: a whole slice went by without a measurement, so it is given
    up."""
    looks = trial.looks
    if seen is not None and now - trial.since > DROP_S:
        looks = (*looks, seen)
    if now - trial.since < SLICE_S:
        return msgspec.structs.replace(trial, looks=looks)
    if not looks:
        return None
    index, *left = trial.left
    done = list(trial.done)
    done[index] = (*done[index], _mean(looks))
    after = msgspec.structs.replace(trial, since=now, looks=(), done=tuple(done), left=tuple(left))
    return after if left or after.round == ROUNDS else _next_round(after)


def _next_round(trial: Trial) -> Trial:
    """Draw the order of the next round: each that is worth it once."""
    worth = _worth(trial)
    order = random.Random(trial.seed * ROUNDS + trial.round).sample(worth, len(worth))
    return msgspec.structs.replace(trial, round=trial.round + 1, left=tuple(order))


def _worth(trial: Trial) -> list[int]:
    """Candidates that are tried further: the first one, and those that are not much too bad."""
    rounds = trial.round - 1 if trial.left else trial.round
    if rounds < ROUNDS_OF_ALL:
        return list(range(len(trial.candidates)))
    figures = {
        index: _mean(slices[:rounds])
        for index, slices in enumerate(trial.done)
        if len(slices) >= rounds
    }
    allowed = [index for index in figures if not _is_too_little(figures[index], figures.values())]
    most = WORSE * min(figures[index].cost for index in allowed)
    return [0, *(index for index in allowed if index and figures[index].cost <= most)]


def _is_too_little(figures: Look, among: Iterable[Look]) -> bool:
    """Return whether best effort gets too little."""
    return figures.be_cores < LEAST_BE_SHARE * max(each.be_cores for each in among)


def choose(trial: Trial, now: float) -> Kept:
    """The cheapest of those that are surely cheaper than the first candidate, else that one."""
    costs = [[each.cost for each in slices] for slices in trial.done]
    figures = tuple(_mean(slices) for slices in trial.done)
    best, found = 0, None
    for index in range(1, len(costs)):
        if len(costs[index]) < ROUNDS or _is_too_little(figures[index], figures):
            continue
        against = ratio(mean_of(costs[index]), mean_of(costs[0]), ROUNDS)
        if against is None or against.high is None or against.high >= 1.0:
            continue
        if found is None or fmean(costs[index]) < fmean(costs[best]):
            best, found = index, against
    return Kept(
        trial.candidates[best], trial.candidates, figures, found, now,
        fmean(each.ls_cores for each in figures),
    )  # fmt: skip


def _mean(looks: Sequence[Look]) -> Look:
    return Look(*(fmean(getattr(each, name) for each in looks) for name in Look.__struct_fields__))
