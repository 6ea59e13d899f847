"""What is predicted, from the kernel to the answers and the metrics page."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.admin.model.doctor import CheckState, CheckView
from koordlet.admin.prediction import PeakKind, PredictView
from koordlet.decision.family import Labels
from koordlet.engine.prediction.figures import Held
from koordlet.prediction import part
from koordlet.views.curves import POINTS, Curve, drawn
from koordlet.views.publish import publish
from tests.daemon.world import APPLICATIONS, NO_ALARMS, World
from tests.engine.test_kubepods import UIDS

MakeWorld = Callable[..., World]
FAST = '[prediction]\ntraining_interval = "10s"\ncold_start = "0s"\n'
MIB = 1 << 20


def scene(make_world: MakeWorld, body: str = FAST, seconds: float = 35) -> World:
    world = make_world(body + NO_ALARMS + APPLICATIONS)
    world.application("shop", 1.0)
    for qos, cores in (("burstable", 0.4), ("besteffort", 0.2)):
        pod = world.host.make_pod("cgroupfs", qos, UIDS[qos], [qos[:1] * 64])
        world.host.spawn(pod.containers[0], demand_cores=cores, memory_bytes=64 * MIB)
    world.start()
    world.run(seconds)
    return world


def ask(world: World, target: str = "", window_s: float = 60.0) -> PredictView:
    return world.views.predict(target, window_s)()


def test_everybody_is_predicted_the_node_first(make_world: MakeWorld) -> None:
    found = ask(scene(make_world))
    assert found.enabled
    assert found.model == "reference"
    assert found.curves == ()
    rows = {(each.name, each.resource): each for each in found.peaks}
    assert list(dict.fromkeys(name for name, _ in rows)) == [
        "node", "koord-prod", "koord-batch", "sys", "shop", UIDS["burstable"], UIDS["besteffort"],
    ]  # fmt: skip
    shop = rows["shop", "cpu"]
    assert shop.kind is PeakKind.APPLICATION
    assert shop.used == pytest.approx(1.0, abs=0.05)
    assert shop.peak == pytest.approx(1.1, abs=0.1)
    assert shop.margin_percent == 10
    assert (shop.requested, shop.miss_ratio, shop.cold) == (None, None, False)
    prod = rows["koord-prod", "cpu"]
    assert prod.used == pytest.approx(0.4, abs=0.05)
    memory = rows[UIDS["burstable"], "memory"]
    assert memory.used == pytest.approx(64 * MIB, rel=0.01)
    assert memory.peak is not None
    assert memory.peak > memory.used
    # The system is what no pod uses, here the application.
    assert rows["sys", "cpu"].used == pytest.approx(1.0, abs=0.1)
    assert [each.name for each in found.predictors][-1] == "minPredictor"


def test_a_cold_pod_says_so(make_world: MakeWorld) -> None:
    world = scene(make_world, FAST.replace('"0s"', '"1h"'), 15)
    cold = {each.name: each.cold for each in ask(world).peaks}
    assert cold[UIDS["burstable"]]
    assert not cold["node"]


@pytest.mark.parametrize("name", ["shop", "app:shop", UIDS["burstable"], "node", "sys"])
def test_one_subject_has_curves(make_world: MakeWorld, name: str) -> None:
    world = scene(make_world)
    found = ask(world, name)
    assert len({each.name for each in found.peaks}) == 1
    assert [each.resource for each in found.curves] == ["cpu", "memory"]
    points = found.curves[0].points
    assert len(points) == POINTS
    assert points[-1].peak is not None
    assert (points[-10].used is None) == (name == "sys")


def test_a_name_that_nobody_has_is_refused_with_the_nearest(make_world: MakeWorld) -> None:
    world = scene(make_world, seconds=15)
    with pytest.raises(NotFoundError, match='did you mean "shop"'):
        world.views.predict("shpo", 60.0)
    with pytest.raises(NotFoundError, match="known: node, koord-prod"):
        world.views.predict("\0", 60.0)
    for window_s in (0.0, 59.0, 1e9, float("nan")):
        with pytest.raises(InvalidError, match="the window must be from 60 s"):
            world.views.predict("", window_s)


def test_before_the_first_round_and_switched_off(make_world: MakeWorld) -> None:
    world = scene(make_world, seconds=0)
    found = ask(world)
    assert (found.as_of, found.why, found.peaks) == (None, "no round has ended yet", ())
    world.run(15)
    assert ask(world).peaks
    world.reload("[prediction]\nenable = false\n")
    found = ask(world)
    assert (found.enabled, found.peaks) == (False, ())
    assert found.why == "switched off (prediction.enable)"


def samples(world: World, family: part.Family) -> dict[Labels, float]:
    publish(world.engine, world.views)
    return dict(world.parts.metrics.scalars.get(family, {}))


def test_the_page_has_the_names_of_the_reference(make_world: MakeWorld) -> None:
    world = scene(make_world)
    found = world.parts.predictions.figures.reclaimable
    assert found is not None
    free = samples(world, part.NODE_PREDICTED_RECLAIMABLE)
    assert len(free) == 6
    peak = samples(world, part.NODE_PREDICTED_PEAK)
    assert peak["minPredictor", "cpu", "core"] == found.combined.peak.cpu_milli / 1000
    assert peak["podReclaimablePredictor", "memory", "byte"] == found.by_pod.peak.memory_bytes
    assert samples(world, part.NODE_RECLAIMABLE_STATUS) == {("koord-prod",): 0.0}
    assert set(samples(world, part.NODE_PRIORITY_RECLAIMABLE)) == {
        ("koord-prod", "cpu", "core"),
        ("koord-prod", "memory", "byte"),
    }
    assert samples(world, part.PREDICTION_MODELS) == {(): 10.0}


def test_the_page_says_what_cannot_be_predicted(make_world: MakeWorld) -> None:
    world = scene(make_world, seconds=0)
    assert samples(world, part.NODE_RECLAIMABLE_STATUS) == {("koord-prod",): 1.0}
    assert set(samples(world, part.NODE_PRIORITY_RECLAIMABLE).values()) == {0.0}
    world.run(3)
    world.reload("[prediction]\nenable = false\n")
    for family in (part.NODE_RECLAIMABLE_STATUS, part.NODE_PREDICTED_PEAK, part.NODE_MID):
        assert samples(world, family) == {}


def test_a_restarted_daemon_goes_on(make_world: MakeWorld) -> None:
    world = scene(make_world)
    before = {
        uid: (each.subject.since_s, each.subject.percentiles())
        for uid, each in world.parts.predictions.models.items()
    }
    world.parts.predictions.close()
    world.stop()
    world.start()
    after = world.parts.predictions.models
    assert {
        uid: (each.subject.since_s, each.subject.percentiles()) for uid, each in after.items()
    } == before
    world.run(3)
    assert ask(world).as_of is not None


def test_a_damaged_file_is_a_refused_input(make_world: MakeWorld) -> None:
    world = scene(make_world)
    world.parts.predictions.close()
    world.stop()
    file = world.directory / "state" / "prediction" / "__node__"
    file.write_text("no model")
    world.start()
    (fault,) = (each for each in world.engine.faults() if each.subject == "prediction")
    assert fault.path == str(file)
    assert fault.message.startswith("JSON is malformed")
    assert fault.message.endswith("; what it held is learned anew")
    assert samples(world, part.PREDICTION_REFUSED) == {(): 1.0}
    world.run(3)
    assert "__node__" in world.parts.predictions.models


def test_a_defect_here_stops_no_decision(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = scene(make_world, seconds=3)
    wrong = "koordlet.engine.prediction.trainer.figures"
    with monkeypatch.context() as patch:
        patch.setattr(wrong, lambda *_: 1 / 0)
        world.run(12)
    assert world.parts.problems["prediction"] == "ZeroDivisionError: division by zero"
    assert world.parts.predictions.held is Held.FAILED
    ticks = world.engine.last_tick
    world.run(12)
    assert "prediction" not in world.parts.problems
    assert world.parts.predictions.held is None
    assert world.engine.last_tick != ticks


def test_over_its_budget_the_daemon_learns_nothing(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = scene(make_world, seconds=3)
    monkeypatch.setattr(type(world.parts.runner), "is_short", property(lambda _: True))
    before = world.parts.predictions.figures.time_s
    world.run(15)
    assert world.parts.predictions.figures.time_s == before
    monkeypatch.undo()
    world.run(8)
    assert world.parts.predictions.figures.time_s > before


def check(world: World) -> CheckView:
    (found,) = (each for each in world.views.doctor()().checks if each.name == "prediction")
    return found


def test_doctor_says_what_a_round_costs_and_whether_they_come(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = scene(make_world, seconds=0)
    assert check(world).why == "no round has ended yet"
    world.run(35)
    well = check(world)
    assert well.state is CheckState.OK
    assert re.fullmatch(
        r"10 models; the last round was \d s ago and took \d+\.\d ms of CPU, one each 10 s",
        well.why,
    )
    world.parts.predictions.every_s = 25.0
    late = check(world)
    assert late.state is CheckState.LIMITED
    assert late.why.endswith("ms of CPU, 25 s after the one before, not 10 s")
    monkeypatch.setattr(type(world.parts.runner), "is_short", property(lambda _: True))
    world.run(310)
    stale = check(world)
    assert stale.state is CheckState.LIMITED
    assert stale.why == "no round has ended for 5 min (the daemon is over its budget)"
    assert stale.remedy == "raise daemon.cpu_budget_percent or daemon.memory_budget"
    world.reload("[prediction]\nenable = false\n")
    assert check(world).why == "switched off (prediction.enable)"


def test_figures_that_are_out_of_date_are_not_shown(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = scene(make_world)
    assert 0 <= samples(world, part.PREDICTION_AGE)[()] < 10
    as_of = ask(world).as_of
    monkeypatch.setattr(type(world.parts.runner), "is_short", property(lambda _: True))
    world.run(310)
    found = ask(world)
    assert found.as_of is not None
    assert as_of is not None
    assert found.as_of < as_of + 10
    assert found.why == "no round has ended for 5 min (the daemon is over its budget)"
    assert found.predictors == ()
    assert {each.peak for each in found.peaks} == {None}
    assert samples(world, part.NODE_RECLAIMABLE_STATUS) == {("koord-prod",): 1.0}
    for family in (part.NODE_PREDICTED_PEAK, part.NODE_PREDICTED_RECLAIMABLE, part.NODE_MID):
        assert samples(world, family) == {}
    assert samples(world, part.PREDICTION_AGE)[()] > 300
    monkeypatch.undo()
    world.run(12)
    assert ask(world).predictors != ()


def test_a_predicted_peak_holds_until_the_next_one(make_world: MakeWorld) -> None:
    world = make_world()
    world.start()
    store, end_ms = world.parts.store, 2_000_000_000_000
    used = store.series("pod_cpu_usage", (("pod_uid", "a"),))
    peak = store.series("pod_cpu_predicted_peak", (("pod_uid", "a"),))
    for minute, value in ((60, 1.0), (59, 5.0), (30, 2.0)):
        store.append(end_ms - minute * 60_000, [used], [value])
    store.append(end_ms - 45 * 60_000, [peak], [3.0])
    curve = Curve(
        "cpu",
        ("pod_cpu_usage", (("pod_uid", "a"),)),
        ("pod_cpu_predicted_peak", (("pod_uid", "a"),)),
    )
    points = drawn(store, curve, end_ms, 3600.0, lambda: None).points  # steps of 30 s
    assert [index for index, each in enumerate(points) if each.used is not None] == [0, 2, 60]
    assert points[2].used == 5.0
    held = [index for index, each in enumerate(points) if each.peak is not None]
    assert held == list(range(30, 51))  # ten minutes
    assert points[0].time == end_ms / 1000 - 3600
