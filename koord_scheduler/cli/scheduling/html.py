"""Pages with plots: one file each, without scripts, for whoever was not at the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from koord_scheduler.cli.errors import BadInputError
from koord_scheduler.cli.output import amount, clean, span
from koord_scheduler.plan.figures import Figures, Moved
from koordlet.drawing.charts import Chart, Line, Point, render
from koordlet.drawing.clock import date, time_ticks
from koordlet.drawing.page import document, key, row, stroke, table

if TYPE_CHECKING:
    from koord_scheduler.cli.scheduling import policies, simulate
    from koord_scheduler.kube.scheduling.replaying import Report

_MOST_ROWS = 500
_STYLE = """
.decisions td { overflow-wrap: anywhere; }
.decisions td:first-child { white-space: normal; min-width: 4rem; }
.figures { white-space: nowrap; }
@media (max-width: 640px) { .figures { display: block; overflow-x: auto; } }
"""
Curves = Mapping[str, Sequence[tuple[float, float]]]


def write(path: str, page: str) -> None:
    """Raises BadInputError."""
    try:
        Path(path).write_text(page, encoding="utf-8")
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}") from None


def simulation(answer: simulate.Answer, before: Curves, after: Curves) -> str:
    total = answer.placed + answer.pending_count
    title = f"{answer.placed} of {total} pods find a node"
    return document(
        title,
        _STYLE,
        (
            f"<h1>{escape(title)}</h1>",
            _muted(f"simulate</code>; placements <code>{answer.hash[:16]}</code>."),
            *_curves(before, after, ("before", "after")),
            *_packing(answer.before, answer.after, ("before", "after")),
            *_listed("Why pods have no node", ("Pods", "Why"), _turned(answer.reasons)),
            *_listed("Placements", ("Pod", "Node"), answer.placements.items()),
        ),
    )


def difference(answer: policies.Answer, old: Curves, new: Curves) -> str:
    found = answer.comparison
    title = (
        f"{len(found.moved)} of {found.pods} pods elsewhere, {len(found.lost)} without a node, "
        f"{len(found.gained)} with one more"
    )
    return document(
        title,
        _STYLE,
        (
            f"<h1>{escape(title)}</h1>",
            _muted(
                f"diff</code>; evictions: {found.evicted_old} with the old policy, "
                f"{found.evicted_new} with the new one."
            ),
            *_curves(old, new, ("old", "new")),
            *_packing(answer.old.figures, answer.new.figures, ("old", "new")),
            *_listed("Why pods lose their node", ("Pods", "Why"), _turned(found.why)),
            *_moves("Lose their node", found.lost),
            *_moves("Gain a node", found.gained),
            *_moves("Move", found.moved),
        ),
    )


def replay(report: Report, path: str) -> str:
    total = report.agreeing + len(report.differing)
    title = f"{report.agreeing} of {total} decisions as in the record"
    return document(
        title,
        _STYLE,
        (
            f"<h1>{escape(title)}</h1>",
            _muted(
                f"replay</code> of <code>{escape(clean(path))}</code>: {date(report.began_s)}, "
                f"{span(report.ended_s - report.began_s)}; {report.decisions} placements, "
                f"hash <code>{report.hash}</code>."
            ),
            *_over_time(report),
            *_moves("Differ", report.differing, ("Pod", "Record", "Replay")),
        ),
    )


def _muted(html: str) -> str:
    return f"<p class='muted'>Made by <code>koord-scheduler {html}</p>"


def _curves(before: Curves, after: Curves, names: tuple[str, str]) -> Iterator[str]:
    """How full single nodes are, the fullest at the left."""
    yield "<h2>How full nodes are</h2>"
    yield key((names[0], stroke("rest")), (names[1], stroke("ls")))
    yield "<div class='grid3'>"
    for name in after:
        points: list[list[Point]] = [
            [(x, y) for x, y in each.get(name, ())] for each in (before, after)
        ]
        nodes = max((line[-1][0] + 1 for line in points if line), default=1.0)
        for line in points:
            line += [(nodes, line[-1][1])] if line else []  # the last node is as wide as the others
        top = max((y for line in points for _, y in line if y is not None), default=0.0)
        ticks = [(at, f"{at:.0f}") for at in sorted({0.0, nodes // 2, nodes})]
        yield render(
            Chart(
                title=f"{name}: % requested",
                about="nodes by what is requested there, the fullest first",
                x_max=nodes,
                y_max=max(top, 100.0),
                lines=[
                    Line(style, line, steps=True)
                    for style, line in zip(("rest", "ls"), points, strict=True)
                ],
                x_ticks=ticks,
                note="nodes, fullest first",
            )
        )
    yield "</div>"


def _packing(before: Figures, after: Figures, names: tuple[str, str]) -> Iterator[str]:
    yield "<h2>Resources</h2>"
    rows = []
    for name, now in after.resources.items():
        was = before.resources.get(name)
        cells = (
            name,
            amount(name, now.allocatable),
            f"{was.percent:.1f} %" if was is not None else "-",
            *(f"{n:.1f} %" for n in (now.percent, now.percent_p50, now.percent_p90)),
            f"{now.percent_max:.1f} %",
        )
        rows.append(row(cells))
    yield table(("Resource", "Allocatable", *names, "p50", "p90", "max"), rows, "figures")
    yield (
        f"<p>{after.nodes} nodes; empty: {before.empty} {names[0]}, {after.empty} {names[1]}; "
        f"nearly full: {before.hot} {names[0]}, {after.hot} {names[1]}.</p>"
    )


def _over_time(report: Report) -> Iterator[str]:
    if not report.samples:
        return
    began_s = report.samples[0].t
    long_s = max(report.samples[-1].t - began_s, 1.0)
    ticks = [(at - began_s, words) for at, words in time_ticks(began_s, began_s + long_s, 5)]
    lines: dict[str, list[tuple[str, list[Point]]]] = {
        "pods without a node": [
            ("ls", [(e.t - began_s, float(e.waiting)) for e in report.samples]),
        ],
        "% requested": [
            ("cpu", [(e.t - began_s, e.cpu) for e in report.samples]),
            ("mem", [(e.t - began_s, e.memory) for e in report.samples]),
        ],
    }
    yield "<h2>Over time</h2>"
    yield key(("CPU", stroke("cpu")), ("memory", stroke("mem")))
    yield "<div class='grid3'>"
    for title, drawn in lines.items():
        top = max((y for _, points in drawn for _, y in points if y is not None), default=1.0)
        yield render(
            Chart(
                title=title,
                about="over the time of the record",
                x_max=long_s,
                y_max=max(top, 1.0),
                lines=[Line(style, points, steps=True) for style, points in drawn],
                x_ticks=ticks,
            )
        )
    yield "</div>"


def _turned(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(str(number), words) for words, number in counts.items()]


def _moves(
    title: str, moved: Sequence[Moved], header: tuple[str, ...] = ("Pod", "Old", "New")
) -> Iterator[str]:
    return _listed(title, header, [(each.pod, each.old or "-", each.new or "-") for each in moved])


def _listed(title: str, header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    found = list(rows)
    if not found:
        return
    yield f"<h2>{escape(title)} ({len(found)})</h2>"
    yield table(header, (row(map(clean, cells)) for cells in found[:_MOST_ROWS]), "decisions")
    if len(found) > _MOST_ROWS:
        yield f"<p class='muted'>and {len(found) - _MOST_ROWS} more</p>"
