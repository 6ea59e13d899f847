"""What a history recommends, and that the API server can keep it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.central.workloads import samples
from koord_scheduler.recommend.history import MIB, MOST_CONTAINERS, History, Request
from koord_scheduler.recommend.policy import DAY_S, HOUR_S, Policy
from koord_scheduler.recommend.record import MOST_CHARACTERS, RecordError, history_of, text_of
from koord_scheduler.recommend.target import ContainerUsage

START_S = 1_795_651_200.0
POLICY = Policy(least_history_s=HOUR_S)


def _filled(
    cpu_milli: float = 500, memory_mib: float = 100, count: int = 24, step_s: float = 300
) -> History:
    history = History(POLICY)
    for number in range(count):
        usage = ContainerUsage("main", cpu_milli, memory_mib * MIB)
        history.add([usage], START_S + number * step_s)
    return history


def test_the_end_of_the_bucket_and_a_margin() -> None:
    """The bucket of 500 milli-cores ends at 539.5, that of 100 MiB at 107.9."""
    found = _filled().recommended(START_S + 2 * HOUR_S)["main"]
    assert found == Request(594, 119 * MIB)
    assert found.memory_bytes % MIB == 0


def test_what_idles_gets_the_least() -> None:
    found = _filled(0, 0).recommended(START_S + 2 * HOUR_S)["main"]
    assert found == Request(28, 6 * MIB)


@pytest.mark.parametrize(
    ("count", "step_s", "after_s", "enough"),
    [(11, 400, 2 * HOUR_S, False), (12, 400, 2 * HOUR_S, True), (99, 1, 99, False)],
)
def test_enough_must_be_known(count: int, step_s: float, after_s: float, enough: bool) -> None:
    found = _filled(count=count, step_s=step_s).recommended(START_S + after_s)
    assert bool(found) is enough


def test_rare_peaks_of_cpu_do_not_count_those_of_memory_do() -> None:
    history = _filled(count=97)
    history.add([ContainerUsage("main", 8000, 900 * MIB)] * 3, START_S + 97 * 300)
    found = history.recommended(START_S + 10 * HOUR_S)["main"]
    assert found.cpu_milli == 594 and found.memory_bytes > 900 * MIB


def test_the_past_fades() -> None:
    history = _filled(cpu_milli=4000, count=288)
    for number in range(20 * 288):
        at_s = START_S + DAY_S + number * 300
        history.add([ContainerUsage("main", 500, 100 * MIB)], at_s)
    assert history.recommended(START_S + 21 * DAY_S)["main"].cpu_milli == 594


def test_what_stands_is_compared_with_what_comes() -> None:
    history = _filled()
    assert history.containers["main"].tried == 0
    history.stands(history.recommended(START_S + 2 * HOUR_S))
    for cpu, memory in ((100, 50), (600, 50), (100, 500), (594, 119)):
        history.add([ContainerUsage("main", cpu, memory * MIB)], START_S + 3 * HOUR_S)
    learned = history.containers["main"]
    assert (learned.tried, learned.cpu_missed, learned.memory_missed) == (4, 1, 1)


def test_containers_are_bounded_and_forgotten() -> None:
    history = History(POLICY)
    usages = [ContainerUsage(f"c{number}", 1, 1) for number in range(MOST_CONTAINERS + 5)]
    history.add(usages, START_S)
    assert len(history.containers) == MOST_CONTAINERS
    history.keep(["c1", "other"])
    assert list(history.containers) == ["c1"]


@pytest.mark.parametrize("kind", ["daily", "bursty", "nightly"])
def test_a_history_kept_recommends_the_same(kind: str) -> None:
    history = History(POLICY)
    now_s = START_S
    for sample in samples(kind, 3):
        history.add(sample.usages, sample.time_s)
        now_s = sample.time_s
    history.stands(history.recommended(now_s))
    text = text_of(history)
    back = history_of(text, POLICY, now_s)
    assert len(text) < 2048
    assert back.recommended(now_s) == history.recommended(now_s)
    assert (back.since_s, back.last_s) == (history.since_s, history.last_s)
    assert text_of(back) == text
    # And it goes on as if nothing had been.
    for sample in samples(kind, 0.5):
        later = sample.time_s + 4 * DAY_S
        back.add(sample.usages, later)
        history.add(sample.usages, later)
    end_s = START_S + 5 * DAY_S
    for name, request in history.recommended(end_s).items():
        assert back.recommended(end_s)[name].cpu_milli == pytest.approx(request.cpu_milli, rel=0.06)


def _record(**changes: Any) -> str:
    tree = json.loads(text_of(_filled()))
    for path, value in changes.items():
        at = tree
        *above, last = path.split("__")
        for key in above:
            at = at[key]
        at[last] = value
    return json.dumps(tree)


_CPU = "containers__main__cpu"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{" * 5000,
        "x" * (MOST_CHARACTERS + 1),
        _record(version=2),
        _record(since=-1),
        _record(last=0),
        _record(last=2**40),
        _record(containers={f"c{n}": json.loads(_record())["containers"]["main"]
                            for n in range(17)}),
        _record(containers={"c" * 64: json.loads(_record())["containers"]["main"]}),
        _record(containers__main__samples=-1),
        _record(containers__main__tried=2**60),
        _record(**{_CPU: [int(START_S), 10.0, {"-1": 5}]}),
        _record(**{_CPU: [int(START_S), 10.0, {"9999": 5}]}),
        _record(**{_CPU: [int(START_S), 10.0, {"5": 0}]}),
        _record(**{_CPU: [int(START_S), 10.0, {"5": 10**30}]}),
        _record(**{_CPU: [int(START_S), 0.0, {"5": 5}]}),
        _record(**{_CPU: [int(START_S), 1e300, {"5": 5}]}),
        _record(**{_CPU: [2**60, 10.0, {"5": 5}]}),
        _record(**{_CPU: [-(2**60), 10.0, {"5": 5}]}),
        _record(**{_CPU: [int(START_S), float("nan"), {"5": 5}]}),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(RecordError):
        history_of(text, POLICY, START_S + DAY_S)


def test_an_empty_histogram_is_no_error() -> None:
    back = history_of(_record(**{_CPU: [0, 0.0, {}]}), POLICY, START_S + DAY_S)
    assert back.containers["main"].cpu.is_empty
