"""``koordlet predict``: the plot, the table on a screen, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.admin.prediction import CurveView, PointView, PredictView
from koordlet.cli.main import Exit, main
from koordlet.cli.show.plot import plot
from koordlet.cli.show.predict import lines
from koordlet.cli.show.screen import plain
from tests.admin.harness import Served
from tests.admin.samples import PREDICTED

KOORDLET = [sys.executable, "-m", "koordlet"]


def points(*pairs: tuple[float | None, float | None]) -> tuple[PointView, ...]:
    return tuple(PointView(time=60.0 * n, used=u, peak=p) for n, (u, p) in enumerate(pairs))


def drawn(of: tuple[PointView, ...], height: int = 4, width: int = 100) -> list[str]:
    found = plot(of, height, width, lambda amount: f"{amount:.1f}", lambda time: f"{time:.0f}")
    return list(map(plain, found))


def test_a_plot_by_hand() -> None:
    """The top is 4 x 1.05, a line 1.05. 2 cores fill 0.9 of the second line. The peak of 3 is in
    the third, from which on what is used above it is marked."""
    assert drawn(points((1, 3), (2, 3), (4, 3), (None, 3), (2, None))) == [
        "4.2 |  !",
        "    |--!-",
        "2.1 | ## #",
        "    |### #",
        "0.0 +-----",
        "     0 240",
    ]


def test_how_much_of_a_cell_is_filled() -> None:
    rows = drawn(points((0.0, None), (0.3, None), (0.6, None), (0.9, None), (1.0, None)), 1)
    assert rows[0] == "1.1 | .:##"


def test_points_share_a_column_where_the_screen_is_narrow() -> None:
    """Of several the highest is drawn; all points have their place."""
    many = points(*((float(number % 10 == 7), 2.0) for number in range(120)))
    assert len(drawn(many, width=200)[0]) <= 5 + 120
    narrow = drawn(many, width=50)
    assert max(map(len, narrow)) <= 50
    assert [row.count("#") for row in narrow[:4]] == [0, 0, 12, 12]


def test_nothing_to_draw() -> None:
    assert drawn(points((None, None), (None, None))) == ["  nothing to draw yet"]
    assert drawn(points((0.0, 0.0))) == ["  nothing to draw yet"]
    assert drawn(()) == ["  nothing to draw yet"]


@given(
    st.lists(
        st.tuples(*[st.none() | st.floats(0, 1e15, allow_subnormal=False)] * 2),
        min_size=1,
        max_size=130,
    ),
    st.integers(1, 20),
    st.integers(1, 300),
)
def test_any_points_make_a_plot_of_the_asked_size(
    pairs: list[tuple[float | None, float | None]], height: int, width: int
) -> None:
    rows = drawn(points(*pairs), height, width)
    assert len(rows) in (1, height + 2)
    if len(rows) > 1:
        columns = len(rows[height].partition("+")[2])
        assert 1 <= columns <= 120


def screen(view: PredictView, height: int | None = None, width: int = 100) -> list[str]:
    return list(map(plain, lines(view, width, height)))


def test_what_does_not_fit_a_screen_is_counted() -> None:
    many = msgspec.structs.replace(PREDICTED, peaks=PREDICTED.peaks * 30)
    assert len(screen(many, 24)) == 24
    assert screen(many, 24)[-1] == "... 73 more lines; `koordlet predict --once` has all"
    assert len(screen(many)) > 90
    assert len(screen(PREDICTED, 24)) < 24


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
