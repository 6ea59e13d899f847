"""``koordlet explain``: decisions walked back."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

import msgspec

from koordlet.admin.model.events import ExplainView
from koordlet.cli import output
from koordlet.cli.main import Exit
from koordlet.cli.past import told
from koordlet.cli.show.why import ended
from koordlet.cli.show.why import paragraph as titled
from koordlet.decision.record import Record, text_of
from koordlet.decision.why import Input

if TYPE_CHECKING:
    from koordlet.diagnosis.why import Left


def main(args: argparse.Namespace) -> int:
    answer = told(
        args,
        lambda client: client.explain(args.target, args.limit),
        lambda left, time: _from_disk(left, args, time),
    )
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK


def _from_disk(left: Left, args: argparse.Namespace, time: float) -> ExplainView:
    from koordlet.diagnosis.explained import Known, explained, meanings_of
    from koordlet.diagnosis.why import last_known, names_left

    time = last_known(left, time)
    names = names_left(left, time)
    known = Known(names, meanings_of(names))
    found = explained(left.log, known, args.target, args.limit, time)
    return msgspec.structs.replace(found, notes=(*left.notes, *found.notes))


def lines(answer: ExplainView) -> list[str]:
    same = answer.matched in answer.target
    found = [output.clean(answer.target if same else f"{answer.target}: {answer.matched}")]
    for text in answer.notes:
        found += output.wrap(output.clean(text), "note: ", "      ")
    found += titled("Evictions of the last day", ended(answer.ended))
    rest = [each for each in answer.decisions if each not in answer.ended]
    if not answer.ended and not any(each.resource for each in rest):
        found += filter(None, output.wrap(output.clean(_nothing(answer))))
    for decision in rest:
        found += ["", *paragraph(decision)]
    return found


def _nothing(answer: ExplainView) -> str:
    """A line for whose files no decision is about; of an owner or the node notes are enough."""
    if answer.target == "node" or (answer.matched == answer.target and "/" not in answer.target):
        return "" if answer.decisions else "No decision about it is on record."
    what = "value of its own" if answer.decisions else "decision about it"
    above = f"`koordlet why {shlex.quote(answer.target)}` says what holds it from above"
    return f"No {what} is on record; {above}."


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
