"""``koordlet predict --back-test``: every model on what the store has kept, with or without the
daemon: how often each would have missed, and how much it would have reserved in vain."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from koordlet.admin.client import Fault, RefusedError
from koordlet.admin.prediction import ScoreView, score_views
from koordlet.cli import output
from koordlet.cli.main import Exit
from koordlet.cli.past import newest, opened
from koordlet.cli.settings import find
from koordlet.cli.show.scores import score_table
from koordlet.decision.metrics import Aggregate, Metric
from koordlet.decision.record import PodKind
from koordlet.diagnosis.who import everybody
from koordlet.drawing.clock import stretch
from koordlet.engine.prediction.figures import scored
from koordlet.engine.prediction.kept import Kept, Models
from koordlet.engine.prediction.targets import NODE_TARGET, USED_BY_APPLICATION, USED_BY_POD
from koordlet.history.source import Source
from koordlet.prediction.backtest import Model
from koordlet.prediction.forecast import Rule
from koordlet.prediction.part import PredictionOptions
from koordlet.prediction.season import DAY_S
from koordlet.prediction.subject import NODE, Subject, uid_of_application
from koordlet.protocol.histogram import SECOND_NS

LONGEST_S = 7 * DAY_S
"""Coarse history is kept for a week by default."""
MOST_WORKLOADS = 20
"""A week of so many takes up to a minute of CPU, most of it for reading."""
_STEPS_AT_ONCE = 10_100
"""Samples that one question asks for: a week of minutes."""
_LATELY_S = 600.0
"""Who was measured in this time before the end is there."""
_NAMES_S = 3600.0
"""Who was named in it can be asked for by name."""
_SEASON_S = 2 * DAY_S
"""With less history each hour of the day was seen once, so a season has nothing to say of it."""


class BackTestView(msgspec.Struct, frozen=True, kw_only=True):
    """``start``, ``end``: unix time of the first and the last sample. ``left_out``: workloads
    that are there and were not played. A test weighs half as much as one a day later."""

    source: str
    start: float
    end: float
    sample_s: float
    workloads: int
    left_out: int
    scores: tuple[ScoreView, ...]


class _Subject(NamedTuple):
    """``used``: the series, which have these ``labels``."""

    uid: str
    used: tuple[Metric, Metric]
    labels: Mapping[str, str]


def main(args: argparse.Namespace) -> int:
    options = find(args.config).config.prediction
    with opened(args) as source:
        end = newest(source)
        start = end - min(args.window or LONGEST_S, LONGEST_S)
        subjects, left_out = _one(source, args.target, end) if args.target else _all(source, end)
        models: Models = {}
        for each in subjects:
            model = _played(source, each, options, start, end)
            if model is not None:
                models[each.uid] = Kept(model, -math.inf)
    if not models:
        when = stretch(start, end)
        raise RefusedError(Fault.NOT_FOUND, f"{source.name}: nothing was measured from {when}")
    answer = BackTestView(
        source=source.name,
        start=min(each.subject.since_s for each in models.values()),
        end=max(each.subject.updated_s for each in models.values()),
        sample_s=options.training_interval_s,
        workloads=len(models.keys() - {NODE}),
        left_out=left_out,
        scores=tuple(sorted(score_views(scored(models)), key=_by_subject)),
    )
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK


def _all(source: Source, end: float) -> tuple[list[_Subject], int]:
    """The node, and of those who are there the workloads that use the most CPU; how many are left
    out."""
    found = [
        (each.value, _workload(used, each.labels))
        for used in (USED_BY_POD, USED_BY_APPLICATION)
        for each in source.query(used[0].kind, {}, _LATELY_S, Aggregate.AVG, end).series
    ]
    found.sort(key=lambda each: (-each[0], each[1].uid))
    largest = [subject for _, subject in found[:MOST_WORKLOADS]]
    return [_NODE, *largest], len(found) - len(largest)


def _one(source: Source, name: str, end: float) -> tuple[list[_Subject], int]:
    """By uid or name. Raises RefusedError."""
    if name in ("node", NODE):
        return [_NODE], 0
    for (kind, key), who in everybody(source, end - _NAMES_S, end).items():
        if name in (key, who.title):
            used = USED_BY_POD if kind is PodKind.POD else USED_BY_APPLICATION
            return [_workload(used, {used[0].labels[0]: key})], 0
    raise RefusedError(
        Fault.NOT_FOUND,
        f'{source.name}: {name!r} is neither "node" nor a pod or application of the last hour; '
        "classes of pods are sums, which cannot be played",
    )


_NODE = _Subject(NODE, NODE_TARGET.used, {})


def _workload(used: tuple[Metric, Metric], labels: Mapping[str, str]) -> _Subject:
    name = labels[used[0].labels[0]]
    return _Subject(name if used is USED_BY_POD else uid_of_application(name), used, labels)


def _played(
    source: Source, subject: _Subject, options: PredictionOptions, start: float, end: float
) -> Subject | None:
    """Its model after all samples, with the scores; None without a sample."""
    rule = Rule(Model.SEASONAL, options.safety_margin_percent, options.training_interval_s)
    model = None
    for time_s, cores, size in _samples(source, subject, rule.sample_s, start, end):
        if model is None:
            model = Subject(options.cpu_half_life_s, options.memory_half_life_s, time_s)
        model.learn(cores, size, int(time_s * SECOND_NS), rule)
    return model


def _samples(
    source: Source, subject: _Subject, step_s: float, start: float, end: float
) -> Iterator[tuple[float, float, float]]:
    """Unix time, cores and bytes; only where both were measured, as in training."""
    begin = start // step_s * step_s
    while begin < end:
        until = min(begin + _STEPS_AT_ONCE * step_s, end)
        cpu, memory = (
            source.query_range(each.kind, subject.labels, begin, until, step_s, Aggregate.P90)
            for each in subject.used
        )
        for cores, size in zip(cpu.series, memory.series, strict=False):
            for step, pair in enumerate(zip(cores.values, size.values, strict=True), 1):
                if pair[0] is not None and pair[1] is not None:
                    yield cpu.start + step * step_s, pair[0], pair[1]
        begin = until


def _by_subject(score: ScoreView) -> tuple[str, str]:
    return score.resource, score.subject


def lines(answer: BackTestView) -> list[str]:
    when, each = stretch(answer.start, answer.end), output.span(answer.sample_s)
    found = [f"Every model on the history of {when}, a sample each {each}, from {answer.source}"]
    if answer.left_out:
        total = answer.workloads + answer.left_out
        found.append(f"Of {total} workloads the {answer.workloads} that use the most CPU")
    if answer.end - answer.start < _SEASON_S:
        found.append("A season needs two days of history; with less the models differ little")
    if not answer.scores:
        return [*found, "Nothing was tested: the first test comes two hours after the first sample"]
    return [*found, "", *score_table(answer.scores)]
