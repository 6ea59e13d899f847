"""Which models are forgotten, with their files, and which are not."""

from __future__ import annotations

import os

from koordlet.engine.prediction.predictions import Predictions
from tests.engine.prediction.rig import GIB, OPTIONS, MakeRig, pod


def test_models_that_nobody_feeds_are_forgotten_with_their_files(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"), pod("b"))
    rig.minutes(2, {"a": (1.0, 1.0 * GIB), "b": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert {"a", "b", "__node__"} <= set(os.listdir(rig.directory))
    rig.pods = (pod("a"),)
    rig.minutes(29, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "b" in rig.predictions.models
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "b" not in rig.predictions.models
    assert "b" not in os.listdir(rig.directory)
    assert rig.peak("a") is not None


def test_while_no_round_ends_no_model_is_forgotten(make_rig: MakeRig) -> None:
    """The daemon over its budget, a source that is away, a process that was stopped."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    rig.now_s += 1801
    rig.time_ms += 1_801_000
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models
    assert {"a", "__node__"} <= set(os.listdir(rig.directory))
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models


def test_a_stall_ages_no_model_that_the_first_round_after_it_cannot_measure(
    make_rig: MakeRig,
) -> None:
    """Rates need a second reading, and a pod may be seen late."""
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.now_s += 3600
    rig.time_ms += 3_600_000
    rig.minutes(2, {})
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models
    rig.minutes(31, {})  # but a pod that is gone for good is forgotten
    rig.predictions.upkeep(rig.now_s)()
    assert "a" not in rig.predictions.models


def test_a_wall_clock_that_jumps_forgets_no_model(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"),)
    rig.minutes(2, {"a": (1.0, 1.0 * GIB)})
    rig.time_ms += 7 * 86_400_000
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models


def test_old_files_are_forgotten_once_a_round_has_seen_who_is_there(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pods = (pod("a"), pod("b"))
    rig.minutes(2, {"a": (1.0, 1.0 * GIB), "b": (1.0, 1.0 * GIB)})
    rig.predictions.close()
    rig.time_ms += 3_600_000  # the machine was down for an hour
    rig.predictions = Predictions(rig.store, OPTIONS, str(rig.directory))
    rig.load()
    rig.predictions.upkeep(rig.now_s)()
    assert {"a", "b"} <= set(rig.predictions.models)
    rig.pods = (pod("a"),)
    rig.minutes(1, {"a": (1.0, 1.0 * GIB)})
    rig.predictions.upkeep(rig.now_s)()
    assert "a" in rig.predictions.models
    assert "b" not in rig.predictions.models
    assert "b" not in os.listdir(rig.directory)
