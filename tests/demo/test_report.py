"""Table, charts and the HTML page."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.demo import table
from koordlet.demo.html import render_report
from koordlet.demo.svg import HEIGHT, WIDTH, Chart, Line, Mark, render, ticks
from tests.demo.build import demo, moment, result

_VOID = {"meta", "line", "circle", "polyline", "polygon", "br"}


class _Page(HTMLParser):
    """Checks that tags nest, and collects what a browser would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.texts: list[str] = []
        self.tags: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data")]
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _report(**settings: object) -> str:
    managed = result(
        "managed",
        moment(-1.0, "0", "1", resource="cpu.idle"),
        moment(0.5, "unlimited", "90000"),
        moment(1.5, cgroup="ls", resource="", previous="", wanted="", result="alarm"),
        moment(5.0, "90000", "unlimited", result="restored"),
        p99_ms=5.2,
    )
    return render_report(demo(result(), result("unmanaged"), managed, **settings))


def test_report_is_whole_and_loads_nothing() -> None:
    text = _report()
    page = _Page(text)
    assert page.loads == []
    assert "script" not in page.tags
    for loading in ("http:", "https:", "url(", "@import"):
        assert loading not in text
    assert page.tags.count("svg") == 6


def test_report_tells_goals_and_reasons() -> None:
    text = "".join(_Page(_report()).texts)
    assert "reached: managed p99 / alone p99: 1.04, wanted at most 1.10" in text
    assert "koordlet-demo/be cpu.cfs_quota_us: unlimited -> 90000" in text
    assert "because <LS> & BE" in text
    assert "3 decisions and 1 alarms" not in text
    assert "2 decisions and 1 alarms" in text
    assert "2 s window" in text


def test_decisions_of_the_warm_up_are_marked_at_the_left_edge() -> None:
    text = _report()
    assert "-1.00 s (warm-up), cpu-suppress: koordlet-demo/be cpu.idle: 0 -&gt; 1" in text
    # In each of two charts; not the one that puts things back after the end.
    assert text.count('class="decision"') == 4
    assert text.count('class="alarm"') == 2


@pytest.mark.parametrize("simulated", [True, False])
def test_a_simulation_says_so(simulated: bool) -> None:
    text = "".join(_Page(_report(simulated=simulated)).texts).lower()
    assert ("simulation." in text) is simulated
    assert ("simulated on the fake kernel" in text) is simulated


def test_arms_that_were_not_run_are_not_there() -> None:
    page = _Page(render_report(demo(result())))
    assert "LS + BE, koordlet" not in page.texts
    assert "not judged" in page.texts
    assert page.tags.count("svg") == 2


def test_table_has_a_column_an_arm() -> None:
    run = demo(result("managed"), result(), result(p50_ms=5.0, repeat=2))
    assert table.header(run) == ("", "LS alone", "LS + BE, koordlet")
    cells = {row[0]: row[1:] for row in table.rows(run)}
    assert cells["LS latency p50, ms"] == ("4.00", "3.00")
    assert cells["node CPU utilisation"] == ("90.0%", "90.0%")
    assert cells["BE CPU, cores"] == ("-", "1.10")
    # 6400 blocks of 64 KiB in 4 s.
    assert cells["BE hashed, MiB/s"] == ("-", "100")
    assert table.medians(run)["alone"]["p50_ms"] == 4.0


def test_settings_in_a_sentence() -> None:
    line = table.settings_line(demo(repeat=3).settings)
    assert "Linux 6.1.0, cgroup hybrid, 2 CPUs" in line
    assert "4 s an arm, 3 times, medians." in line


@given(st.floats(1e-3, 1e6))
def test_ticks_are_round_and_inside(limit: float) -> None:
    found = ticks(limit)
    assert found[0] == 0.0
    assert found[-1] <= limit * (1 + 1e-6)
    assert 2 <= len(found) <= 6


@given(
    st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e9)), max_size=20),
    st.just(0.0) | st.floats(1e-3, 1e3),
    st.just(0.0) | st.floats(1e-3, 1e3),
)
def test_nothing_is_drawn_outside(
    points: list[tuple[float, float]], x_max: float, y_max: float
) -> None:
    chart = Chart(
        "y <&>",
        x_max,
        y_max,
        [Line("a", "#000", points, area=True)],
        points,
        [Mark(0.0, "<m>", "m")],
    )
    seen: list[float] = []

    class _Shape(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            for name, value in attrs:
                if name in ("cx", "x1", "x2"):
                    assert 0 <= float(value or "nan") <= WIDTH
                    seen.append(float(value or "nan"))
                if name in ("cy", "y1", "y2"):
                    assert 0 <= float(value or "nan") <= HEIGHT
                if name == "points":
                    for pair in (value or "").split():
                        x, y = map(float, pair.split(","))
                        assert 0 <= x <= WIDTH
                        assert 0 <= y <= HEIGHT

    _Shape().feed(render(chart))
    assert seen
