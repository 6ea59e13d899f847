"""The HTML report: one file, no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from koordlet.decision.why import Input
from koordlet.demo.model import ARMS, ArmResult, DemoResult, Moment, Request
from koordlet.demo.stats import disturbance, goals, of_arm, percentile, three_that_mattered
from koordlet.demo.svg import Chart, Line, Mark, render
from koordlet.demo.table import goal_text, header, moment_text, rows, settings_line, time_text

_LS, _BE, _OTHER, _SLOW, _DECISION = "#1769aa", "#d9822b", "#7a7f87", "#c23030", "#6b4fa0"
_ALARM = "#e0a800"
_BUCKET_S = 0.25
# Above this multiple of the calmest arm's p99.9 the scale is cut, or one stalled request of the
# unmanaged arm would flatten every other curve.
_SCALE = 4.0

_STYLE = f"""
:root {{ color-scheme: light dark; --fg: #1c1f23; --bg: #fff; --line: #d5d9de; --soft: #f4f6f8; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --fg: #e6e8eb; --bg: #15181c; --line: #363b42; --soft: #1d2126; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--fg); background: var(--bg);
  max-width: 960px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.5rem; }} h2 {{ font-size: 1.15rem; margin: 2rem 0 .3rem; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ border-bottom: 1px solid var(--line); padding: .3rem .5rem; text-align: right; }}
