"""``koordlet predict --back-test``: every model on what the store has kept, with or without the
daemon: how often each would have missed, and how much it would have reserved in vain."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Mapping

import msgspec

from koordlet.admin.client import Fault, RefusedError
from koordlet.admin.model import PodKind
from koordlet.admin.prediction import ScoreView
from koordlet.cli import output
from koordlet.cli.main import Exit
from koordlet.cli.past import opened
from koordlet.cli.settings import find
from koordlet.cli.show.scores import score_table
from koordlet.decision.metrics import Aggregate
from koordlet.drawing.clock import stretch
from koordlet.engine.prediction.figures import scored
from koordlet.engine.prediction.kept import Kept, Models
from koordlet.engine.prediction.targets import NODE_TARGET, USED_BY_APPLICATION, USED_BY_POD
from koordlet.history.source import Source
from koordlet.history.who import everybody
from koordlet.prediction.backtest import Model
from koordlet.prediction.forecast import Rule
from koordlet.prediction.histogram import SECOND_NS
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.season import DAY_S
from koordlet.prediction.subject import NODE, Subject, uid_of_application

LONGEST_S = 7 * DAY_S
"""Coarse history is kept for a week by default."""
MOST_WORKLOADS = 50
"""A week of so many takes some ten seconds."""
_STEPS_AT_ONCE = 120
"""Samples of all workloads that one question asks for: 120,000 on a full node."""
_LOOKS = 48
"""For how many parts of the time it is asked who was there."""
_SEASON_S = 2 * DAY_S
"""With less history each hour of the day was seen once, so a season has nothing to say of it."""
_KINDS = ((NODE_TARGET.used, ""), (USED_BY_POD, ""), (USED_BY_APPLICATION, "app:"))


class BackTestView(msgspec.Struct, frozen=True, kw_only=True):
    """``start``, ``end``: unix time of the first and the last sample. ``left_out``: workloads
    beyond the most that are played. A test weighs half as much as one a day later."""

    source: str
    start: float
    end: float
    sample_s: float
    workloads: int
    left_out: int
    scores: tuple[ScoreView, ...]


def main(args: argparse.Namespace) -> int:
    options = find(args.config).config.prediction
    window_s = min(args.window or LONGEST_S, LONGEST_S)
    end = time.time()
    with opened(args) as source:
        asked = Past(source, options, end - window_s, end)
        answer = asked.played(asked.find(args.target) if args.target else None)
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK


class Past:
    """What the store has of the time from ``start`` to ``end`` (unix seconds)."""

    def __init__(
        self, source: Source, options: PredictionOptions, start: float, end: float
    ) -> None:
        self._source = source
        self._options = options
        self._start = start
        self._end = end

    def find(self, name: str) -> str:
        """The uid of a pod, application or the node. Raises RefusedError."""
        for (kind, key), who in everybody(self._source, self._start, self._end).items():
            if name in (key, who.title):
                return key if kind is PodKind.POD else uid_of_application(key)
        if name in ("node", NODE):
            return NODE
        raise RefusedError(
            Fault.NOT_FOUND,
            f"{self._source.name}: {name!r} is neither a pod nor an application of that time, nor "
            '"node"; classes of pods are sums, which cannot be played',
        )

    def played(self, target: str | None) -> BackTestView:
        """Of one uid, or of the node and of the workloads that were there for longest. Raises
        RefusedError where there is no sample."""
        present = self._present()
        if target is None:
            workloads = sorted(present.keys() - {NODE}, key=lambda uid: (-present[uid], uid))
            wanted = {NODE, *workloads[:MOST_WORKLOADS]}
            left_out = max(len(workloads) - MOST_WORKLOADS, 0)
        else:
            wanted, left_out = {target}, 0
        options = self._options
        rule = Rule(Model.SEASONAL, options.safety_margin_percent, options.training_interval_s)
        models: Models = {}
        for uid, time_s, cores, size in self._samples():
            if uid not in wanted:
                continue
            model = models.get(uid)
            if model is None:
                halves = options.cpu_half_life_s, options.memory_half_life_s
                model = models[uid] = Kept(Subject(*halves, time_s), -math.inf)
            model.subject.learn(cores, size, int(time_s * SECOND_NS), rule)
        if not models:
            raise RefusedError(
                Fault.NOT_FOUND, f"{self._source.name}: no samples from {self._when}"
            )
        return BackTestView(
            source=self._source.name,
            start=min(each.subject.since_s for each in models.values()),
            end=max(each.subject.updated_s for each in models.values()),
            sample_s=options.training_interval_s,
            workloads=len(models.keys() - {NODE}),
            left_out=left_out,
            scores=tuple(_scores(models)),
        )

    @property
    def _when(self) -> str:
        return stretch(self._start, self._end)

    def _present(self) -> dict[str, int]:
        """For how many parts of the time there are samples, by uid."""
        step_s = max((self._end - self._start) / _LOOKS, self._options.training_interval_s)
        found: dict[str, int] = {}
        for (cpu, _), prefix in _KINDS:
            answer = self._source.query_range(
                cpu.kind, {}, self._start, self._end, step_s, Aggregate.COUNT
            )
            for each in answer.series:
                uid = _uid(each.labels, prefix)
                found[uid] = sum(value is not None for value in each.values)
        return found

    def _samples(self) -> Iterator[tuple[str, float, float, float]]:
        """Uid, unix time, cores and bytes, in the order of time for each uid; only where both were
        measured, as in training."""
        step_s = self._options.training_interval_s
        begin = self._start // step_s * step_s
        while begin < self._end:
            until = min(begin + _STEPS_AT_ONCE * step_s, self._end)
            for used, prefix in _KINDS:
                cpu, memory = (
                    self._source.query_range(each.kind, {}, begin, until, step_s, Aggregate.P90)
                    for each in used
                )
                sizes = {_uid(each.labels, prefix): each.values for each in memory.series}
                for each in cpu.series:
                    uid = _uid(each.labels, prefix)
                    pairs = zip(each.values, sizes.get(uid, ()), strict=False)
                    for step, (cores, size) in enumerate(pairs, 1):
                        if cores is not None and size is not None:
                            yield uid, cpu.start + step * step_s, cores, size
            begin = until


def _uid(labels: Mapping[str, str], prefix: str) -> str:
    return prefix + next(iter(labels.values())) if labels else NODE


def _scores(models: Models) -> Iterator[ScoreView]:
    for (model, resource, whom), score in sorted(
        scored(models).items(), key=lambda each: each[0][1:]
    ):
        if score.miss_ratio is not None:
            yield ScoreView(
                model=model,
                resource=resource,
                subject=whom,
                miss_ratio=score.miss_ratio,
                over_ratio=score.over_ratio or 0.0,
            )


def lines(answer: BackTestView) -> list[str]:
    when, each = stretch(answer.start, answer.end), output.span(answer.sample_s)
    found = [f"Every model on the history of {when}, a sample each {each}, from {answer.source}"]
    if answer.left_out:
        found.append(f"{answer.left_out} workloads with less history are left out")
    if answer.end - answer.start < _SEASON_S:
        found.append("A season needs two days of history; with less the models differ little")
    if not answer.scores:
        return [*found, "Nothing was tested: the first test comes two hours after the first sample"]
    return [*found, "", *score_table(answer.scores)]
