"""What a decision may look at is in the log or in the store. Whoever adds to the one must add to
the other: else decisions cannot be made again, and nothing says why."""

from __future__ import annotations

import inspect

import pytest

from koordlet.decision.metrics import MetricView
from koordlet.decision.reads import Reads, Watched
from koordlet.decision.snapshot import InForce, Snapshot
from koordlet.inputs.answers import tables
from koordlet.inputs.model import Changes
from koordlet.replay.recalled import Recalled
from koordlet.state.snapshot import KernelView, TsdbView

IN_CHANGES = {
    *("node", "pods", "applications", "slo", "evicting"),
    *("collect_interval_s", "sources_synced", "means"),
}
IN_EACH_TURN = {"now", "time", "wake"}
VIEWS = {"metrics", "in_force"}


def _methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, inspect.isfunction) if name[0] != "_"}


def test_each_field_of_a_snapshot_is_recorded() -> None:
    assert set(Snapshot.__struct_fields__) == IN_CHANGES | IN_EACH_TURN | VIEWS
    assert set(Changes.__struct_fields__) >= IN_CHANGES


def test_each_question_to_the_store_can_be_asked_again() -> None:
    assert _methods(MetricView) == {"read", "newest"} == _methods(TsdbView)


@pytest.mark.parametrize("view", [KernelView, Recalled, Watched])
def test_each_question_about_values_in_force_is_recorded(view: type) -> None:
    assert _methods(InForce) <= _methods(view)
    assert len(tables(Reads())) == len(_methods(InForce)) == len(vars(Reads()))
