"""The pages of ``--html``: what a browser makes of them, whatever pods are called."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from koord_scheduler.cli.scheduling import html
from koord_scheduler.kube.scheduling.replaying import Report, Sample
from koord_scheduler.plan.figures import Moved
from tests.companion.cli.scheduling.build import node, pod, saved, text
from tests.drawing.html import Page

EVIL = "<script>alert(1)</script>\"&'\u202e\x1b[31m]]>--><svg/onload=x>"
PACKED = ("--set", "fit.strategy=MostAllocated", "--set", "balanced.enabled=false")
Make = Callable[[pytest.CaptureFixture[str], Path], str]


def _objects(tmp_path: Path) -> str:
    objects = [
        *(node(f"n{i}", "8") for i in range(4)),
        node(f"{EVIL}node"),
        *(pod(f"a-{i}", "2", f"n{i % 4}") for i in range(4)),
        *(pod(f"{EVIL}{i}-0", cpu) for i, cpu in enumerate(("1", "99", "8"))),
    ]
    return saved(tmp_path / "objects.yaml", objects)


def _simulation(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    page = tmp_path / "page.html"
    text(capsys, "simulate", "-f", _objects(tmp_path), "--html", str(page))
    return page.read_text()


def _difference(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    page = tmp_path / "page.html"
    objects = _objects(tmp_path)
    text(capsys, "diff", "built-in", "built-in", *PACKED, "-f", objects, "--html", str(page))
    return page.read_text()


def _replay(_: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    report = Report(
        began_s=1e9,
        ended_s=1e9 + 90,
        entries=9,
        decisions=9,
        agreeing=8,
        hash="0" * 64,
        differing=(Moved(f"x/{EVIL}", EVIL, ""),),
        waiting=0,
        samples=tuple(Sample(1e9 + 10 * i, i % 3, 10.0 * i, 5.0) for i in range(10)),
    )
    html.write(str(tmp_path / "page.html"), html.replay(report, f"/tmp/\udcff{EVIL}"))
    return (tmp_path / "page.html").read_text()


MADE = pytest.mark.parametrize(
    "make", [_simulation, _difference, _replay], ids=["simulate", "diff", "replay"]
)


@MADE
def test_a_page_is_well_formed_and_loads_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Make
) -> None:
    made = make(capsys, tmp_path)
    page = Page(made)
    assert page.loads == [] and "script" not in page.tags
    assert not re.search(r"https?:|url\(|@import|\bon\w+=['\"]", made.replace("onload=x", ""))
    shown = "".join(page.texts)
    assert "<script>alert(1)</script>\"&'\\u202e\\x1b[31m]]>--><svg/onload=x>" in shown
    assert all(each.isprintable() or each == "\n" for each in made)


@MADE
def test_all_that_is_named_is_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Make
) -> None:
    made = make(capsys, tmp_path)
    style, _, body = made.partition("</style>")
    ids = re.findall(r"\bid=['\"]([^'\"]*)", body)
    asked = re.findall(r"(?:href|for|aria-labelledby)=['\"]#?([^'\"]*)", body)
    assert len(ids) == len(set(ids)) and set(asked) <= set(ids)
    classes = {name for each in re.findall(r"<svg.*?</svg>", body) for name in _classes(each)}
    assert classes and not {each for each in classes if not re.search(rf"\.{each}\b", style)}
    drawn = re.findall(r"<poly\w+ [^>]*points=['\"]([^'\"]*)", body)
    assert drawn and not re.search(r"nan|inf", " ".join(drawn))


@MADE
def test_colours_are_those_of_the_reader(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, make: Make
) -> None:
    """All of them are variables, which have a value for light and one for dark; that both stand
    out is a matter of the palette (tests/drawing)."""
    made = make(capsys, tmp_path)
    roots = re.findall(r":root \{[^}]*\}", made)
    assert "prefers-color-scheme: dark" in made and len(roots) == 3
    rest = re.sub(r":root \{[^}]*\}", "", made)
    assert not re.search(r"#[0-9a-f]{3,8}\b|rgb\(", rest)
    known = set(re.findall(r"(--[\w-]+):", roots[0]))
    assert known == set(re.findall(r"(--[\w-]+):", roots[1]))
    assert set(re.findall(r"var\((--[\w-]+)\)", rest)) <= known


def test_one_node_is_a_line_and_the_axis_has_each_number_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = saved(tmp_path / "one.yaml", [node("n"), pod("a-0", "4")])
    text(capsys, "simulate", "-f", path, "--html", str(tmp_path / "page.html"))
    chart = (tmp_path / "page.html").read_text().partition('role="img"')[2].partition("</svg>")[0]
    widths = [
        float(points.split()[-1].partition(",")[0]) - float(points.partition(",")[0])
        for points in re.findall(r"<polyline[^>]*points=\"([^\"]*)", chart)
    ]
    assert widths and min(widths) > 100
    assert re.findall(r'text-anchor="middle">([^<]*)', chart) == ["0", "1"]


def _classes(svg: str) -> list[str]:
    return " ".join(re.findall(r"class=['\"]([^'\"]*)", svg)).split()
