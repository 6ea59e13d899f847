"""Which latency-sensitive work suffered, when, and from what: pressure and throttling by minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from koordlet.admin.pressure import PRESSED_PERCENT, THROTTLED_RATIO
from koordlet.decision import metrics as k
from koordlet.decision.metrics import Metric
from koordlet.decision.record import PodKind
from koordlet.diagnosis.who import Key, Who
from koordlet.drawing.clock import nice_step
from koordlet.history.source import Range, Source

MINUTE_S = 60.0
_MOST_STEPS = 720
_MOST_VALUES = 600_000
"""What is asked for at once, over all pods."""
PSI_MATCH = {"psi_precision": "10", "psi_degree": "some"}
_PERCENT_OF_RATIO = 100.0
Values = list[float | None]


class Cause(NamedTuple):
    """``limit``: a workload suffers in a minute whose mean is at least so many percent. There
    ``top`` begins to mark a value."""

    name: str
    words: str
    limit: float


CPU = Cause("cpu", "waited for a CPU", PRESSED_PERCENT / 2)
MEMORY = Cause("mem", "waited for memory", PRESSED_PERCENT / 2)
IO = Cause("io", "waited for a disk", PRESSED_PERCENT / 2)
THROTTLED = Cause(
    "throttled", "was stopped by its own CPU limit", _PERCENT_OF_RATIO * THROTTLED_RATIO / 2
)
CAUSES = (CPU, MEMORY, IO, THROTTLED)
KINDS: Mapping[PodKind, tuple[Metric, Metric, Metric]] = {
    PodKind.POD: (k.POD_PSI, k.POD_CPU_THROTTLED, k.POD_CPU_USAGE),
    PodKind.APPLICATION: (
        k.HOST_APPLICATION_PSI,
        k.HOST_APPLICATION_CPU_THROTTLED,
        k.HOST_APPLICATION_CPU_USAGE,
    ),
}


class Worst(NamedTuple):
    """``percent`` of the step number ``step``."""

    cause: Cause
    step: int
    percent: float


class Sufferer(NamedTuple):
    """``percent``: by cause, mean of each minute. ``suffered``: in how many minutes it suffered,
    ``suffered_s`` how much of the time they are: the first and the last minute may begin before it
    and end after it. ``score``: all minutes weighed, to order by."""

    who: Who
    percent: Mapping[Cause, Values]
    worst: Worst
    suffered: int
    suffered_s: float
    score: float


class Suffering(NamedTuple):
    """``sufferers``: all latency-sensitive work with a sample, the worst first. ``worst_step``: the
    minute in which all of them together had it worst, None where nobody had to wait. ``kinds``:
    which series there were."""

    start: float
    step_s: float
    steps: int
    sufferers: tuple[Sufferer, ...]
    worst_step: int | None
    kinds: frozenset[str]

    def at(self, step: int) -> float:
        return self.start + step * self.step_s


def minute_step(span_s: float, subjects: int) -> float:
    """A minute, longer where that would be too many numbers."""
    most = min(_MOST_STEPS, _MOST_VALUES // max(len(CAUSES) * subjects, 1))
    return max(MINUTE_S, nice_step(span_s, max(most, 1)))


def suffering(source: Source, names: Mapping[Key, Who], start: float, end: float) -> Suffering:
    """Raises RefusedError and NotReachableError."""
    step_s = minute_step(end - start, len(names))
    percent: dict[Key, dict[Cause, Values]] = {}
    kinds, whole = set(), None
    for kind, (psi, throttled, _) in KINDS.items():
        for metric, match, factor in (
            (psi, PSI_MATCH, 1.0),
            (throttled, {}, _PERCENT_OF_RATIO),
        ):
            whole = source.query_range(metric.kind, match, start, end, step_s, "avg")
            for key, cause, values in _read(whole, kind, metric):
                who = names.get(key)
                if who is not None and who.is_sensitive:
                    kinds.add(metric.kind)
                    percent.setdefault(key, {})[cause] = scaled(values, factor)
    assert whole is not None
    total = [0.0] * whole.steps
    found = []
    for key, each in percent.items():
        worst = _worst_of_each_step(each)
        for step, (part, _) in worst.items():
            total[step] += part
        within = [
            max(min(at + whole.step_s, end) - max(at, start), 0.0)
            for at in (whole.start + step * whole.step_s for step in range(whole.steps))
        ]
        found.append(_sufferer(names[key], each, worst, within))
    found.sort(key=lambda each: (-each.suffered, -each.score, each.who.title))
    most = max(total, default=0.0)
    return Suffering(
        whole.start,
        whole.step_s,
        whole.steps,
        tuple(found),
        total.index(most) if most > 0 else None,
        frozenset(kinds),
    )


def scaled(values: Sequence[float | None], factor: float) -> Values:
    return [None if value is None else value * factor for value in values]


def _read(whole: Range, kind: PodKind, metric: Metric) -> Iterator[tuple[Key, Cause, Values]]:
    by_name = {cause.name: cause for cause in CAUSES}
    for each in whole.series:
        cause = by_name.get(each.labels.get("psi_resource", THROTTLED.name))
        if cause is not None:
            yield (kind, each.labels[metric.labels[0]]), cause, each.values


def _worst_of_each_step(percent: Mapping[Cause, Values]) -> dict[int, tuple[float, Cause]]:
    """How near to its limit the worst cause is; 1 is at the limit."""
    found: dict[int, tuple[float, Cause]] = {}
    for cause, values in percent.items():
        for step, value in enumerate(values):
            part = 0.0 if value is None else value / cause.limit
            if value is not None and (step not in found or part > found[step][0]):
                found[step] = part, cause
    return found


def _sufferer(
    who: Who,
    percent: Mapping[Cause, Values],
    worst: Mapping[int, tuple[float, Cause]],
    within: Sequence[float],
) -> Sufferer:
    """``within``: how many seconds of each step are in the time."""
    step = max(worst, key=lambda step: (worst[step][0], -step), default=0)
    part, cause = worst.get(step, (0.0, CPU))
    return Sufferer(
        who=who,
        percent=percent,
        worst=Worst(cause, step, part * cause.limit),
        suffered=sum(part >= 1.0 for part, _ in worst.values()),
        suffered_s=sum(within[step] for step, (part, _) in worst.items() if part >= 1.0),
        score=sum(part for part, _ in worst.values()),
    )
