"""Whether a decoy counts as harmless."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from typing import cast

import pytest

from bench.figures import NotMeasuredError
from bench.interference import decoys
from bench.interference.cast import Process
from bench.interference.disk import directory


class _Decoy:
    runs = False

    def go_on(self) -> None:
        self.runs = True

    def stop(self) -> None:
        self.runs = False


def _slowed(
    monkeypatch: pytest.MonkeyPatch, latency_ms: Callable[[int, bool], float | None]
) -> float:
    """``latency_ms``: of the requests of one turn, by its number and whether the decoy runs; None:
    there was no answer."""
    decoy, turns = _Decoy(), itertools.count()

    def latencies(_: Process) -> list[float]:
        each = latency_ms(next(turns), decoy.runs)
        return [] if each is None else [each] * 25

    monkeypatch.setattr(decoys, "_latencies", latencies)
    ratio = decoys.slowed(cast(Process, None), cast(Process, decoy), 6.0)
    assert not decoy.runs
    return ratio


def test_a_decoy_is_judged_by_the_latency_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _slowed(monkeypatch, lambda _, runs: 1.1 if runs else 1.0) == pytest.approx(1.1)


def test_others_that_come_for_some_seconds_meet_both_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def latency(turn: int, runs: bool) -> float:
        return (1.1 if runs else 1.0) * (3.0 if 3 <= turn < 10 else 1.0)

    assert _slowed(monkeypatch, latency) == pytest.approx(1.1)


def test_a_single_stumble_makes_no_decoy_harmful_and_hides_none() -> None:
    calm = [1.0] * 95
    assert decoys.typical([*calm, *[100.0] * 5]) == pytest.approx(1.0)
    # What hits one request in five is no stumble.
    assert decoys.typical([*[1.0] * 80, *[2.0] * 20]) > 1.15


def test_a_turn_without_an_answer_alone_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine stood still."""

    def latency(turn: int, runs: bool) -> float | None:
        return None if turn in (4, 5) else 1.1 if runs else 1.0

    assert _slowed(monkeypatch, latency) == pytest.approx(1.1)
    with pytest.raises(NotMeasuredError):
        _slowed(monkeypatch, lambda _, runs: None)


def test_no_answer_beside_a_decoy_is_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _slowed(monkeypatch, lambda _, runs: None if runs else 1.0) == math.inf


def test_the_directory_of_a_scene_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KOORDLET_GUEST", raising=False)
    said: list[str] = []
    with directory(said.append, slow=True) as path:
        assert os.path.isdir(path)
    assert not os.path.exists(path)
    assert said == []
