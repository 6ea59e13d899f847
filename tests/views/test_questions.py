"""explain and query on a live daemon: what they answer, and that nothing thrown at them hurts."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.admin import series as answers
from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.admin.ranges import RangeView
from koordlet.collectors import CATALOGUE
from koordlet.decision.metrics import Aggregate
from koordlet.decision.resource import Resource
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, World, suppress
from tests.engine.test_kubepods import BOX, UIDS

MakeWorld = Callable[..., World]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A node that has worked for a while; nothing here changes it."""
    made = World(Path(tmp_path_factory.mktemp("node")), suppress() + CPU_QOS + APPLICATIONS)
    made.application("shop", 1.0)
    made.application("batch", CPUS)
    for qos, uid in UIDS.items():
        pod = made.host.make_pod("cgroupfs", qos, uid, [BOX if qos == "guaranteed" else qos * 8])
        made.host.spawn(pod.containers[0], demand_cores=0.3)
    made.start()
    made.run(12)
    yield made
    made.stop()


@pytest.mark.parametrize(
    ("target", "matched"),
    [
        ("batch", "application in cgroup batch"),
        ("/batch/", "batch"),
        (f"batch/{Resource.CPU_QUOTA_US}", f"batch/{Resource.CPU_QUOTA_US}"),
        ("cpu-suppress", "cpu-suppress"),
        ("cpu-suppress.quota", "cpu-suppress.quota"),
        ("kubepods", "kubepods"),
        ("node", "everything on this node"),
        (UIDS["besteffort"], f"pod in cgroup kubepods/besteffort/pod{UIDS['besteffort']}"),
        (BOX, f"container in cgroup kubepods/pod{UIDS['guaranteed']}/{BOX}"),
    ],
)
def test_explain_finds(world: World, target: str, matched: str) -> None:
    answer = world.views.explain(target, 5)()
    assert answer.matched == matched
    assert len(answer.decisions) <= 5
    times = [decision.time for decision in answer.decisions]
    assert times == sorted(times, reverse=True)


def test_hooks_of_a_pod_and_of_an_application(world: World) -> None:
    everything = world.views.hooks("")
    assert "cpu-qos" in {row.name for row in everything.hooks if row.enabled}
    assert everything.actions == ()
    pod = world.views.hooks(UIDS["besteffort"])
    assert pod.matched.startswith("BE pod in cgroup kubepods/besteffort/pod")
    assert pod.hooks == everything.hooks
    assert all(action.cgroup.startswith("kubepods/besteffort/") for action in pod.actions)
    batch = world.views.hooks("batch")
    assert [(a.name, a.value) for a in batch.actions if a.hook == "cpu-qos" and a.name] == [
        (Resource.CPU_IDLE, "1")
    ]
    with pytest.raises(NotFoundError, match=r"no pod .* known: .*batch"):
        world.views.hooks("nobody")


def test_nri_is_off_until_there_is_a_plugin(world: World) -> None:
    view = world.views.nri()
    assert (view.enabled, view.connected) == (False, False)
    assert view.socket == world.engine.loaded.config.nri.socket


def test_explain_of_nothing_names_what_there_is(world: World) -> None:
    with pytest.raises(
        NotFoundError, match=r"known: .*batch.*; owners: .*cpu-suppress, .*cpu-qos, "
    ):
        world.views.explain("nobody", 5)()
    for empty in ("", "/", " "):
        with pytest.raises(InvalidError, match="say what to explain"):
            world.views.explain(empty, 5)()


@pytest.mark.parametrize("aggregate", list(Aggregate))
def test_query_answers_with_every_aggregate(world: World, aggregate: str) -> None:
    answer = world.views.query("pod_cpu_usage", {}, 60, aggregate)()
    assert len(answer.series) == len(UIDS)
    assert answer.unit == "cores"
    for series in answer.series:
        assert series.count > 3
        assert series.age_s < 2


@pytest.mark.parametrize(
    ("kind", "match", "window_s", "aggregate", "text"),
    [
        ("cpu", {}, 60, "avg", "no metric 'cpu'; .koordlet query --list. has all"),
        ("node_cpu_usage", {"pod_uid": "x"}, 60, "avg", "no label 'pod_uid'; it has: none"),
        ("node_cpu_usage", {}, 60, "p98", "no aggregate 'p98'; there are: .*p99"),
        ("node_cpu_usage", {}, 0, "avg", "longer than 0 s"),
        ("node_cpu_usage", {}, -1, "avg", "longer than 0 s"),
        ("node_cpu_usage", {}, math.nan, "avg", "longer than 0 s"),
        ("node_cpu_usage", {}, math.inf, "avg", "at most"),
    ],
)
def test_query_says_what_is_wrong(
    world: World, kind: str, match: dict[str, str], window_s: float, aggregate: str, text: str
) -> None:
    with pytest.raises(InvalidError, match=text):
        world.views.query(kind, match, window_s, aggregate)()


def test_a_query_may_end_in_the_past(world: World) -> None:
    now = world.host.time()
    whole = world.views.query("host_application_cpu_usage", {}, 60, "count")()
    before = world.views.query("host_application_cpu_usage", {}, 60, "count", now - 5)()
    assert [each.labels for each in before.series] == [each.labels for each in whole.series]
    for early, late in zip(before.series, whole.series, strict=True):
        assert early.value < late.value
        assert early.age_s < 2, "as of the end of the window"


def _range(world: World, *asked: Any) -> list[RangeView]:
    async def ask() -> list[RangeView]:
        return [piece async for piece in world.views.query_range(*asked)]

    return asyncio.run(ask())


