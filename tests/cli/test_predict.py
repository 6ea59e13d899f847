"""``koordlet predict``: the plot, the table on a screen, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest

from koordlet.admin.prediction import CurveView, PointView, PredictView
from koordlet.cli.main import Exit, main
from koordlet.cli.show.predict import lines
from koordlet.drawing.spans import plain
from tests.admin.harness import Served
from tests.admin.samples import PREDICTED

KOORDLET = [sys.executable, "-m", "koordlet"]


def points(*pairs: tuple[float | None, float | None]) -> tuple[PointView, ...]:
    return tuple(PointView(time=60.0 * n, used=u, peak=p) for n, (u, p) in enumerate(pairs))


def screen(view: PredictView, height: int | None = None, width: int = 100) -> list[str]:
    return list(map(plain, lines(view, width, height)))


def test_what_does_not_fit_a_screen_is_counted() -> None:
    many = msgspec.structs.replace(PREDICTED, peaks=PREDICTED.peaks * 30)
    assert len(screen(many, 24)) == 24
    assert screen(many, 24)[-1] == "... 73 more lines; `koordlet predict --once` has all"
    assert len(screen(many)) > 90
    assert len(screen(PREDICTED, 24)) < 24


def curves(**each: tuple[PointView, ...]) -> list[str]:
    found = tuple(CurveView(resource=name, points=those) for name, those in each.items())
    return screen(msgspec.structs.replace(PREDICTED, peaks=PREDICTED.peaks[1:2], curves=found))


@pytest.mark.usefixtures("utc")
def test_use_and_peak_are_in_one_plot() -> None:
    """A peak that nothing exceeds is a line of its own; units suit the highest amount."""
    shown = curves(
        cpu=points((1.0, 2.0), (2.5, 2.0), (None, 2.0)),
        memory=points((1 << 30, 3 << 30), (2 << 30, None)),
    )
    title = shown.index("cpu in cores: █ used, - predicted peak, ! used above it")
    rows = [row[8:] for row in shown[title + 1 : title + 15]]
    line = next(number for number, row in enumerate(rows) if "-" in row)
    assert set(rows[line]) == {"-", "!"} and rows[line].startswith("-" * 30 + "!" * 30)
    assert all(row.strip(" █▁▂▃▄▅▆▇") == "" for row in rows[line + 1 :])
    assert shown[title + 15].rstrip("-").endswith("0 +")
    assert shown[title + 16].strip().startswith("01 Jan         00:00:30")
    assert "memory in GiB: █ used, - predicted peak, ! used above it" in shown


def test_nothing_to_draw() -> None:
    for each in (points((None, None), (None, None)), points((0.0, 0.0)), ()):
        assert curves(cpu=each)[-1] == "cpu: nothing to draw yet"


@pytest.mark.parametrize("height", [24, 30, 50])
def test_two_plots_fit_a_screen(height: int) -> None:
    curve = CurveView(resource="cpu", points=points(*((1.0, 2.0) for _ in range(120))))
    view = msgspec.structs.replace(PREDICTED, peaks=PREDICTED.peaks[1:], curves=(curve, curve))
    assert len(screen(view, height)) <= max(height, 28)


def test_what_is_above_its_peak_stands_out() -> None:
    (row,) = (row for row in lines(PREDICTED, 100) if "shop/web-0  cpu" in plain(row))
    assert row[0].style == "bad"


def test_before_anything_is_known() -> None:
    empty = PredictView(enabled=True, model="reference", why="no round has ended yet")
    assert screen(empty) == [
        "Model reference; no round has ended yet, 0 s of CPU",
        "Reclaimable: not known, no round has ended yet",
    ]
    off = PredictView(enabled=False, why="switched off (prediction.enable)")
    assert screen(off) == ["Nothing is predicted: switched off (prediction.enable)."]


def test_a_name_steers_no_terminal(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    odd = msgspec.structs.replace(PREDICTED.peaks[1], name="\x1b[2Jx")
    assert "\x1b" not in "".join(screen(msgspec.structs.replace(PREDICTED, peaks=(odd,))))
    assert main(["predict", "nothing", "--socket", served.path]) == Exit.BAD
    assert "'nothing' is nothing that is predicted" in capsys.readouterr().err


def test_on_a_terminal_it_redraws_until_q(served: Served) -> None:
    master, slave = os.openpty()
    predict = [*KOORDLET, "predict", "--interval", "0.5", "--socket", served.path]
    with subprocess.Popen(
        ["setsid", "--ctty", *predict], stdin=slave, stdout=slave, stderr=subprocess.PIPE
    ) as child:
        os.close(slave)
        try:
            seen = b""
            while seen.count(b"Model seasonal") < 2:
                seen += os.read(master, 65536)
            os.write(master, b"q")
            try:
                while os.read(master, 65536):
                    pass
            except OSError:
                pass
            assert child.wait(60) == Exit.OK
            assert child.stderr is not None
            assert child.stderr.read() == b""
        finally:
            child.kill()
            os.close(master)
