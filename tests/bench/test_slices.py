"""Ratios of slices, and the records that keep them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from bench import recording
from bench.effects.client import Latencies, Load, _Driver
from bench.effects.slices import (
    Size,
    Slice,
    alternating,
    latency_ms,
    latency_ratio,
    mean_value,
    off_percent,
    value_ratio,
    waits_figures,
)
from bench.figures import Figure, Measured
from koordlet.demo.model import Behind, Waits
from koordlet.protocol.intervals import Interval, Verdict


def _slice(arm: str, number: int, slow: float = 1.0, units: int = 10) -> Slice:
    return Slice(
        arm=arm,
        number=number,
        seconds=2.0,
        latencies_ms=tuple(slow * (1.0 + i / 100) for i in range(100)),
        node_cores=1.5,
        cores={"ls": 0.5, "be": 1.0},
        throttled={"ls": 0, "be": 0},
        waits=Waits(20.0 * slow, Behind(10.0, 8.0, 2.0)),
        units=units,
    )


SLICES = [
    *(_slice("alone", n) for n in range(6)),
    *(_slice("managed", n, 1.1, 8) for n in range(6)),
    *(_slice("unmanaged", n, 3.0) for n in range(6)),
]


def test_ratios_of_arms() -> None:
    found = latency_ratio(SLICES, "managed", 0.99)
    assert (found.value, found.low, found.high) == (pytest.approx(1.1),) * 3
    assert value_ratio(SLICES, "managed", lambda s: s.units).value == pytest.approx(0.8)
    assert mean_value(SLICES, "alone", lambda s: s.node_cores).value == 1.5
    few = [each for each in SLICES if each.number < 2]
    assert latency_ratio(few, "managed", 0.99) == Interval(pytest.approx(1.1))


def test_a_latency_has_an_interval_too() -> None:
    found = latency_ms(SLICES, "managed", 0.5)
    assert (found.value, found.low, found.high) == (pytest.approx(1.1 * 1.49),) * 3


def test_how_far_off_knows_that_a_value_may_be_right() -> None:
    assert off_percent(Interval(9.0, 8.0, 9.5), 10.0) == Interval(10.0, 5.0, 20.0)
    assert off_percent(Interval(10.5, 9.0, 12.0), 10.0) == Interval(5.0, 0.0, 20.0)
    assert off_percent(Interval(9.0), 10.0) == Interval(10.0)


def test_arms_alternate_and_each_round_has_all() -> None:
    now, seen = [""], []

    def begin(arm: str) -> None:
        now[0] = arm

    def look() -> Callable[[str, int], tuple[str, str, int]]:
        entered = now[0]
        return lambda arm, number: (entered, arm, number)

    arms = {arm: partial(begin, arm) for arm in "abc"}
    found = alternating(arms, Size(slices=5, slice_s=0.0), seen.append, look)
    assert all(entered == arm for entered, arm, _ in found)
    assert [number for _, _, number in found] == list(range(15))
    rounds = [[arm for _, arm, _ in found[at : at + 3]] for at in range(0, 15, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len({tuple(each) for each in rounds}) > 1
    assert seen[-1] == "round 5 of 5"


def test_waits_are_told_with_whom_they_were_behind() -> None:
    found = {each.name: each.value for each in waits_figures(SLICES, ("alone", "managed"))}
    assert found["waits for a CPU, alone"] == 10.0
    assert found["waits for a CPU, managed"] == pytest.approx(11.0)
    assert found["waits behind BE, alone"] == 4.0
    unknown = [_slice("alone", n) for n in range(4)]
    bare = [Slice(**{**_fields(s), "waits": Waits(20.0)}) for s in unknown]
    assert [each.name for each in waits_figures(bare, ("alone",))] == ["waits for a CPU, alone"]


def _fields(each: Slice) -> dict[str, object]:
    return {name: getattr(each, name) for name in each.__struct_fields__}


def test_latencies_between_moments() -> None:
    seen = Latencies(at_s=[0.5, 1.9, 2.0, 3.5], ms=[90.0, 80.0, 1.0, 2.0], failed=0, client_cores=0)
    assert seen.between(1.0, 2.0).ms == [80.0]


def test_the_slices_of_a_round_get_the_same_requests() -> None:
    load = Load("/nowhere", b"get %d", b"", 100.0, 12.0, keys=9, slice_s=2.0, arms=3, seed=4)
    times = _Driver(load).times
    slices = [[round(t - 2 * n, 9) for t in times if 2 * n <= t < 2 * n + 2] for n in range(6)]
    assert slices[0] == slices[1] == slices[2] != slices[3] == slices[4] == slices[5]


def test_a_record_holds_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "DIRECTORY", tmp_path)
    figure = Figure.of("p99 managed / alone", latency_ratio(SLICES, "managed", 0.99), "x", 1.2)
    load = (0.123456, 0.5, 1.0)
    recording.write("whole", ["whole", "--slices=6"], load, Measured([figure], 7, SLICES))
    record = recording.read("whole")
    assert record.command == "python -m bench whole --slices=6"
    assert record.seed == 7
    assert record.load_before == (0.1235, 0.5, 1.0)
    assert record.machine.cpus > 0 and record.machine.kernel
    assert len(record.commit.rstrip("+")) == 12
    found = record.figure("p99 managed / alone")
    assert (found.value, found.verdict) == (1.1, Verdict.REACHED)
    # What the record says can be computed again from its slices.
    again = msgspec.convert(record.slices, list[Slice])
    assert latency_ratio(again, "managed", 0.99).value == pytest.approx(1.1, rel=1e-3)
    with pytest.raises(KeyError, match="no figure 'p50'"):
        record.figure("p50")
    assert list(recording.records()) == ["whole"]
