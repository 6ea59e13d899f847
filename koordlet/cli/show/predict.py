"""``koordlet predict``: what pods and the node will need, live; of one pod a plot."""

from __future__ import annotations

import argparse
import os
import select
import sys
import time
from collections.abc import Callable

from koordlet.admin.client import Client
from koordlet.admin.prediction import CurveView, PeakKind, PeakView, PredictorView, PredictView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit, complain
from koordlet.cli.show.scores import score_table
from koordlet.cli.show.terminal import KEY_BYTES, keyboard_of_terminal, text
from koordlet.drawing.spans import Line, Span, plain
from koordlet.drawing.terminal import ABOVE, LIMIT, blocks, highest, plot
from koordlet.prediction.reclaimable import MIN_PREDICTOR

WINDOW_S = 6 * 3600.0
_WIDTH = 100
"""Where nothing limits a line."""
_LOW, _HIGH = 6, 14
"""Lines of a plot."""
_HEADROOM = 1.05
"""So that a peak that is the highest of all is seen as a line."""
_TEXT_LINES = 16
"""Other lines of a screen with two plots."""


def main(args: argparse.Namespace) -> int:
    if args.back_test:
        from koordlet.cli.show import back_test

        return back_test.main(args)
    if args.state_dir:
        return complain("--state-dir goes with --back-test", Exit.USAGE)
    with connect(args) as client:
        if not args.once and args.output == "table" and sys.stdout.isatty():
            _live(client, args)
            return Exit.OK
        answer = client.predict(args.target, args.window or WINDOW_S)
    width = output.terminal_width() or _WIDTH
    output.emit(answer, args.output, lambda: map(plain, lines(answer, width)))
    return Exit.OK


def lines(answer: PredictView, width: int, height: int | None = None) -> list[Line]:
    """``height``: of the screen; the last subjects are left out where they do not fit."""
    found: list[Line] = [(Span(each),) for each in _head(answer)]
    if not answer.enabled or not answer.peaks:
        return found
    header, *rows = output.columns(
        ("NAME", "RESOURCE", ">USED", ">PEAK", ">REQUEST", ">MARGIN", "MODEL", ">MISSES", ">OVER"),
        map(_row, answer.peaks),
    )
    found += [(), (Span(header, "head"),)]
    room = len(rows) if height is None or answer.curves else max(height - len(found) - 1, 1)
    for row, peak in zip(rows[:room], answer.peaks, strict=False):
        found.append((Span(row, _style(peak)),))
    if len(rows) > room:
        more = f"... {len(rows) - room} more lines; `koordlet predict --once` has all"
        found.append((Span(more, "dim"),))
    if not answer.curves and height is None:
        found += [(Span(each),) for each in _scores(answer)]
    for curve in answer.curves:
        found += [(), *_plot(curve, width, height)]
    return found


def _scores(answer: PredictView) -> list[str]:
    if not answer.scores:
        return []
    return output.section("Of the predictions of the last day", score_table(answer.scores))


def _head(answer: PredictView) -> list[str]:
    if not answer.enabled:
        return [f"Nothing is predicted: {output.clean(answer.why)}."]
    when = f"last round {output.clock(answer.as_of)}" if answer.as_of else "no round has ended yet"
    found = [f"Model {answer.model}; {when}, {output.span(answer.round_s)} of CPU"]
    combined = next((each for each in answer.predictors if each.name == MIN_PREDICTOR), None)
    if combined is None:
        return [*found, f"Reclaimable: not known, {output.clean(answer.why)}"]
    return [*found, *_reclaimable(combined), _mid(answer)]


def _reclaimable(combined: PredictorView) -> list[str]:
    free = _both(combined.cpu_reclaimable_cores, combined.memory_reclaimable_bytes)
    peak = _both(combined.cpu_peak_cores, combined.memory_peak_bytes)
    return [
        f"Production requests and will not need: {free}",
        f"Peak of production and the system: {peak}",
    ]


def _mid(answer: PredictView) -> str:
    return f"Mid-priority pods could have: {_both(answer.mid_cpu_cores, answer.mid_memory_bytes)}"


def _both(cores: float | None, size: float | None) -> str:
    return f"{output.cores(cores)} cores, {output.size(size)}"


def _row(peak: PeakView) -> tuple[str, ...]:
    amount = _amount(peak.resource)
    return (
        peak.name,
        peak.resource,
        amount(peak.used),
        amount(peak.peak),
        amount(peak.requested),
        f"{peak.margin_percent:.0f} %",
        f"{peak.model}, cold ({output.span(peak.watched_s)})" if peak.cold else peak.model,
        output.ratio(peak.miss_ratio),
        output.ratio(peak.over_ratio),
    )


def _amount(resource: str) -> Callable[[float | None], str]:
    return output.cores if resource == "cpu" else output.size


def _style(peak: PeakView) -> str:
    if peak.used is not None and peak.peak is not None and peak.used > peak.peak:
        return "bad"
    return "system" if peak.kind is PeakKind.NODE else "dim" if peak.cold else ""


def _plot(curve: CurveView, width: int, height: int | None) -> list[Line]:
    rows = _HIGH if height is None else min(max((height - _TEXT_LINES) // 2, _LOW), _HIGH)
    used = [point.used for point in curve.points]
    peaks = [point.peak for point in curve.points]
    most = highest([*used, *peaks])
    if not most:
        return [(Span(f"{curve.resource}: nothing to draw yet", "dim"),)]
    unit, factor = output.short_unit("cores" if curve.resource == "cpu" else "bytes", most)
    cells = blocks()
    title = (
        f"{curve.resource} in {unit}: {cells[-1]} used, {LIMIT} predicted peak, {ABOVE} used above "
        "it"
    )
    first, last = curve.points[0].time, curve.points[-1].time
    drawn = plot(
        [None if value is None else value / factor for value in used],
        first,
        (last - first) / max(len(used) - 1, 1),
        width=width,
        height=rows,
        most=most * _HEADROOM / factor,
        cells=cells,
        limits=[None if value is None else value / factor for value in peaks],
    )
    return [(Span(title, "head"),), *drawn]


def _live(client: Client, args: argparse.Namespace) -> None:
    """Redraw until ``q``. Raises KeyboardInterrupt on Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with (
        keyboard_of_terminal() as keyboard,
        Live(console=console, screen=True, auto_refresh=False, redirect_stderr=False) as live,
    ):
        while True:
            answer = client.predict(args.target, args.window or WINDOW_S)
            live.update(text(lines(answer, console.width, console.height)), refresh=True)
            if _is_ended(keyboard, args.interval):
                return


def _is_ended(keyboard: int | None, interval_s: float) -> bool:
    """Whether somebody has pressed ``q`` in the meantime."""
    if keyboard is None:
        time.sleep(interval_s)
        return False
    ready, _, _ = select.select([keyboard], [], [], interval_s)
    return bool(ready) and b"q" in _typed(keyboard)


def _typed(keyboard: int) -> bytes:
    """What was typed; a terminal that has gone types ``q``."""
    return os.read(keyboard, KEY_BYTES) or b"q"
