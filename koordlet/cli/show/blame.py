"""``koordlet blame``: who made whom wait for what, in the last minute."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

from koordlet.admin.blame import (
    BlameView,
    CulpritView,
    SlowedByView,
    StallView,
    VictimView,
    culprit_title,
)
from koordlet.admin.client import Client
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit
from koordlet.drawing.terminal import blocks, sparkline

_BAR_CELLS = 20
_NAMED = 3
"""Culprits in one line of the table."""
_WHAT = {"cpu": "a CPU", "io": "a disk", "memory": "memory"}


def main(args: argparse.Namespace) -> int:
    with connect(args) as client:
        live = not args.once and args.output == "table" and sys.stdout.isatty()
        if live:
            _live(client, args)
        else:
            view = client.blame(args.target, args.window)
            output.emit(view, args.output, lambda: lines(view, args.target))
    return Exit.OK


def _live(client: Client, args: argparse.Namespace) -> None:
    """Redraw until Ctrl-C."""
    from rich.live import Live
    from rich.text import Text

    with Live(screen=True, auto_refresh=False, redirect_stderr=False) as live:
        while True:
            view = client.blame(args.target, args.window)
            text = Text("\n".join(lines(view, args.target)), no_wrap=True, overflow="crop")
            live.update(text, refresh=True)
            time.sleep(args.interval)


def lines(view: BlameView, target: str) -> Iterator[str]:
    yield f"{output.clock(view.time)}  last {view.window_s:g} s, milliseconds of waiting a second"
    for each in view.missing:
        yield f"not measured: {output.clean(each)}"
    yield ""
    if target:
        for victim in view.victims:
            yield from _victim(victim)
        if not view.victims:
            why = "" if view.missing else ": it is best-effort, or has just come"
            yield f"No waits are known of it{why}."
        return
    if not view.victims:
        yield "No waits are known." if view.missing else "No latency-sensitive pod or application."
        return
    rows = [row for victim in view.victims for row in _rows(victim)]
    header = ("VICTIM", "QOS", "WAITS FOR", ">MS/S", ">P99", "MOSTLY BECAUSE OF")
    yield from output.columns(header, rows)


def _rows(victim: VictimView) -> Iterator[Sequence[str]]:
    slowest = max((each.p99_us or 0.0 for each in victim.run_queue), default=0.0)
    p99 = output.span(slowest / 1e6) if slowest else output.NOTHING
    if slowest and all(stall.resource != "cpu" for stall in victim.stalls):
        # For whom is not measured here.
        yield output.clean(victim.title), victim.qos, "cpu", output.NOTHING, p99, output.NOTHING
    for stall in victim.stalls:
        yield _row(victim, stall, p99 if stall.resource == "cpu" else output.NOTHING)
    if victim.slowed_by:
        names = ", ".join(_marked(each) for each in victim.slowed_by[:_NAMED])
        yield (
            output.clean(victim.title),
            victim.qos,
            "caches",
            output.NOTHING,
            output.NOTHING,
            names,
        )


def _row(victim: VictimView, stall: StallView, p99: str) -> Sequence[str]:
    worst = [each for each in stall.culprits if each.share >= 0.1][:_NAMED]
    return (
        output.clean(victim.title),
        victim.qos,
        stall.resource,
        f"{stall.ms_per_s:.1f}",
        p99,
        ", ".join(f"{_name(each, stall.resource)} {each.share * 100:.0f}%" for each in worst)
        or output.NOTHING,
    )


def _victim(victim: VictimView) -> Iterator[str]:
    used = f", uses {output.cores(victim.cpu_cores)} cores" if victim.cpu_cores else ""
    yield f"{output.clean(victim.title)} ({victim.qos}){used}"
    for stall in victim.stalls:
        what = _WHAT.get(stall.resource, stall.resource)
        yield ""
        yield f"Waits for {what}: {stall.ms_per_s:.1f} ms/s"
        rows = [_culprit_row(each, stall) for each in stall.culprits]
        if rows:
            yield from output.columns(
                ("CULPRIT", "QOS", ">MS/S", ">SHARE", "", f"{'OLDEST':10}{'NEWEST':>10}"), rows
            )
    if victim.slowed_by:
        yield ""
        yield "Waits for caches or memory bandwidth: cycles per instruction above their limit"
        yield from output.columns(
            ("CULPRIT", "QOS", ">CORRELATION", ">CPI", ">NORMAL", ">LIMIT"),
            map(_slowed_row, victim.slowed_by),
        )
    if victim.run_queue:
        yield ""
        rows = [
            (
                output.clean(each.name or each.container[:24]),
                *(
                    output.span(value / 1e6) if value is not None else output.NOTHING
                    for value in (each.p50_us, each.p95_us, each.p99_us)
                ),
            )
            for each in victim.run_queue
        ]
        yield from output.columns(("A TASK WAITS FOR A CPU", ">P50", ">P95", ">P99"), rows)


def _culprit_row(culprit: CulpritView, stall: StallView) -> Sequence[str]:
    most = max((max(each.recent_ms_per_s, default=0.0) for each in stall.culprits), default=0.0)
    return (
        _name(culprit, stall.resource),
        culprit.qos or output.NOTHING,
        f"{culprit.ms_per_s:.1f}",
        f"{culprit.share * 100:.0f}%",
        ("#" * round(_BAR_CELLS * culprit.share)).ljust(_BAR_CELLS),
        sparkline(culprit.recent_ms_per_s, most, blocks()),
    )


def _slowed_row(each: SlowedByView) -> Sequence[str]:
    figures = (each.correlation, each.cpi, each.normal, each.limit)
    return _marked(each), each.qos or output.NOTHING, *(f"{value:.2f}" for value in figures)


def _marked(each: SlowedByView) -> str:
    """Only antagonists are told of."""
    return f"{culprit_title(each.kind, output.clean(each.title))} (antagonist)"


def _name(culprit: CulpritView, resource: str) -> str:
    name = culprit_title(culprit.kind, output.clean(culprit.title), resource)
    return f"{name} (antagonist)" if culprit.antagonist else name