th:first-child, td:first-child {{ text-align: left; }}
svg {{ width: 100%; height: auto; background: var(--soft); border-radius: 4px; margin: .2rem 0; }}
.grid {{ stroke: var(--line); }}
.tick, .label {{ fill: var(--fg); font-size: 11px; opacity: .75; }}
.dot {{ fill: {_SLOW}; }} .decision line {{ stroke: {_DECISION}; stroke-dasharray: 3 3; }}
.decision circle {{ fill: {_DECISION}; }} .alarm circle {{ fill: {_ALARM}; }}
.key span {{ display: inline-block; width: 1.4em; height: .5em; margin: 0 .3em 0 1em; }}
.yes {{ color: #1a7f37; }} .no {{ color: {_SLOW}; }}
.simulated {{ border: 2px solid {_SLOW}; padding: .5rem 1rem; border-radius: 4px; }}
dt {{ font-weight: 600; margin-top: .8rem; }} dd {{ margin: .1rem 0 .1rem 1rem; }}
dd table {{ width: auto; font-size: .9em; }} dd td:nth-child(n+3) {{ text-align: left; }}
code {{ background: var(--soft); padding: .05em .3em; border-radius: 3px; }}
""".strip()


def render_report(demo: DemoResult) -> str:
    """The whole document. Curves and decisions are those of the last repeat of each arm."""
    shown = [runs[-1] for name in ARMS if (runs := of_arm(demo.results, name))]
    return "\n".join(
        (
            "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
            "<meta name='viewport' content='width=device-width'>",
            f"<title>koordlet demo</title><style>{_STYLE}</style></head><body>",
            "<h1>koordlet demo: a service, a batch load, and what keeps them apart</h1>",
            _simulation_notice(demo),
            f"<p>{escape(settings_line(demo.settings))}</p>",
            _table(demo),
            _goals(demo),
            "<h2>Over time</h2>",
            *_arms(shown),
            *(_reasons(result) for result in shown if result.moments),
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


def _table(demo: DemoResult) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in header(demo))
    body = "".join(_row(row) for row in rows(demo))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _goals(demo: DemoResult) -> str:
    words = {
        True: "<b class='yes'>reached</b>",
        False: "<b class='no'>missed</b>",
        None: "<b>not judged</b>",
    }
    items = (f"<li>{words[goal.reached]}: {escape(goal_text(goal))}</li>" for goal in goals(demo))
    warning = disturbance(demo)
    note = f"<p class='no'>{escape(warning)}</p>" if warning else ""
    return f"<h2>Goals</h2><ul>{''.join(items)}</ul>{note}"


def _key(*swatches: tuple[str, str]) -> str:
    return (
        "<div class='key'>"
        + "".join(f"<span style='background:{c}'></span>{escape(t)}" for t, c in swatches)
        + "</div>"
    )


def _arms(shown: Sequence[ArmResult]) -> Iterable[str]:
    x_max = max((result.seconds for result in shown), default=1.0)
    latency_max = _SCALE * min((result.p999_ms for result in shown), default=1.0)
    for result in shown:
        # What was decided in the warm-up stands at the left edge; what comes after the end is
        # only the daemon putting things back.
        marks = [_mark(moment) for moment in result.moments if moment.t <= result.seconds]
        marked = [("a decision", _DECISION), ("an alarm (point at it)", _ALARM)] if marks else []
        slowest = [(r.t, r.latency_ms) for r in result.latencies if r.latency_ms > result.p99_ms]
        latency = Chart(
            "latency (ms)",
            x_max,
            latency_max,
            _latency_lines(result.latencies),
            dots=slowest,
            marks=marks,
        )
        cpu = Chart("CPU (cores)", x_max, result.capacity_cores, _cpu_lines(result), marks=marks)
        cut = sum(ms > latency_max for _, ms in slowest)
        yield f"<h2>{escape(ARMS[result.arm].title)}</h2>"
        yield _key(
            ("p50", _LS),
            ("p99", _BE),
            ("slowest 1 % of requests" + (f" ({cut} above the scale)" if cut else ""), _SLOW),
            *marked,
        )
        yield render(latency)
        yield _key(("LS", _LS), ("BE", _BE), ("rest of the node", _OTHER), *marked)
        yield render(cpu)


def _cpu_lines(result: ArmResult) -> tuple[Line, ...]:
    """Stacked: LS, BE on top of it, the rest on top of both."""
    return (
        Line(
            "whole node", _OTHER, [(s.t, max(s.node, s.ls + s.be)) for s in result.timeline], True
        ),
        Line("LS + BE", _BE, [(s.t, s.ls + s.be) for s in result.timeline], True),
        Line("LS", _LS, [(s.t, s.ls) for s in result.timeline], True),
    )


def _latency_lines(requests: Sequence[Request]) -> tuple[Line, ...]:
    buckets: dict[int, list[float]] = {}
    for request in requests:
        buckets.setdefault(int(request.t / _BUCKET_S), []).append(request.latency_ms)
    middles = [((index + 0.5) * _BUCKET_S, sorted(v)) for index, v in sorted(buckets.items())]
    return (
        Line("p99", _BE, [(t, percentile(values, 0.99)) for t, values in middles]),
        Line("p50", _LS, [(t, percentile(values, 0.50)) for t, values in middles]),
    )


def _mark(moment: Moment) -> Mark:
    is_alarm = not moment.resource
    style = "alarm" if is_alarm else "decision"
    return Mark(max(0.0, moment.t), _tooltip(moment), style, line=not is_alarm)


def _tooltip(moment: Moment) -> str:
    return f"{time_text(moment)}, {moment.owner}: {moment_text(moment)}\n{moment.why.text}"


def _reasons(result: ArmResult) -> str:
    entries = "".join(_reason(moment) for moment in three_that_mattered(result))
    during = sum(bool(moment.resource) and moment.t <= result.seconds for moment in result.moments)
    alarms = sum(not moment.resource for moment in result.moments)
    return (
        "<h2>The decisions that mattered most</h2>"
        f"<p>Of {during} decisions and {alarms} alarms in this arm.</p><dl>{entries}</dl>"
    )


def _reason(moment: Moment) -> str:
    inputs = "".join(_row(_cells(fact)) for fact in moment.why.inputs)
    table = f"<dd><table>{inputs}</table></dd>" if inputs else ""
    return (
        f"<dt>{time_text(moment)} <code>{escape(moment_text(moment))}</code></dt>"
        f"<dd>{escape(moment.why.text)}</dd>"
        f"<dd>Rule <code>{escape(moment.why.rule)}</code>, owner "
        f"<code>{escape(moment.owner)}</code>.</dd>{table}"
    )


def _cells(fact: Input) -> tuple[str, ...]:
    value = f"{fact.value:.4g}" if isinstance(fact.value, float) else str(fact.value)
    window = f"{fact.window_s:g} s window" if fact.window_s else ""
    age = f"{fact.age_s * 1000:.0f} ms old" if fact.age_s else ""
    return fact.name, value, fact.unit, window, age
