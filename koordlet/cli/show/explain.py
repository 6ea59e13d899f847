"""``koordlet explain``: decisions walked back."""

from __future__ import annotations

import argparse

from koordlet.admin.model import ExplainView
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit
from koordlet.decision.record import Record, text_of
from koordlet.decision.why import Input


def main(args: argparse.Namespace) -> int:
    with connect(args) as client:
        answer = client.explain(args.target, args.limit)
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK


def lines(answer: ExplainView) -> list[str]:
    same = answer.matched in answer.target
    found = [output.clean(answer.target if same else f"{answer.target}: {answer.matched}")]
    if not answer.decisions:
        found.append("No decision about it is on record.")
    for decision in answer.decisions:
        found += ["", *paragraph(decision)]
    return found


def paragraph(decision: Record) -> list[str]:
    wake = f", woken by {decision.wake}" if decision.wake else ""
    found = [
        f"{output.date(decision.time)}  {headline(decision)}",
        *output.wrap(output.clean(decision.why.text), output.INDENT),
        f"  by {decision.owner}, rule {decision.why.rule}{wake}",
    ]
    if decision.detail:
        found += output.wrap(output.clean(decision.detail), output.INDENT)
    if decision.why.inputs:
        table = output.columns(
            ("INPUT", ">VALUE", "UNIT", ">WINDOW", ">AGE"), map(_input, decision.why.inputs)
        )
        found += [f"    {line}" for line in table]
    return found


def headline(decision: Record) -> str:
    if not decision.resource:
        return decision.result or decision.kind
    what = f"{decision.cgroup or '/'} {decision.resource}"
    change = f"{text_of(decision.previous)} -> {text_of(decision.wanted)}"
    return output.clean(f"{what}: {change} ({decision.result or decision.kind})")


def _input(fact: Input) -> tuple[str, ...]:
    value = fact.value
    text = (
        "unknown" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
    )
    window = output.span(fact.window_s) if fact.window_s else ""
    age = output.span(fact.age_s) if fact.window_s or fact.age_s else ""
    return fact.name, text, fact.unit, window, age
