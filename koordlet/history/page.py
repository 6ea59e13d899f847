"""An incident as one HTML page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from html import escape

from koordlet.decision.names import harmless
from koordlet.decision.record import Kind
from koordlet.drawing.charts import render
from koordlet.drawing.clock import clock, date, span, time_ticks
from koordlet.drawing.heat_map import HEAT_STYLE, heat_map
from koordlet.drawing.lanes import LANES_STYLE, lanes
from koordlet.drawing.page import document, fill, key, row, stroke, table
from koordlet.history.happened import ALARMS, BINS, CONFLICTS, DAEMON, EVICTIONS, Group
from koordlet.history.incident import Incident
from koordlet.history.panels import close_charts, cpu_chart, pressure_chart
from koordlet.history.suffering import CAUSES, CPU, KINDS, PSI_MATCH, THROTTLED, Sufferer
from koordlet.history.summary import (
    CHANGES,
    WOULD_BE,
    is_verdict,
    length,
    mean,
    sentences,
    title,
)
from koordlet.history.waits import RESOURCES

GROUPS_SHOWN = 80
MOMENTS_SHOWN = 60
SUFFERERS_SHOWN = 20
_LANES_SHOWN = 12
_FIRST = (ALARMS, EVICTIONS, CONFLICTS, DAEMON)
_CAUSE_WORDS = {
    "cpu": "waiting for a CPU (PSI)",
    "mem": "waiting for memory (PSI)",
    "io": "waiting for a disk (PSI)",
    "throttled": "stopped by its own CPU limit, of its periods",
}
_SAYS = {"cpu": "CPU", "mem": "memory", "io": "disk", "throttled": "throttled"}
_FRAMED = "Framed: the strategy interference reported the column as an antagonist."
_STYLE = f"""
.summary {{ max-width: 60rem; }}
.figures td:nth-child(2), .figures th:nth-child(2) {{ text-align: left; }}
.wide svg {{ margin-bottom: .4rem; }}
h3 {{ font-size: 1rem; margin: .8rem 0 .3rem; }}
{HEAT_STYLE}
{LANES_STYLE}
""".strip()


def render_incident(found: Incident, made: float) -> str:
    """The whole document. ``made``: when, unix seconds."""
    return document(
        title(found),
        _STYLE,
        (
            f"<h1>{escape(title(found))}</h1>",
            _paragraphs("summary", sentences(found)),
            *_suffered(found),
            *_timeline(found),
            *_cpu(found),
            *_pressure(found),
            *_waits(found),
            *_slowed(found),
            *_decisions(found),
            *_missing(found),
            f"<p class='muted'>Made by <code>koordlet report</code> at {escape(date(made))}.</p>",
        ),
    )


def _paragraphs(style: str, texts: list[str]) -> str:
    return f"<div class='{style}'>{''.join(f'<p>{escape(text)}</p>' for text in texts)}</div>"


def _suffered(found: Incident) -> Iterator[str]:
    sufferers = found.suffering.sufferers[:SUFFERERS_SHOWN]
    if not sufferers:
        return
    step = length(found.suffering.step_s)
    yield "<h2>What latency-sensitive work suffered</h2>"
    means = [f"{_SAYS[cause.name]}, mean %" for cause in CAUSES]
    header = ("Name", "Class", "Suffered", "At worst", "When", *means)
    yield table(header, (_sufferer(found, each) for each in sufferers), "figures")
    hidden = len(found.suffering.sufferers) - len(sufferers)
    more = f" {hidden} more are not listed." if hidden else ""
    yield (
        f"<p class='muted'>Means of each {escape(step)}. A workload suffers in one in which it "
        f"waited {CPU.limit:g} % of the time for a CPU, memory or a disk, or its own limit stopped "
        f"it in {THROTTLED.limit:g} % of its periods.{more}</p>"
    )


def _sufferer(found: Incident, each: Sufferer) -> str:
    suffering = found.suffering
    means = (mean(each.percent[cause]) if cause in each.percent else None for cause in CAUSES)
    return row(
        (
            each.who.title,
            each.who.qos,
            length(each.suffered_s) if each.suffered else "no",
            f"{_SAYS[each.worst.cause.name]} {each.worst.percent:.1f} %",
            clock(suffering.at(each.worst.step)),
            *("-" if value is None else f"{value:.1f}" for value in means),
        )
    )


def _timeline(found: Incident) -> Iterator[str]:
    did = found.happened
    if not did.bins:
        return
    by_count = sorted(did.bins, key=lambda lane: -did.counts[lane])
    names = [lane for lane in _FIRST if lane in did.bins]
    names += [lane for lane in by_count if lane not in _FIRST][: _LANES_SHOWN - len(names)]
    length = found.end - found.start
    ticks = [
        ((time - found.start) / length, words)
        for time, words in time_ticks(found.start, found.end, 12)
    ]
    yield "<h2>Timeline</h2>"
    yield "<p class='muted'>A lane for each kind of event; the darker, the more at once.</p>"
    drawn = lanes({name: did.bins[name] for name in names}, BINS, ticks)
    yield f"<div class='wide'>{drawn}</div>"
    moments = did.moments[:MOMENTS_SHOWN]
    if moments:
        lines = (row((clock(each.time), each.subject, each.text)) for each in moments)
        yield table(("Time", "What", "Why"), lines, "decisions")
    hidden = len(did.moments) - len(moments)
    if hidden:
        yield f"<p class='muted'>{hidden} more; `koordlet events --since` has all.</p>"


def _cpu(found: Incident) -> Iterator[str]:
    yield "<h2>CPU of the node, in cores</h2>"
    yield key(
        ("best-effort work (BE)", fill("be")),
        ("latency-sensitive work (LS), on top of it", fill("ls")),
        ("the system", fill("rest")),
        ("the limit of best-effort work", stroke("limit")),
    )
    yield f"<div class='wide'>{render(cpu_chart(found))}</div>"
    step = span(found.cpu.step_s)
    yield (
        f"<p class='muted'>Means of each {escape(step)}: node_cpu_usage, sys_cpu_usage, node_be. "
        "LS is what the other two leave of the first.</p>"
    )


def _pressure(found: Incident) -> Iterator[str]:
    charts = list(close_charts(found.close))
    of_node = pressure_chart(found)
    if of_node is not None:
        charts.insert(0, of_node)
    if not charts:
        return
    yield "<h2>Waiting and throttling, % of the time</h2>"
    yield key(*((_CAUSE_WORDS[cause.name], stroke(cause.name)) for cause in CAUSES))
    yield f"<div class='grid3'>{''.join(map(render, charts))}</div>"
    yield (
        "<p class='muted'>The node, and those who suffered most. The same numbers: <code>"
        f"{escape(_command(found))}</code></p>"
    )


def _command(found: Incident) -> str:
    """That prints the numbers of a chart."""
    kind, who = "node_psi", ""
    if found.close:
        first = found.close[0].sufferer.who
        psi = KINDS[first.kind][0]
        kind, who = psi.kind, f"{psi.labels[0]}={first.uid or first.name}"
    match = (f"{name}={value}" for name, value in PSI_MATCH.items())
    labels = " ".join(shlex.quote(harmless(each)) for each in (who, *match) if each)
    return (
        f"koordlet query {kind} {labels} --from @{found.start:.0f} --to @{found.end:.0f} --step "
        f"{found.pressure_step_s:g}s -o csv"
    )


def _waits(found: Incident) -> Iterator[str]:
    if not found.waits.matrices:
        return
    yield "<h2>Who made whom wait, in seconds</h2>"
    framed = f" {_FRAMED}" if any(matrix.marked for matrix in found.waits.matrices) else ""
    yield f"<p class='muted'>How long each row waited because of each column.{framed}</p>"
    for matrix in found.waits.matrices:
        what = RESOURCES[matrix.resource]
        if not matrix.rows:
            yield f"<p>Nothing waited for {what}.</p>"
            continue
        yield f"<h3>For {what}</h3>"
        about = f"seconds that each row waited for {what} because of each column"
        yield heat_map(
            matrix.rows, matrix.columns, matrix.values, about=about, marked=matrix.marked
        )


def _slowed(found: Incident) -> Iterator[str]:
    matrix = found.waits.slowed
    if matrix is None:
        return
    yield "<h2>Who slowed whom down by caches and memory bandwidth</h2>"
    yield (
        "<p class='muted'>Each row needed more cycles for an instruction while the column was busy:"
        f" how well the two went together, 1 at most, when it was reported. {_FRAMED}</p>"
    )
    about = "correlation of each column's CPU use and the slow windows of each row"
    yield heat_map(matrix.rows, matrix.columns, matrix.values, about=about, marked=matrix.marked)


def _decisions(found: Incident) -> Iterator[str]:
    groups = [each for each in found.happened.groups if each.lane != DAEMON]
    if not groups:
        return
    groups.sort(key=lambda each: (_rank(each), -each.count, each.first))
    shown = groups[:GROUPS_SHOWN]
    yield "<h2>What koordlet did, and why</h2>"
    yield (
        "<p class='muted'>Decisions that differ in time and figures alone are one line, with the "
        "reason of the last one.</p>"
    )
    yield table(("Time", "What", "Why"), map(_group, shown), "decisions")
    if len(groups) > len(shown):
        yield f"<p class='muted'>{len(groups) - len(shown)} more kinds of decisions.</p>"


def _rank(group: Group) -> int:
    """Who disturbed whom, and what was done, come before what was not."""
    if group.lane in _FIRST:
        return _FIRST.index(group.lane)
    if is_verdict(group):
        return len(_FIRST)
    if group.result in CHANGES or group.result in WOULD_BE:
        return len(_FIRST) + 1
    return len(_FIRST) + (3 if group.result == Kind.NOTE else 2)


def _group(group: Group) -> str:
    times = clock(group.first)
    if group.count > 1:
        times = f"{times}<br>to {clock(group.last)}<br>{group.count} times"
    what = f"<code>{escape(group.subject)}</code>"
    if group.change:
        last = "last " if group.count > 1 else ""
        what += f"<br>{last}{escape(group.change)}"
        if group.low is not None and group.high is not None and group.low < group.high:
            what += f", from {group.low:.10g} to {group.high:.10g}"
    by = ", ".join(filter(None, (group.owner or group.lane, group.result, group.rule)))
    return (
        f"<tr><td>{times}</td><td>{what}<br><span class='muted'>{escape(by)}</span></td>"
        f"<td>{escape(group.text)}</td></tr>"
    )


def _missing(found: Incident) -> Iterator[str]:
    yield "<h2>What is missing</h2>"
    yield _paragraphs("summary", list(found.missing) or ["Nothing that koordlet knows of."])
