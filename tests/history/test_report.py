"""The page of an incident: what it says, that its numbers are those of queries, that nothing that
somebody named can do harm in it."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from koordlet.admin.model.events import EventKind, EventView
from koordlet.cli.main import Exit, main
from koordlet.decision.record import Kind, Record
from koordlet.decision.why import Why
from koordlet.diagnosis.who import everybody
from koordlet.drawing.palette import DARK, LIGHT
from koordlet.history.disk import DiskSource
from koordlet.history.happened import BINS, GROUPS, MOMENTS, happened
from koordlet.history.incident import Incident, gaps, incident, namer
from koordlet.history.page import render_incident
from koordlet.history.source import Range, Source
from koordlet.history.suffering import CPU, IO, THROTTLED, minute_step
from koordlet.history.summary import length, sentences, title
from koordlet.history.waits import Matrix
from tests.drawing.html import Page
from tests.history.scene import DB, END, LIMITED_S, PODS, START, WEB, make

GOLDEN = Path(__file__).parent / "golden" / "incident.html"
MADE = END + 600
pytestmark = pytest.mark.usefixtures("utc")


def _source(state: Path) -> DiskSource:
    return DiskSource(f"{state}/tsdb", f"{state}/decisions")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return _source(make(tmp_path_factory.mktemp("state")))


@pytest.fixture(scope="module")
def found(source: Source) -> Incident:
    return incident(source, START, END)


def test_the_whole_page_is_the_golden_file(found: Incident) -> None:
    """KOORDLET_UPDATE_GOLDEN=1 rewrites it; look at it in a browser before committing."""
    page = render_incident(found._replace(source="/var/lib/koordlet/tsdb"), MADE)
    if os.environ.get("KOORDLET_UPDATE_GOLDEN"):
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(page)
    assert page == GOLDEN.read_text()


def test_it_is_whole_and_loads_nothing() -> None:
    text = GOLDEN.read_text()
    page = Page(text)
    assert page.loads == []
    assert "script" not in page.tags
    for loading in ("http:", "https:", "url(", "@import", "javascript"):
        assert loading not in text
    assert set(re.findall(r"#[0-9a-f]{6}\b", text)) == {*LIGHT.values(), *DARK.values()}
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    # The node, the timeline, the node's pressure, two sufferers and three heat maps; eight entries
    # of two keys.
    assert page.tags.count("svg") == 8 + 8
    headings = re.findall(r"<h2>(.*?)</h2>", text)
    assert headings == [
        "What latency-sensitive work suffered",
        "Timeline",
        "CPU of the node, in cores",
        "Waiting and throttling, % of the time",
        "Who made whom wait, in seconds",
        "Who slowed whom down by caches and memory bandwidth",
        "What koordlet did, and why",
        "What is missing",
    ]


def test_the_summary_says_who_when_and_what(found: Incident) -> None:
    assert title(found) == "Incident on node-1, 2023-11-14 22:20:00 to 22:50:00"
    text = "\n".join(sentences(found))
    assert "The node (4 CPUs, 8.0 GiB of memory)" in text
    assert (
        "2 of 2 latency-sensitive workloads suffered: shop/web-0 for 3 min (at worst, from "
        "22:33:00 on, it waited for a CPU 60 % of the time); shop/db-0 for 1 min (at worst, from "
        "22:44:00 on, it waited for a disk 15 % of the time)."
    ) in text
    assert "The worst minute for all of them together began at 22:33:00" in text
    assert "recorded 3 alarms, the first at 22:32:02, changed 5 values (cpu-suppress 5)" in text
    assert "had evictions: 1 evicted (batch/job-2 at 22:34:30)" in text
    assert "between 0.80 and 3.00 cores, lowest from 22:33:10 on" in text
    assert found.missing == (
        "Nothing was measured from 2023-11-14 22:40:00 to 22:42:00.",
        "Who made whom wait for memory was not measured.",
    )


def test_who_suffered_from_what(found: Incident) -> None:
    """By hand: 45, 60, 30 % of a CPU against a limit of 10 %, and half of the periods of one
    minute; best-effort work waits as long as it likes."""
    web, db = found.suffering.sufferers
    assert (web.who.uid, db.who.uid) == (WEB, DB)
    assert (web.suffered, db.suffered) == (3, 1)
    assert web.worst == (CPU, 13, 60.0)
    assert db.worst == (IO, 24, 15.0)
    assert found.suffering.worst_step == 13
    cpu = web.percent[CPU]
    assert cpu[11:16] == [2.0, 45.0, 60.0, 30.0, 2.0]
    assert cpu[20:22] == [None, None]
    throttled = web.percent[THROTTLED]
    assert [step for step, value in enumerate(throttled) if value] == [13]
    assert throttled[13] == 50.0
    # 25 calm minutes at a fifth of the limit, three bad ones.
    assert web.score == pytest.approx(25 * 0.2 + 45 / 10 + 60 / 10 + 30 / 10)


def test_nobody_suffers_for_longer_than_the_report_is_about(source: Source) -> None:
    """Of minutes 12 to 14 only 70 s are asked for, from the middle of one on."""
    start = START + 12 * 60 + 30
    web = incident(source, start, start + 70).suffering.sufferers[0]
    assert (web.who.uid, web.suffered, web.suffered_s) == (WEB, 2, 70.0)


def test_classes_of_the_node_add_up(found: Incident) -> None:
    cpu = found.cpu
    for used, ls, be, system in zip(cpu.used, cpu.ls, cpu.be, cpu.system, strict=True):
        if used is not None:
            assert used == pytest.approx((ls or 0) + (be or 0) + (system or 0), rel=1e-4)
    at = round((LIMITED_S + 60) / cpu.step_s)
    assert cpu.limit[at] == pytest.approx(0.8)
    assert cpu.ls[at] == pytest.approx(1.25, rel=1e-3)


def test_the_numbers_are_those_of_query(
    found: Incident, source: Source, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As somebody would compare them: CSV of the same minutes, and the table of the page."""
    state = str(make(tmp_path))
    asked = ["query", "pod_psi", "psi_degree=some", "--from", f"@{START:.0f}", "--to",
             f"@{END:.0f}", "--step", "1m", "-o", "csv", "--state-dir", state]  # fmt: skip
    assert main(asked) == Exit.OK
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    checked = 0
    for each in found.suffering.sufferers:
        for cause in (CPU, IO):
            values = [
                row["value"]
                for row in rows
                if (row["pod_uid"], row["psi_resource"]) == (each.who.uid, cause.name)
            ]
            assert values == [
                "" if value is None else f"{value:.9g}" for value in each.percent[cause]
            ]
            checked += len(values)
    assert checked == 4 * 30
    table = "".join(Page(GOLDEN.read_text()).texts)
    mean = sum(v for v in found.suffering.sufferers[0].percent[CPU] if v is not None) / 28
    assert f"shop/web-0LS3 minCPU 60.0 %22:33:00{mean:.1f}0.00.0" in table


