"""An instant of the past: whose numbers, how old, what is missing; and where it is read from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from koordlet.admin.client import Client, Fault, RefusedError
from koordlet.admin.model.events import EventKind, EventView
from koordlet.admin.model.usage import ColdView
from koordlet.admin.ranges import QueryView, SeriesView
from koordlet.decision import metrics as k
from koordlet.decision.metrics import HOST_APPLICATION_INFO, POD_INFO
from koordlet.decision.record import Kind, PodKind, Record
from koordlet.decision.why import Why
from koordlet.diagnosis.who import everybody, node
from koordlet.history.disk import DiskSource, NothingThereError
from koordlet.history.incident import incident
from koordlet.history.past import Decisions, past
from koordlet.history.source import DaemonSource, Source, in_order
from koordlet.history.view import PastPodView
from koordlet.report.decisions import DecisionLog, extent_of
from koordlet.tsdb.store import Store
from tests.admin.harness import Served
from tests.history.scene import (
    AWAY,
    CONTAINER,
    END,
    EVICTED_S,
    JOB,
    JOB2,
    START,
    WEB,
    fill,
    make,
)

pytestmark = pytest.mark.usefixtures("utc")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> DiskSource:
    state = make(tmp_path_factory.mktemp("state"))
    return DiskSource(f"{state}/tsdb", f"{state}/decisions")


def _uids(source: Source, second: float) -> dict[str, PastPodView]:
    return {pod.uid or pod.name: pod for pod in past(source, START + second).pods}  # type: ignore[misc]


def test_the_numbers_of_an_instant(source: Source) -> None:
    """22:32:45, five seconds after the last round of pressure."""
    view = past(source, START + 12 * 60 + 45)
    assert (view.node, view.cpu_capacity_cores) == ("node-1", 4.0)
    assert view.memory_capacity_bytes == 8 << 30
    assert view.cpu_used_cores == pytest.approx(3.625, rel=1e-4)
    assert view.cpu_ls_cores == pytest.approx(0.75, rel=1e-4)
    assert view.cpu_be_cores == pytest.approx(2.625, rel=1e-4)
    assert view.be_limit_cores == pytest.approx(3.0, rel=1e-4)
    assert view.age_s == 0.0
    assert view.notes == ()
    web = next(pod for pod in view.pods if pod.uid == WEB)
    assert isinstance(web, PastPodView)
    assert (web.namespace, web.name, web.qos) == ("shop", "web-0", "LS")
    assert web.pressure is not None
    assert web.pressure.cpu_some == 45.0
    assert web.age_s == 5.0


def test_what_is_kept_of_a_workload(source: Source) -> None:
    """13:05, where waits are sampled each second, GPUs and cold memory each ten."""
    view = past(source, START + 13 * 60 + 5)
    pods = {pod.uid: pod for pod in view.pods}
    assert pods[WEB].cpu_wait_ms_per_s == pytest.approx(480.0, rel=1e-3)
    assert pods[JOB].cpu_wait_ms_per_s is None  # nobody asks for whom best-effort work waits
    assert [(c.id, c.cpu_cores, c.memory_bytes) for c in pods[WEB].containers] == [
        (CONTAINER, 0.5, 200 << 20)
    ]
    assert (pods[JOB].gpu_core_percent, pods[JOB].gpu_memory_bytes) == (75.0, 1 << 30)
    assert pods[WEB].gpu_core_percent is None
    assert pods[WEB].cycles_per_instruction == pytest.approx(1.25, rel=1e-3)
    assert pods[WEB].llc_bytes == 6 << 20
    assert (pods[JOB].cycles_per_instruction, pods[JOB].llc_bytes) == (None, None)
    assert view.cold == ColdView(method="mglru", file_bytes=1 << 30)
    assert pods[JOB].cold == ColdView(method="mglru", file_bytes=64 << 20)
    assert pods[WEB].cold is None


def test_who_was_there(source: Source) -> None:
    """Whoever has a sample of the last seconds; a name alone is not enough."""
    assert JOB2 in _uids(source, EVICTED_S - 1)
    assert JOB2 in _uids(source, EVICTED_S + 5)  # its sample is 6 s old
    assert JOB2 not in _uids(source, EVICTED_S + 30)
    assert (PodKind.POD, JOB2) in everybody(source, START + EVICTED_S + 30, START + EVICTED_S + 30)


def test_while_koordlet_was_away_the_last_is_shown_with_its_age(source: Source) -> None:
    view = past(source, START + AWAY.start + 30)
    assert view.age_s == 31.0
    assert view.notes == (
        "nothing newer than 31 s before this time is in the store: koordlet was away",
    )
    assert {pod.age_s for pod in view.pods if isinstance(pod, PastPodView)} == {31.0}
    assert view.pressure is None  # it was 40 s old


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (START - 1, "the store has nothing of 2023-11-14 22:19:59; it reaches from"),
        (END + 1000, "the store has nothing of"),
    ],
)
def test_nothing_of_that_time(source: Source, time: float, text: str) -> None:
    with pytest.raises(RefusedError, match=text) as error:
        past(source, time)
    assert error.value.fault is Fault.NOT_FOUND


def _one_store(tmp_path: Path, **options: float) -> Store:
    return Store(str(tmp_path / "tsdb"), coarse_step_s=60, **options)  # type: ignore[arg-type]


def _disk(tmp_path: Path) -> DiskSource:
    return DiskSource(f"{tmp_path}/tsdb", f"{tmp_path}/decisions")


def _add(store: Store, second: float, metric: k.Metric, *labels: str, value: float = 1.0) -> None:
    pairs = tuple(zip(metric.labels, labels, strict=True))
    store.append(int((START + second) * 1000), [store.series(metric.kind, pairs)], [value])


def test_a_hole_in_the_middle(tmp_path: Path) -> None:
    store = _one_store(tmp_path)
    for second in (0, 4000):
        _add(store, second, k.NODE_CPU_USAGE)
        store.flush(int(START + second) * 1000)
    with pytest.raises(RefusedError, match="nothing was measured in the 15 min before 2023-11-14"):
        past(_disk(tmp_path), START + 2000)


def test_coarse_history_is_told_from_absence(tmp_path: Path) -> None:
    store = _one_store(tmp_path, retention_s=300, hot_window_s=60)
    for second in range(1800):
        _add(store, second, k.NODE_CPU_USAGE, value=second % 60)
        if second % 10 == 0:
            store.maintain(int(START + second) * 1000)
    for _ in range(3):
        store.maintain(int(START + 1800) * 1000)
    store.flush(int(START + 1800) * 1000)
    view = past(_disk(tmp_path), START + 150)
    assert (view.age_s, view.cpu_used_cores) == (30.0, 29.5)
    assert view.notes[0].endswith("only one value for each coarse step is left")
    assert past(_disk(tmp_path), START + 1700).notes[0].startswith("the store does not tell")


def test_numbers_without_a_name(tmp_path: Path) -> None:
    store = _one_store(tmp_path)
    _add(store, 0, k.NODE_CPU_USAGE)
    _add(store, 0, k.POD_CPU_USAGE, WEB)
    store.flush(int(START) * 1000)
    view = past(_disk(tmp_path), START)
    assert [(pod.uid, pod.name, pod.qos) for pod in view.pods] == [(WEB, "", "")]
    assert view.cpu_ls_cores is None, "its class is not known"
    assert view.notes == (
        "the store does not tell the size of the node at this time",
        "of 1 the store has numbers, but neither name nor class",
    )


def test_a_pod_is_named_as_it_was_then(tmp_path: Path) -> None:
    store = _one_store(tmp_path)
    for second, qos in ((0, "LS"), (100, "BE"), (300, "BE")):
        _add(store, second, POD_INFO, WEB, "shop", "web-0", qos, "kubepods/a")
    for second in (0, 300):
        _add(store, second, HOST_APPLICATION_INFO, "backup", "BE", "backup.slice")
    store.flush(int(START + 300) * 1000)
    found = _disk(tmp_path)
    for second, qos in ((50, "LS"), (99, "LS"), (101, "BE"), (400, "BE")):
        names = everybody(found, START + second, START + second)
        assert names[PodKind.POD, WEB].qos == qos
        assert names[PodKind.APPLICATION, "backup"].title == "backup"
    assert everybody(found, START + 50, START + 400)[PodKind.POD, WEB].is_best_effort
    assert node(found, START, START).cpu_cores == 0.0


def test_a_daemon_and_its_disk_say_the_same(served: Served, source: DiskSource) -> None:
    served.daemon.store = Store(None, hot_window_s=3600)
    fill(served.daemon.store)
    with Client(served.path) as client:
        daemon = DaemonSource(client)
        for asked in (
            ("pod_cpu_usage", {}, START, END, 60.0, "max"),
            ("pod_psi", {"psi_resource": "cpu"}, START, END, 300.0, "p95"),
            ("node_be", {}, START + 1, START + 2, 7.0, "count"),
        ):
            one, other = daemon.query_range(*asked), source.query_range(*asked)
            assert in_order(one) == in_order(other)
            assert (one.start, one.step_s, one.steps) == (other.start, other.step_s, other.steps)
            assert (one.oldest, one.newest) == (other.oldest, other.newest) == (START, END - 1)
        seconds = 12 * 60 + 45
        assert past(daemon, START + seconds) == past(source, START + seconds)


def test_events_of_a_daemon_end_in_time(served: Served) -> None:
    with Client(served.path) as client:
        events = list(DaemonSource(client).events(0.0, 1_800_000_030.0))
    assert [event.sequence for event in events] == [1]  # the other one is of 30 s later


def test_decisions_are_asked_for_once_for_times_near_each_other(source: DiskSource) -> None:
    class Counting:
        asked: list[tuple[float, float]] = []  # noqa: RUF012

        def events(self, start: float, end: float) -> Iterator[EventView]:
            self.asked.append((start, end))
            return source.events(start, end)

    counting = Counting()
    decisions = Decisions(counting)  # type: ignore[arg-type]
    for second in (800, 801, 795):
        found = decisions.before(START + second)
        assert all(START + second - 600 <= each.time <= START + second for each in found)
        assert [each.time for each in found] == sorted((e.time for e in found), reverse=True)
    assert len(counting.asked) == 1
    assert len(decisions.before(START + 800)) == 7
    assert decisions.before(START + 100_000) == ()
    assert len(counting.asked) == 2


def test_a_log_that_nobody_writes(tmp_path: Path) -> None:
    log = DecisionLog(str(tmp_path / "decisions"))
    assert extent_of(str(tmp_path / "none")).files == ()
    for name in ("decisions-00000002.jsonl", "decisions-x.jsonl", "decisions-²2.jsonl", "notes"):
        (tmp_path / "decisions" / name).write_text("{}\n")
    (tmp_path / "decisions" / "decisions-00000001.jsonl").write_text("torn")
    assert extent_of(str(tmp_path / "decisions")).files == (
        (f"{tmp_path}/decisions/decisions-00000001.jsonl", 4),
        (f"{tmp_path}/decisions/decisions-00000002.jsonl", 3),
    )
    log.close()


def test_a_decision_made_after_others_were_asked_for() -> None:
    """What lay in the future then is asked for anew: a screen that shows the present goes on."""

    class Growing:
        events_: list[EventView] = []  # noqa: RUF012

        def events(self, start: float, end: float) -> Iterator[EventView]:
            return iter([each for each in self.events_ if start <= each.time <= end])

    def decided(time: float) -> EventView:
        record = Record(time, Kind.WRITE, "cpu-suppress", Why("rule", "text"), resource="r")
        return EventView(
            sequence=1, time=time, kind=EventKind.DECISION, subject="s", text="t", decision=record
        )

    growing, now = Growing(), START + 10
    decisions = Decisions(growing, now=lambda: now)  # type: ignore[arg-type]
    assert decisions.before(START) == ()
    growing.events_.append(decided(START + 15))
    now = START + 20
    assert [each.time for each in decisions.before(START + 20)] == [START + 15]


def test_no_store_there(tmp_path: Path) -> None:
    with pytest.raises(NothingThereError, match="No such file") as error:
        _disk(tmp_path)
    assert error.value.fault is Fault.NOT_FOUND
    (tmp_path / "tsdb").mkdir()
    with pytest.raises(NothingThereError, match="has no segment"):
        _disk(tmp_path)


def test_damage_is_passed_over_and_known(tmp_path: Path) -> None:
    make(tmp_path)
    files = sorted((tmp_path / "tsdb").iterdir())
    data = bytearray(files[0].read_bytes())
    data[2000:2010] = bytes(10)
    files[0].write_bytes(data)
    found = _disk(tmp_path)
    assert found.query_range("node_cpu_usage", {}, START, END, 60.0, "avg").series
    assert found.damaged
    missing = incident(found, START, END).missing
    assert f"Could not be read: {found.damaged[0]}." in missing


def test_who_is_told_of_a_moment_later_is_named_already() -> None:
    """A daemon that has just started measures before it tells whom."""

    class JustStarted:
        def query(
            self, kind: str, match: object, window_s: float, aggregate: str, until: float
        ) -> QueryView:
            labels = {"host_app_name": "shop", "qos": "LS", "cgroup": "shop"}
            told_s = START + 2
            is_told = kind == HOST_APPLICATION_INFO.kind and until - window_s <= told_s <= until
            one = SeriesView(labels=labels, value=1.0, age_s=until - told_s, count=1)
            series = (one,) if is_told else ()
            return QueryView(
                kind=kind, unit="", aggregate=aggregate, window_s=window_s, series=series
            )

    source = cast(Source, JustStarted())
    (who,) = everybody(source, START + 1, START + 1).values()
    assert (who.name, who.qos) == ("shop", "LS")
