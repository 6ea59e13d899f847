"""The HTML report: one file, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from koordlet.decision.why import Input
from koordlet.demo.model import ARMS, ArmResult, DemoResult, Goal, Moment
from koordlet.demo.report.headline import Card, cards, headline
from koordlet.demo.report.panels import cpu_charts, latency_charts, shown
from koordlet.demo.stats import disturbance, of_arm, three_that_mattered
from koordlet.demo.table import goal_text, header, moment_text, rows, settings_line, time_text
from koordlet.drawing.charts import Chart, render
from koordlet.drawing.page import document, fill, key, row, stroke, table
from koordlet.protocol.intervals import Verdict

DECISIONS_SHOWN = 60
_STYLES = {Verdict.REACHED: "good", Verdict.MISSED: "bad", Verdict.UNDECIDED: "muted"}

_STYLE = """
.bars { display: grid; grid-template-columns: max-content 1fr; gap: .3rem .8rem; }
.bars .bar { display: flex; align-items: center; gap: .5rem; }
.bars i { display: block; height: 1.1rem; min-width: 2px; background: var(--ls);
  border-radius: 2px; }
.bars .bar span { white-space: nowrap; }
.decisions .mattered td:first-child { border-left: 4px solid var(--koordlet); }
.simulated { border: 2px solid var(--fg); padding: .4rem .9rem; border-radius: 6px; }
@media (max-width: 640px) {
  .figures { font-size: .82rem; } .figures th, .figures td { padding: .25rem .2rem; }
}
""".strip()


def render_report(demo: DemoResult) -> str:
    """The whole document. The curves of an arm are those of its slices, one after the other."""
    arms = shown(demo)
    return document(
        "koordlet demo",
        _STYLE,
        (
            f"<h1>{escape(headline(demo) or 'koordlet demo')}</h1>",
            _simulation_notice(demo),
            _cards(demo),
            _bars(demo),
            "<h2>Latency of the service over time, in ms</h2>",
            key(
                ("99 of 100 requests are faster (p99)", stroke("ls")),
                ("half of them are faster (p50)", stroke("ls thin")),
                ("one of the slowest 1 %", "<circle class='dot' cx='12' cy='7' r='2.5'/>"),
                ("above the scale", "<polygon class='clip' points='8,11 12,3 16,11'/>"),
            ),
            _row_of(latency_charts(arms)),
            "<h2>CPU over time, in cores</h2>",
            key(
                ("best-effort work (BE)", fill("be")),
                ("the service (LS), on top of it", fill("ls")),
                ("the rest of the machine", fill("rest")),
                ("the limit of best-effort work", stroke("limit")),
                ("a decision", "<line class='decision' x1='12' x2='12' y1='2' y2='12'/>"),
                ("an alarm", "<circle class='alarm' cx='12' cy='7' r='4'/>"),
            ),
            _row_of(cpu_charts(arms)),
            "<h2>All figures</h2>",
            table(header(demo), map(row, rows(demo)), "figures"),
            f"<p class='muted'>{escape(settings_line(demo.settings))}</p>",
            *(_decisions(result) for result in arms if result.moments),
        ),
    )


def _simulation_notice(demo: DemoResult) -> str:
    if not demo.settings.simulated:
        return ""
    return (
        "<p class='simulated'><b>Simulation.</b> These figures come from the fake kernel and its "
        "small scheduling model, not from this machine.</p>"
    )


def _cards(demo: DemoResult) -> str:
    warning = disturbance(demo)
    note = f"<p class='bad'>{escape(warning)}</p>" if warning else ""
    return f"<div class='grid3'>{''.join(map(_card, cards(demo)))}</div>{note}"


def _card(card: Card) -> str:
    return (
        f"<div class='card'><b class='figure'>{escape(card.figure)}</b>{escape(card.meaning)}"
        f"<br>{_verdict(card.goal)}</div>"
    )


def _verdict(goal: Goal) -> str:
    style = "muted" if goal.verdict is None else _STYLES[goal.verdict]
    word = "not judged" if goal.verdict is None else goal.verdict
    return f"<b class='{style}'>{word}</b>: {escape(goal_text(goal))}"


def _bars(demo: DemoResult) -> str:
    """p99 of the arms on one scale, from zero."""
    found = [
        (arm.title, result.p99_ms)
        for name, arm in ARMS.items()
        if (result := of_arm(demo, name)) is not None
    ]
    most = max((p99 for _, p99 in found), default=0.0) or 1.0
    bars = (
        f"<span>{escape(title)}</span><span class='bar'>"
        f"<i style='width:{p99 / most * 75:.1f}%'></i><span>{p99:.2f} ms</span></span>"
        for title, p99 in found
    )
    return f"<h2>p99 latency of the service</h2><div class='bars'>{''.join(bars)}</div>"


def _row_of(charts: Iterable[Chart]) -> str:
    return f"<div class='grid3'>{''.join(map(render, charts))}</div>"


def _decisions(result: ArmResult) -> str:
    """Those of the arm with its warm-up; what comes after the end only puts things back."""
    moments = [moment for moment in result.moments if moment.t <= result.seconds]
    mattered = three_that_mattered(result)
    left = [moment for moment in moments if moment not in mattered]
    kept = {id(each) for each in (*mattered, *left[: DECISIONS_SHOWN - len(mattered)])}
    alarms = sum(not moment.resource for moment in moments)
    body = (
        _decision(moment, has_mattered=moment in mattered)
        for moment in moments
        if id(moment) in kept
    )
    hidden = len(moments) - len(kept & set(map(id, moments)))
    more = f" {hidden} of them are not shown; `-o json` has all." if hidden else ""
    return (
        "<h2>What koordlet decided, and why</h2>"
        f"<p class='muted'>{len(moments) - alarms} decisions and {alarms} alarms in this arm; a "
        f"bar at the left marks those that mattered most.{escape(more)}</p>"
        + table(("Time", "What", "Why"), body, "decisions")
    )


def _decision(moment: Moment, *, has_mattered: bool) -> str:
    looked = f"<br><span class='muted'>Looked at: {_inputs(moment)}.</span>"
    rule = f"<br><span class='muted'>Rule {escape(moment.why.rule)}.</span>"
    details = (looked if moment.why.inputs else "") + rule if has_mattered else ""
    style = " class='mattered'" if has_mattered else ""
    return (
        f"<tr{style}><td>{escape(time_text(moment))}</td>"
        f"<td><code>{escape(moment_text(moment))}</code></td>"
        f"<td>{escape(moment.why.text)}{details}</td></tr>"
    )


def _inputs(moment: Moment) -> str:
    return escape("; ".join(" ".join(_words(fact)) for fact in moment.why.inputs))


def _words(fact: Input) -> Iterator[str]:
    yield fact.name
    yield f"{fact.value:.4g}" if isinstance(fact.value, float) else str(fact.value)
    if fact.unit:
        yield fact.unit
    window = [f"{fact.window_s:g} s window"] if fact.window_s else []
    age = [f"{fact.age_s * 1000:.0f} ms old"] if fact.age_s else []
    if window or age:
        yield f"({', '.join((*window, *age))})"