def test_a_hostile_name_stays_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "</td><script>alert(1)</script>\x1b[2J\u202e'\""
    monkeypatch.setitem(PODS, WEB, (evil, evil, "LS", PODS[WEB][3]))
    page = render_incident(incident(_source(make(tmp_path)), START, END), MADE)
    assert "script" not in Page(page).tags
    assert "<script" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_who_made_whom_wait(found: Incident) -> None:
    """By hand: 70 s of 300, 150, 20 and 10 ms a second; its own tasks 10 ms in all of the rest, of
    which 110 s are not known (one sample after two minutes stands for 15 s)."""
    cpu, disk = found.waits.matrices
    assert (cpu.resource, cpu.rows) == ("cpu", ("shop/web-0",))
    assert cpu.columns == (
        "batch/job-1", "its own tasks", "batch/job-2", "system: the root cgroup",
    )  # fmt: skip
    own_s = 70 * 0.02 + (1790 - 70 - 130 + 15) * 0.01
    assert cpu.values[0] == pytest.approx((21.0, own_s, 10.5, 0.7), rel=1e-2)
    assert (disk.resource, disk.rows) == ("io", ("shop/db-0",))
    assert disk.columns == ("batch/job-1", "its own tasks")
    assert disk.values[0] == pytest.approx((6.0, 3.0), rel=1e-3)
    # Whom the strategy reported is framed, and who was reported by cycles has a map of its own.
    assert (cpu.marked, disk.marked) == ({(0, 0), (0, 2)}, frozenset())
    slowed = Matrix("cpi", ("shop/db-0",), ("batch/job-1",), ((0.82,),), frozenset({(0, 0)}))
    assert found.waits.slowed == slowed
    page = render_incident(found, MADE)
    assert page.count('class="heat"') == 4
    assert page.count('class="heat marked"') == 3
    assert "Who made whom wait for memory was not measured." in found.missing


