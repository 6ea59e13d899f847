"""Other settings over the same inputs, with figures that can be worked out by hand."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from koordlet.cli.replay import tune_lines
from koordlet.decision.names import shown
from koordlet.protocol.errors import ProtocolError
from koordlet.qos.cpu_suppress.quota import BAND
from koordlet.replay.change import Change, change_of
from koordlet.replay.trace import Trace
from koordlet.replay.tune import Tuned, around, tune
from koordlet.replay.whatif import OPEN_LOOP, WhatIf, what_if
from tests.daemon.world import APPLICATIONS, CPUS, NO_ALARMS, World, suppress
from tests.replay.conftest import live, trace_of

ALWAYS = 0.0, 1e12
PERCENT = "slo.resourceUsedThresholdWithBE.cpuSuppressThresholdPercent"
CORE_US = 100_000
BAND_US = BAND * CPUS * CORE_US
"""A limit that is nearer than this to the one in force is not written."""


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, float]]:
    """A service that uses one core for a minute, and best effort that takes the rest. The state,
    and when all had settled."""
    directory = tmp_path_factory.mktemp("steady")
    world = World(directory, suppress("cfsQuota") + APPLICATIONS + NO_ALARMS)
    world.start()
    world.application("shop", 1.0)
    world.application("batch", 4.0)
    live(world, 40)
    settled_s = world.host.time()
    live(world, 20)
    world.stop()
    yield directory / "state", settled_s


@pytest.fixture
def trace(steady: tuple[Path, float]) -> Trace:
    return trace_of(steady[0])


@pytest.fixture
def settled(steady: tuple[Path, float]) -> tuple[float, float]:
    return steady[1] + 0.5, 1e12


def count(found: WhatIf, part: str) -> tuple[int, int]:
    """Decisions, and how many differ."""
    each = next(each for each in found.parts if each.part == part)
    return each.decisions, each.differ


def test_the_same_settings_change_nothing(trace: Trace) -> None:
    found = what_if(trace, change_of([(PERCENT, 65)]), *ALWAYS)
    assert found.turns > 60
    assert found.differences == ()
    assert {each.differ for each in found.parts} == {0}
    assert found.unequal == 0


def test_more_room_is_worth_so_many_cores(trace: Trace, settled: tuple[float, float]) -> None:
    """80 % of 4 CPUs is 0.6 cores more than 65 %."""
    found = what_if(trace, change_of([(PERCENT, 80)]), *settled)
    decisions, differ = count(found, "cpu-suppress")
    assert decisions == differ == 20
    assert count(found, "cpu-qos")[1] == 0
    first = found.differences[0]
    quotas = [
        sum(int(line.rpartition(" = ")[2]) for line in lines)
        for lines in (first.recorded, first.instead)
    ]
    assert quotas[1] - quotas[0] == pytest.approx(0.15 * CPUS * CORE_US, abs=BAND_US)
    assert first.part == "cpu-suppress"
    assert all("cpu.cfs_quota_us = " in line for line in (*first.recorded, *first.instead))
    assert found.note == OPEN_LOOP


def test_off(trace: Trace, settled: tuple[float, float]) -> None:
    """A part that is switched off, by its own option or by the NodeSLO, gives up what it set."""
    keys = ("strategies.cpu-suppress.enable", "slo.resourceUsedThresholdWithBE.enable")
    for key in keys:
        found = what_if(trace, change_of([(key, False)]), *settled)
        assert count(found, "cpu-suppress") == (20, 20)
        assert found.differences[0].instead == ()


def test_differences_are_counted_beyond_those_shown(
    trace: Trace, settled: tuple[float, float]
) -> None:
    found = what_if(trace, change_of([(PERCENT, 80)]), *settled, most=3)
    assert len(found.differences) == 3
    assert count(found, "cpu-suppress")[1] == 20


def test_what_nobody_had_looked_at(trace: Trace, settled: tuple[float, float]) -> None:
    """The CPU list of best effort was asked for by no decision."""
    policy = "slo.resourceUsedThresholdWithBE.cpuSuppressPolicy"
    found = what_if(trace, change_of([(policy, "cpuset")]), *settled)
    each = next(each for each in found.parts if each.part == "cpu-suppress")
    assert each.unknown == each.differ == 20


def test_an_answer_of_an_earlier_turn(trace: Trace, settled: tuple[float, float]) -> None:
    """It is told when it changes, not when it was asked for: only what the recorded decisions of
    the same turn asked is known."""
    asked, again = islice((turn for turn in trace.turns(*settled) if turn.is_asked), 2)
    recalled = asked.recalled
    (cgroup, resource), value = next(iter(recalled._reads.values.items()))
    assert recalled.value(cgroup, resource) == value
    recalled.only_what_was_asked()
    assert recalled.value(cgroup, resource) == value
    assert recalled.unknown == []
    recalled = again.recalled
    recalled.only_what_was_asked()
    assert recalled.value(cgroup, resource) == value
    assert recalled.unknown == [f"value of {resource} of {shown(cgroup)}"]
    recalled.reaches(cgroup, resource, 1)
    recalled.is_ours(cgroup, resource)
    recalled.original(cgroup, resource)
    recalled.without("another", cgroup, resource)
    recalled.children(cgroup)
    assert len(recalled.unknown) == 6


def test_values_have_to_go_with_those_in_force(trace: Trace) -> None:
    """The cache of best effort ends at 100 %, and begins below that."""
    key = "slo.resourceQOSStrategy.beClass.resctrlQOS.catRangeStartPercent"
    with pytest.raises(ProtocolError, match=r"beClass\.resctrlQOS"):
        what_if(trace, change_of([(key, 100)]), *ALWAYS)
    with pytest.raises(ProtocolError, match=r"beClass\.resctrlQOS"):
        tune(trace, "resctrl.beClass.resctrlQOS.catRangeStartPercent", [100], *ALWAYS)


def test_a_part_that_did_not_run(trace: Trace, tmp_path: Path) -> None:
    world = World(tmp_path, suppress("cfsQuota") + APPLICATIONS + NO_ALARMS)
    world.file.write_text(world.file.read_text() + "\n[strategies.cpu-suppress]\nenable = false\n")
    world.start()
    world.application("batch", 4.0)
    live(world, 5)
    world.stop()
    on = change_of([("strategies.cpu-suppress.enable", True)])
    found = what_if(trace_of(tmp_path / "state"), on, *ALWAYS)
    assert count(found, "cpu-suppress")[1] > 3


# A sweep


def figures(found: Tuned) -> dict[object, tuple[float, float, float]]:
    """Value -> mean, least and greatest quota."""
    return {
        row.value: (figure.mean, figure.low, figure.high)
        for row in found.rows
        for figure in row.figures
        if figure.resource == "cpu.cfs_quota_us"
    }


def test_a_sweep(trace: Trace, settled: tuple[float, float]) -> None:
    found = tune(trace, "cpu-suppress.cpuSuppressThresholdPercent", [55, 65, 75], *settled)
    assert (found.key, found.part, found.recorded) == (PERCENT, "cpu-suppress", 65)
    assert [(r.value, r.is_recorded, r.decisions, r.differ) for r in found.rows] == [
        (55, False, 20, 20),
        (65, True, 20, 0),
        (75, False, 20, 20),
    ]
    mean = {value: each[0] for value, each in figures(found).items()}
    step = pytest.approx(0.1 * CPUS * CORE_US, abs=BAND_US)
    assert mean[65] - mean[55] == step
    assert mean[75] - mean[65] == step
    for mean_us, low_us, high_us in figures(found).values():
        assert low_us <= mean_us <= high_us


def test_a_sweep_counts_as_what_if_does(trace: Trace) -> None:
    found = tune(trace, "cpu-suppress.cpuSuppressThresholdPercent", [80], *ALWAYS)
    other = what_if(trace, change_of([(PERCENT, 80)]), *ALWAYS)
    (row,) = found.rows
    assert (row.decisions, row.differ) == count(other, "cpu-suppress")


def test_a_sweep_says_what_it_does_not_know(
    trace: Trace, settled: tuple[float, float], steady: tuple[Path, float], tmp_path: Path
) -> None:
    found = tune(trace, "cpu-suppress.cpuSuppressPolicy", ["cpuset", "cfsQuota"], *settled)
    assert [row.unknown for row in found.rows] == [20, 0]
    assert (found.unequal, found.unplayed) == (0, {})
    text = "\n".join(tune_lines(found))
    assert "UNSURE" in text.splitlines()[3]
    assert "UNSURE: it asked for a value that the recorded decisions did not look at" in text
    state = Path(shutil.copytree(steady[0], tmp_path / "state"))
    shutil.rmtree(state / "tsdb")
    found = tune(trace_of(state), "cpu-suppress.cpuSuppressThresholdPercent", [65], *settled)
    assert found.unequal >= 20
    assert "decisions are not what was recorded" in "\n".join(tune_lines(found))


def test_values_around_the_recorded_one(trace: Trace, settled: tuple[float, float]) -> None:
    found = tune(trace, "cpu-suppress.cpuSuppressThresholdPercent", [], *settled)
    assert [row.value for row in found.rows] == [52, 58, 65, 72, 78]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (PERCENT, 90, [72, 81, 90, 99]),  # 108 % is refused
        ("strategies.cpu-evict.cool_down_seconds", 10.0, [8.0, 9.0, 10.0, 11.0, 12.0]),
        ("strategies.cpu-evict.enable", True, [False, True]),
    ],
)
def test_around(key: str, value: object, expected: list[object]) -> None:
    assert around(key, value) == pytest.approx(expected)


def test_what_a_sweep_refuses(trace: Trace) -> None:
    for name, values, text in (
        ("cpu-suppress.cpuSuppressThresholdPercent", [800], "slo.*ThresholdPercent: must be"),
        ("cpu-suppress.cpuSuppressPolicy", [], "has a text: name some by --values"),
        ("cpu-suppress.cpuSuppressThresholdPercent", [*range(21)], "21 values; at most 20"),
    ):
        with pytest.raises(ProtocolError, match=text):
            tune(trace, name, values, *ALWAYS)


def test_the_change_of_nothing() -> None:
    assert change_of([]) == Change()