def test_a_range_holds_what_queries_of_its_steps_say(world: World) -> None:
    now = world.host.time()
    pieces = _range(world, "host_application_cpu_usage", {}, now - 9, now, 3.0, "avg")
    (piece,) = pieces
    assert (piece.unit, piece.aggregate, piece.step_s) == ("cores", "avg", 3.0)
    assert piece.start % 3 == 0
    assert piece.start <= now - 9 < piece.start + 3
    assert piece.start + 3 * piece.steps >= now
    assert piece.coarse_until is None
    assert piece.oldest is not None
    assert now - 13 < piece.oldest < now - 11
    assert piece.newest == pytest.approx(now)
    assert {each.labels["host_app_name"] for each in piece.series} == {"batch", "shop"}
    for each in piece.series:
        for step, value in enumerate(each.values, each.first):
            end = piece.start + 3 * (step + 1)
            (same,) = world.views.query(
                "host_application_cpu_usage", each.labels, 2.999, "avg", end - 0.001
            )().series
            assert value == same.value


def test_a_long_range_comes_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "VALUES_AT_ONCE", 4)
    now = world.host.time()
    asked = ("node_cpu_usage", {}, now - 10, now, 1.0, "last")
    pieces = _range(world, *asked)
    assert len(pieces) >= 1
    found = [value for piece in pieces for each in piece.series for value in each.values]
    monkeypatch.undo()
    (whole,) = _range(world, *asked)
    assert found == list(whole.series[0].values)


@pytest.mark.parametrize(
    ("kind", "match", "times", "aggregate", "text"),
    [
        ("cpu", {}, (0, 60, 1), "avg", "no metric 'cpu'; .koordlet query --list. has all"),
        ("node_cpu_usage", {"x": "y"}, (0, 60, 1), "avg", "no label 'x'; it has: none"),
        ("node_cpu_usage", {}, (0, 60, 1), "p98", "no aggregate 'p98'"),
        ("node_cpu_usage", {}, (60, 0, 1), "avg", "longer than 0 s"),
        ("node_cpu_usage", {}, (math.nan, 60, 1), "avg", "nan is no time"),
        ("node_cpu_usage", {}, (0, math.inf, 1), "avg", "inf is no time"),
        ("node_cpu_usage", {}, (0, 60, 0), "avg", "a step takes from 0.001 s"),
        ("node_cpu_usage", {}, (0, 60, math.nan), "avg", "a step takes from 0.001 s"),
        ("node_cpu_usage", {}, (0, 60000, 1), "avg", "60000 steps of 1 s are too many"),
    ],
)
def test_a_range_says_what_is_wrong(
    world: World, kind: str, match: dict[str, str], times: tuple[float, ...], aggregate: str,
    text: str,
) -> None:  # fmt: skip
    with pytest.raises(InvalidError, match=text):
        _range(world, kind, match, *times, aggregate)


def test_what_callers_cost_sheds_no_collector(world: World) -> None:
    def work(pause: Callable[[], None]) -> None:
        until_s = time.thread_time() + 0.05
        while time.thread_time() < until_s:
            pause()

    weighed = world.parts.runner._cpu_seconds
    # What is weighed is read within what it costs, so that no work of this test lies in it alone.
    before_s = time.process_time()
    weighed_before_s = weighed()
    asyncio.run(world.views.worker.run(work))
    weighed_s = weighed() - weighed_before_s
    cost_s = time.process_time() - before_s
    assert cost_s - weighed_s >= 0.05


NAMES = ("batch", "shop", "node", "kubepods", "cpu-suppress", BOX, *UIDS.values(), "..", "\0", "/")
targets = st.one_of(
    st.text(max_size=40),
    st.lists(st.sampled_from(NAMES), max_size=4).map("/".join),
    st.sampled_from(NAMES),
    st.text(min_size=4000, max_size=5000),
)
labels = st.sampled_from([*{name for m in CATALOGUE.values() for name in m.labels}, "", "x"])


@given(target=targets, limit=st.integers(-(2**31), 2**32 - 1))
def test_any_target_and_limit(world: World, target: str, limit: int) -> None:
    try:
        answer = world.views.explain(target, limit)()
    except (NotFoundError, InvalidError) as error:
        assert str(error)
        return
    assert len(answer.decisions) <= max(1, limit)


@settings(deadline=None)
@given(
    kind=st.one_of(st.sampled_from(sorted(CATALOGUE)), st.text(max_size=20)),
    match=st.dictionaries(labels, st.one_of(st.sampled_from(NAMES), st.text(max_size=9))),
    window_s=st.floats(),
    aggregate=st.one_of(st.sampled_from(list(Aggregate)), st.text(max_size=5)),
    until=st.none() | st.floats(),
)
def test_any_query(
    world: World,
    kind: str,
    match: dict[str, str],
    window_s: float,
    aggregate: str,
    until: float | None,
) -> None:
    try:
        answer = world.views.query(kind, match, window_s, aggregate, until)()
    except InvalidError as error:
        assert str(error)
        return
    for series in answer.series:
        assert set(match.items()) <= set(series.labels.items())
        assert series.age_s >= 0


@settings(deadline=None)
@given(
    kind=st.sampled_from(sorted(CATALOGUE)),
    times=st.tuples(st.floats(), st.floats(), st.floats()),
    aggregate=st.sampled_from(list(Aggregate)),
)
def test_any_range(
    world: World, kind: str, times: tuple[float, float, float], aggregate: str
) -> None:
    try:
        pieces = _range(world, kind, {}, *times, aggregate)
    except InvalidError as error:
        assert str(error)
        return
    assert pieces
