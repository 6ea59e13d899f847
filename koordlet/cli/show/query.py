"""``koordlet query``."""

from __future__ import annotations

import argparse
import time

from koordlet.admin.ranges import QueryView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit, complain
from koordlet.cli.past import opened, range_of
from koordlet.cli.show import ranges
from koordlet.cli.times import TimeRange
from koordlet.drawing.clock import nice_step, stretch
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError

DEFAULT_WINDOW = "5m"
_OVER_TIME = frozenset({"csv", "plot"})
_STEPS = 60
"""About how many steps there are where --step is not given; a plot has one a column."""


def main(args: argparse.Namespace) -> int:
    if args.list:
        return _list(args.kind)
    if not args.kind:
        return complain("name a kind of series; `koordlet query --list` has them", Exit.USAGE)
    match = {}
    for pair in args.match:
        label, equals, value = pair.partition("=")
        if not equals or not label:
            return complain(f"{pair!r} is not label=value", Exit.USAGE)
        match[label] = value
    try:
        asked = _asked(args)
    except ValueError as error:
        return complain(error, Exit.USAGE)
    if args.step is not None or args.output in _OVER_TIME:
        return _over_time(args, match, asked)
    return _as_one(args, match, asked)


def _list(part: str) -> int:
    from koordlet.collectors import CATALOGUE

    rows = [
        (metric.kind, metric.unit, ", ".join(metric.labels), metric.help)
        for kind, metric in sorted(CATALOGUE.items())
        if part in kind
    ]
    if not rows:
        return complain(f"no kind of series has {part!r} in its name", Exit.BAD)
    for line in output.columns(("KIND", "UNIT", "LABELS", "WHAT"), rows, output.terminal_width()):
        print(line)
    return Exit.OK


def _asked(args: argparse.Namespace) -> TimeRange:
    """Raises ValueError."""
    if args.start is None:
        if args.end is not None:
            raise ValueError("--to goes with --from")
        try:
            window_s = parse_duration(args.window or DEFAULT_WINDOW)
        except ProtocolError as error:
            raise ValueError(f"--window {error}") from None
        now = time.time()
        return TimeRange(now - window_s, now)
    if args.window is not None:
        raise ValueError("--window and --from say two things about the same")
    return range_of(args)


def _as_one(args: argparse.Namespace, match: dict[str, str], asked: TimeRange) -> int:
    window_s = asked.end - asked.start
    if args.start is None and not args.state_dir:
        with connect(args) as client:  # until now, by the daemon's clock
            answer = client.query(args.kind, match, window_s, args.aggregate)
        output.emit(answer, args.output, lambda: lines(answer))
        return Exit.OK
    with opened(args) as source:
        answer = source.query(args.kind, match, window_s, args.aggregate, asked.end)
    output.emit(answer, args.output, lambda: lines(answer, stretch(*asked)))
    return Exit.OK


def _over_time(args: argparse.Namespace, match: dict[str, str], asked: TimeRange) -> int:
    width = output.terminal_width() or ranges.WIDTH
    step_s = args.step
    if step_s is None:
        most = ranges.columns_for(width) if args.output == "plot" else _STEPS
        step_s = max(nice_step(asked.end - asked.start, most), _rhythm_s(args.kind))
    from koordlet.diagnosis.who import everybody

    with opened(args) as source:
        answer = source.query_range(args.kind, match, *asked, step_s, args.aggregate)
        has_pods = any("pod_uid" in each.labels for each in answer.series)
        is_for_people = args.output in ("table", "plot")
        names = everybody(source, *asked) if has_pods and is_for_people else ranges.NO_NAMES
    forms = {
        "table": lambda: ranges.table(answer, width, names),
        "csv": lambda: ranges.csv(answer),
        "plot": lambda: ranges.plots(answer, width, names),
    }
    form = "table" if args.output in forms else args.output
    output.emit(answer, form, forms.get(args.output, list))
    return Exit.OK


def _rhythm_s(kind: str) -> float:
    """How often a collector measures it by default: in shorter steps there would be gaps."""
    from koordlet.collectors import COLLECTORS

    return max(
        (
            part.options.interval_seconds
            for part in COLLECTORS.values()
            if any(metric.kind == kind for metric in part.metrics)
        ),
        default=1.0,
    )


def lines(answer: QueryView, when: str = "") -> list[str]:
    if not answer.series:
        return [f"{answer.kind}: no samples {_when(answer, when)}"]
    names = list(answer.series[0].labels)
    return output.columns(
        (*map(str.upper, names), f">{answer.aggregate.upper()}", "UNIT", ">SAMPLES", ">AGE"),
        (
            (
                *(series.labels.get(name, "") for name in names),
                f"{series.value:.6g}",
                answer.unit,
                str(series.count),
                output.span(series.age_s),
            )
            for series in answer.series
        ),
    )


def _when(answer: QueryView, when: str) -> str:
    return f"from {when}" if when else f"in the last {output.span(answer.window_s)}"
