"""``koordlet query``."""

from __future__ import annotations

import argparse

from koordlet.admin.model import QueryView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit, complain
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError


def main(args: argparse.Namespace) -> int:
    match = {}
    for pair in args.match:
        label, equals, value = pair.partition("=")
        if not equals or not label:
            return complain(f"{pair!r} is not label=value", Exit.USAGE)
        match[label] = value
    try:
        window_s = parse_duration(args.window)
    except ProtocolError as error:
        return complain(f"--window {error}", Exit.USAGE)
    with connect(args) as client:
        answer = client.query(args.kind, match, window_s, args.aggregate)
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK


def lines(answer: QueryView) -> list[str]:
    if not answer.series:
        return [f"{answer.kind}: no samples in the last {output.span(answer.window_s)}"]
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
