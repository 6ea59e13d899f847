"""Table, charts and the HTML page."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from koordlet.demo import table
from koordlet.demo.model import Request
from koordlet.demo.report.html import render_report
from koordlet.demo.report.panels import cpu_charts, latency_charts, limits
from koordlet.demo.report.poster import poster
from koordlet.drawing.charts import render
from koordlet.drawing.palette import DARK, LIGHT
from tests.demo.build import demo, moment, result
from tests.drawing.html import Page


def _report(**settings: object) -> str:
    managed = result(
        "managed",
        moment(-1.0, "0", "1", resource="cpu.idle"),
        moment(0.5, "unlimited", "90000"),
        moment(1.5, cgroup="ls", resource="", previous="", wanted="", result="alarm"),
        moment(5.0, "90000", "unlimited", result="restored"),
        slow=1.04,
    )
    return render_report(demo(result(), result("unmanaged"), managed, **settings))


def test_report_is_whole_and_loads_nothing() -> None:
    text = _report()
    page = Page(text)
    assert page.loads == []
    assert "script" not in page.tags
    for loading in ("http:", "https:", "url(", "@import"):
        assert loading not in text
    # Two charts an arm, nine entries of two keys.
    assert page.tags.count("svg") == 6 + 10


def test_the_first_words_are_the_story() -> None:
    text = "".join(Page(_report()).texts)
    story = (
        "With koordlet the service answers 99 % of its requests within 7.2 ms, 1.04 times as long "
        "as alone (without koordlet 1.00 times), while the machine is 90 % busy and best-effort "
        "work gets 85 % of the CPU that the service leaves."
    )
    assert text.index(story) < text.index("p99 latency of the service")
    assert "reached: managed p99 / alone p99: 1.04 [1.04, 1.04], wanted at most 1.10" in text


def test_decisions_stand_in_a_table() -> None:
    page = Page(_report())
    text = "".join(page.texts)
    assert "koordlet-demo/be cpu.cfs_quota_us: unlimited -> 90000" in text
    assert "-1.00 s (warm-up)koordlet-demo/be cpu.idle: 0 -> 1because <LS> & BE" in text
    assert "Looked at: node 1.5 cores (2 s window, 300 ms old)" in text
    # Not the one that puts things back after the end.
    assert "2 decisions and 1 alarms" in text
    assert "90000 -> unlimited" not in text
    assert "title" in page.tags  # of the page
    assert page.tags.count("title") == 1  # nothing is told by hovering alone


def test_many_decisions_are_counted_and_the_important_ones_kept() -> None:
    many = [moment(i / 100, "90000", f"{90000 + i}") for i in range(100)]
    many.append(moment(3.0, "unlimited", "50000", resource="cpu.cfs_burst_us"))
    page = Page(render_report(demo(result("managed", *many))))
    text = "".join(page.texts)
    assert "101 decisions and 0 alarms" in text
    assert "41 of them are not shown" in text
    assert text.count("because <LS> & BE") == 60
    assert "cpu.cfs_burst_us: unlimited -> 50000" in text


def test_the_limit_of_be_is_a_line() -> None:
    managed = result(
        "managed",
        moment(-1.0, "unlimited", "150000"),
        moment(1.0, "150000", "120000"),
        moment(2.0, "0-1", "1", resource="cpuset.cpus"),
        moment(2.5, "120000", "unlimited"),
        moment(3.0, "unlimited", "80000", result="refused"),
        moment(9.0, "80000", "unlimited", result="restored"),
    )
    assert limits(managed) == [(0.0, 1.5), (1.0, 1.2), (2.0, 1.0), (2.5, 2.0)]
    (chart,) = cpu_charts([managed])
    assert 'class="limit"' in render(chart)
    # It ends with its arm, which may be shorter than another.
    longer = result("unmanaged", seconds=9.0)
    assert [
        line.points[-1] for line in next(cpu_charts([managed, longer])).lines if line.steps
    ] == [(4.0, 2.0)]
    (without,) = cpu_charts([result("unmanaged")])
    assert 'class="limit"' not in render(without)


def test_what_is_above_the_scale_is_marked_and_counted() -> None:
    slow = (*result().latencies, Request(1.0, 50.0), Request(1.01, 41.0), Request(3.0, 30.0))
    calm, cut = latency_charts([result(), result("unmanaged", latencies=slow, p99_ms=6.9)])
    assert (calm.y_max, calm.note) == (cut.y_max, "")
    assert cut.note == "▲ 3 above, up to 50 ms"
    assert "▲ 3 above, up to 50 ms" in render(cut)
    # Three requests, and the two stretches of the p99 line.
    assert render(cut).count('class="clip"') == 5
    assert 'class="clip"' not in render(calm)


def test_all_that_is_above_the_scale_counts() -> None:
    """Not only the slowest 1 %."""
    stalled = tuple(Request(i / 100, 1000.0 + i) for i in range(400))
    _, cut = latency_charts([result(), result("unmanaged", latencies=stalled, p99_ms=1395.0)])
    assert cut.note == "▲ 400 above, up to 1399 ms"


def test_arms_share_their_scales() -> None:
    arms = [result(), result("unmanaged", seconds=9.0, p999_ms=60.0), result("managed")]
    for charts in (list(latency_charts(arms)), list(cpu_charts(arms))):
        assert len({(chart.x_max, chart.y_max, chart.width) for chart in charts}) == 1


def test_the_page_has_no_colour_but_those_of_the_palettes() -> None:
    text = _report()
    assert set(re.findall(r"#[0-9a-f]{3,8}\b", text)) == {*LIGHT.values(), *DARK.values()}


def test_a_poster_is_a_picture_of_its_own() -> None:
    run = demo(result(), result("unmanaged"), result("managed", moment(-1.0, "0", "90000")))
    light, dark = poster(run, LIGHT), poster(run, DARK)
    for text, palette in ((light, LIGHT), (dark, DARK)):
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(root.findall("{*}g/{*}rect[@class='panel']")) == 6
        assert set(re.findall(r"#[0-9a-f]{6}\b", text)) == set(palette.values())
        assert "With koordlet the service answers" in text
        # What a picture in a README may not do.
        assert not {"script", "foreignObject", "image"} & {e.tag for e in root.iter()}
    assert light != dark
    assert ElementTree.fromstring(poster(demo(result()), LIGHT)) is not None


@pytest.mark.parametrize("simulated", [True, False])
def test_a_simulation_says_so(simulated: bool) -> None:
    text = "".join(Page(_report(simulated=simulated)).texts).lower()
    assert ("simulation." in text) is simulated
    assert ("simulated on the fake kernel" in text) is simulated


def test_arms_that_were_not_run_are_not_there() -> None:
    page = Page(render_report(demo(result())))
    assert "LS + BE, koordlet" not in page.texts
    assert "not judged" in page.texts
    assert page.tags.count("svg") == 2 + 10


def test_table_has_a_column_an_arm() -> None:
    run = demo(result("managed"), result(waits=None))
    assert table.header(run) == ("", "LS alone", "LS + BE, koordlet")
    cells = {row[0]: row[1:] for row in table.rows(run)}
    assert cells["LS latency p50, ms"] == ("4.96", "4.96")
    assert cells["LS waits for a CPU, ms/s"] == ("-", "12.0")
    assert cells["  behind BE"] == ("-", "4.0")
    assert cells["node CPU utilisation"] == ("90.0%", "90.0%")
    assert cells["BE CPU, cores"] == ("-", "1.10")
    # 6400 blocks of 64 KiB in 4 s.
    assert cells["BE hashed, MiB/s"] == ("-", "100")


def test_settings_in_a_sentence() -> None:
    line = table.settings_line(demo().settings)
    assert "Linux 6.1.0, cgroup hybrid, 2 CPUs" in line
    assert "4 slices of 2 s an arm in an order drawn from seed 1" in line