def test_what_interference_found(found: Incident) -> None:
    """Each verdict is named once, in the summary, and before what koordlet wrote."""
    text = (
        "shop/web-0 waits for a CPU because of batch/job-{}; with act = true it would be held back"
    )
    assert (
        f"Strategy interference found: from 22:33:15 on, {text.format(1)}; from 22:33:16 on, "
        f"{text.format(2)}; from 22:33:17 on, shop/db-0 needs more cycles for each instruction "
        "while batch/job-1 is busy; with act = true it would be held back."
    ) in sentences(found)
    decisions = Page(GOLDEN.read_text()).texts
    places = [decisions.index(text.format(number)) for number in (1, 2)]
    places.append(next(at for at, each in enumerate(decisions) if each.startswith("BE may use")))
    assert places == sorted(places)


class _Nothing:
    """A store that knows the node's CPU and nothing else."""

    name = "nowhere"
    damaged = ()

    def __init__(self, source: Source) -> None:
        self._source = source

    def query(self, kind: str, *asked: object) -> object:
        return self._source.query("resctrl_resource_mb", *asked)  # type: ignore[arg-type]

    def query_range(self, kind: str, match: Mapping[str, str], *asked: object) -> Range:
        known = kind if kind == "node_cpu_usage" else "resctrl_resource_mb"
        return self._source.query_range(known, {}, *asked)  # type: ignore[arg-type]

    def events(self, start: float, end: float) -> list[EventView]:
        return []


def test_what_is_missing_is_said(source: Source) -> None:
    found = incident(_Nothing(source), START - 600, END + 600)  # type: ignore[arg-type]
    text = "\n".join(found.missing)
    for sentence in (
        "The store begins at 2023-11-14 22:20:00: nothing before that is known.",
        "Nothing was measured from 2023-11-14 22:40:00 to 22:42:00.",
        "The store ends at 2023-11-14 22:49:59: nothing after that is known.",
        "The store names neither pods nor applications",
        "Pressure (PSI) was not measured",
        "The decision log has nothing of this time",
    ):
        assert sentence in text
    assert Page(render_incident(found, MADE)).open == []
    assert "koordlet changed nothing, and nothing alarmed it." in sentences(found)


def test_cgroups_have_the_names_of_who_is_in_them(source: Source) -> None:
    named = namer(everybody(source, START, END))
    assert named(PODS[WEB][3]) == "shop/web-0"
    assert named(f"{PODS[WEB][3]}/4f0c") == "shop/web-0"
    assert named("kubepods/besteffort") == "kubepods/besteffort"
    assert named("/") == "the node"
    assert named("") == ""


def _event(number: int, owner: str = "o", kind: Kind = Kind.WRITE) -> EventView:
    why = Why(f"{owner}.rule", f"because {number}")
    cgroup = f"cgroup-{number % 7}"
    record = Record(number, kind, owner, why, cgroup, "cpu.shares", 1, number, "written")
    return EventView(
        sequence=0, time=float(number), kind=EventKind.DECISION, subject="s", text="t",
        decision=record,
    )  # fmt: skip


def test_events_are_grouped_counted_and_bounded() -> None:
    found = happened((_event(number) for number in range(70)), 0.0, 70.0, lambda name: name)
    assert len(found.groups) == 7
    first = found.groups[0]
    assert (first.subject, first.count, first.first, first.last) == (
        "cgroup-0 cpu.shares",
        10,
        0,
        63,
    )
    assert (first.low, first.high, first.change) == (0.0, 63.0, "1 -> 63")
    assert first.text == "because 63"
    assert found.counts["o"] == sum(found.bins["o"].values()) == 70
    assert max(found.bins["o"]) == 69 * BINS // 70
    assert found.left_out == 0

    many = (_event(number, f"owner-{number}") for number in range(GROUPS + 5))
    found = happened(many, 0.0, 1.0, lambda name: name)
    assert (len(found.groups), found.left_out) == (GROUPS, 5)
    ended = (_event(number, kind=Kind.EVICTION) for number in range(MOMENTS + 3))
    found = happened(ended, 0.0, 1.0, lambda name: name)
    assert (len(found.moments), found.left_out) == (MOMENTS, 3)
    assert found.counts["evictions"] == MOMENTS + 3


def test_gaps_between_values() -> None:
    values = [None, 1.0, None, None, 2.0, None, None, None]
    assert list(gaps(values, 1)) == [(0, 1), (2, 4), (5, 8)]
    assert list(gaps(values, 3)) == [(5, 8)]


def test_minutes_are_longer_where_they_would_be_too_many() -> None:
    assert minute_step(1800, 10) == 60
    assert minute_step(12 * 3600, 10) == 60
    assert minute_step(12 * 3600, 600) == 300  # 720 minutes of 600 times 4 series are too many
    assert minute_step(7 * 86400, 10) == 900
    assert [length(each) for each in (60, 180, 5400, 90, 7200)] == [
        "1 min", "3 min", "90 min", "90 s", "2 h 0 min",
    ]  # fmt: skip
