"""The HTML report: one file, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from koordlet.decision.why import Input
from koordlet.demo.model import ARMS, ArmResult, DemoResult, Goal, Moment
from koordlet.demo.report.headline import Card, cards, headline
from koordlet.demo.report.palette import DARK, LIGHT, variables
from koordlet.demo.report.panels import cpu_charts, latency_charts, shown
from koordlet.demo.report.svg import CHART_STYLE, Chart, render
from koordlet.demo.stats import disturbance, median_of, of_arm, three_that_mattered
from koordlet.demo.table import goal_text, header, moment_text, rows, settings_line, time_text

DECISIONS_SHOWN = 60
_WORDS = {True: "reached", False: "missed", None: "not judged"}
_STYLES = {True: "good", False: "bad", None: "muted"}

_STYLE = f"""
:root {{ color-scheme: light dark; {variables(LIGHT)} }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(DARK)} }} }}
* {{ box-sizing: border-box; }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  max-width: 1200px; margin: 1.5rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.45rem; line-height: 1.3; max-width: 60rem; margin: .5rem 0 1rem; }}
h2 {{ font-size: 1.1rem; margin: 1.6rem 0 .3rem; }}
p {{ margin: .4rem 0; }}
.muted {{ color: var(--muted); }} .good {{ color: var(--good); }} .bad {{ color: var(--bad); }}
.grid3 {{ display: grid; gap: .7rem; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); }}
.card, svg {{ background: var(--soft); border-radius: 6px; }}
.card {{ padding: .6rem .9rem; }}
.card b.figure {{ display: block; font-size: 2rem; line-height: 1.2; }}
svg {{ width: 100%; height: auto; display: block; }}
.bars {{ display: grid; grid-template-columns: max-content 1fr; gap: .3rem .8rem; }}
.bars .bar {{ display: flex; align-items: center; gap: .5rem; }}
.bars i {{ display: block; height: 1.1rem; min-width: 2px; background: var(--ls);
  border-radius: 2px; }}
.bars .bar span {{ white-space: nowrap; }}
.key {{ display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; font-size: .9rem;
  margin: .2rem 0 .5rem; }}
.key svg {{ display: inline-block; width: 1.6rem; height: .9rem; margin-right: .4rem;
  vertical-align: -1px; background: none; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: right;
  vertical-align: top; }}
th:first-child, td:first-child, .decisions th, .decisions td {{ text-align: left; }}
.decisions td:first-child {{ white-space: nowrap; }}
.decisions td:nth-child(2) {{ min-width: 17rem; }}
.decisions code {{ overflow-wrap: anywhere; }}
.decisions .mattered td:first-child {{ border-left: 4px solid var(--koordlet); }}
code {{ background: var(--soft); padding: .05em .3em; border-radius: 3px; }}
.simulated {{ border: 2px solid var(--fg); padding: .4rem .9rem; border-radius: 6px; }}
@media (max-width: 640px) {{
  h1 {{ font-size: 1.2rem; }}
  .figures {{ font-size: .82rem; }} .figures th, .figures td {{ padding: .25rem .2rem; }}
  .decisions thead {{ display: none; }}
  .decisions td:nth-child(2) {{ min-width: 0; }}
  .decisions tr, .decisions td {{ display: block; border: 0; padding: .1rem .5rem; }}
  .decisions tr {{ border-bottom: 1px solid var(--line); padding: .5rem 0; }}
}}
{CHART_STYLE}
""".strip()


def render_report(demo: DemoResult) -> str:
    """The whole document. Curves and decisions are those of the last repeat of each arm."""
    arms = shown(demo)
    return "\n".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width, initial-scale=1'>",
            f"<title>koordlet demo</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(headline(demo) or 'koordlet demo')}</h1>",
            _simulation_notice(demo),
            _cards(demo),
            _bars(demo),
            "<h2>Latency of the service over time, in ms</h2>",
            _key(
                ("99 of 100 requests are faster (p99)", _stroke("ls")),
                ("half of them are faster (p50)", _stroke("ls thin")),
                ("one of the slowest 1 %", "<circle class='dot' cx='12' cy='7' r='2.5'/>"),
                ("above the scale", "<polygon class='clip' points='8,11 12,3 16,11'/>"),
            ),
            _row_of(latency_charts(arms)),
            "<h2>CPU over time, in cores</h2>",
            _key(
                ("best-effort work (BE)", _fill("be")),
                ("the service (LS), on top of it", _fill("ls")),
                ("the rest of the machine", _fill("rest")),
                ("the limit of best-effort work", _stroke("limit")),
                ("a decision", "<line class='decision' x1='12' x2='12' y1='2' y2='12'/>"),
                ("an alarm", "<circle class='alarm' cx='12' cy='7' r='4'/>"),
            ),
            _row_of(cpu_charts(arms)),
            "<h2>All figures</h2>",
            _table(demo),
            f"<p class='muted'>{escape(settings_line(demo.settings))}</p>",
            *(_decisions(result) for result in arms if result.moments),
            "</body></html>\n",
        )
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
    style = _STYLES[goal.reached]
    return f"<b class='{style}'>{_WORDS[goal.reached]}</b>: {escape(goal_text(goal))}"


def _bars(demo: DemoResult) -> str:
    """p99 of the arms on one scale, from zero."""
    found = [
        (arm.title, p99)
        for name, arm in ARMS.items()
        if (p99 := median_of(of_arm(demo.results, name), "p99_ms")) is not None
    ]
    most = max((p99 for _, p99 in found), default=0.0) or 1.0
    bars = (
        f"<span>{escape(title)}</span><span class='bar'>"
        f"<i style='width:{p99 / most * 75:.1f}%'></i><span>{p99:.2f} ms</span></span>"
        for title, p99 in found
    )
    return f"<h2>p99 latency of the service</h2><div class='bars'>{''.join(bars)}</div>"


def _key(*entries: tuple[str, str]) -> str:
    """Words with the shape that stands for them."""
    return (
        "<div class='key'>"
        + "".join(
            f"<span><svg viewBox='0 0 24 14' aria-hidden='true'>{shape}</svg>{escape(words)}</span>"
            for words, shape in entries
        )
        + "</div>"
    )


def _stroke(style: str) -> str:
    return f"<polyline class='{style}' points='1,7 23,7'/>"


def _fill(style: str) -> str:
    return f"<polygon class='area {style}' points='2,1 22,1 22,13 2,13'/>"


def _row_of(charts: Iterable[Chart]) -> str:
    return f"<div class='grid3'>{''.join(map(render, charts))}</div>"


def _table(demo: DemoResult) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in header(demo))
    body = "".join(_row(row) for row in rows(demo))
    return f"<table class='figures'><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _decisions(result: ArmResult) -> str:
    """Those of the arm with its warm-up; what comes after the end only puts things back."""
    moments = [moment for moment in result.moments if moment.t <= result.seconds]
    mattered = three_that_mattered(result)
    left = [moment for moment in moments if moment not in mattered]
    kept = {id(each) for each in (*mattered, *left[: DECISIONS_SHOWN - len(mattered)])}
    alarms = sum(not moment.resource for moment in moments)
    body = "".join(
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
        "<table class='decisions'><thead><tr><th>Time</th><th>What</th><th>Why</th></tr></thead>"
        f"<tbody>{body}</tbody></table>"
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
