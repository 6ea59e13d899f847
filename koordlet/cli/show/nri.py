"""``koordlet nri status``."""

from __future__ import annotations

import argparse

from koordlet.admin.model.doctor import CheckState
from koordlet.admin.model.nri import NriView
from koordlet.admin.nri_check import nri_check
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit


def status(args: argparse.Namespace) -> int:
    """1 while it should be connected and is not."""
    with connect(args) as client:
        view = client.nri()
    output.emit(view, args.output, lambda: lines(view))
    return Exit.OK if nri_check(view).state is CheckState.OK else Exit.BAD


def lines(view: NriView) -> list[str]:
    facts = [
        ("nri", connection(view)),
        ("socket", view.socket),
        ("found", f"{view.pods} pods, {view.containers} containers when it began"),
        ("events", ", ".join(f"{count} {name}" for name, count in view.events.items()) or "none"),
        ("changed", _changed(view)),
        ("pushing", _pushing(view)),
        ("answers", f"p50 {_ms(view.handler_p50_ms)}, p99 {_ms(view.handler_p99_ms)}"),
        ("errors", f"{view.errors}{f', the last: {view.last_error}' if view.last_error else ''}"),
        ("reconnects", str(view.reconnects)),
    ]
    check = nri_check(view)
    trouble = [("costs", check.cost), ("to do", check.remedy)] if check.remedy else []
    shown = [facts[0], *trouble, *(facts[1:] if view.enabled else facts[1:2])]
    return [
        line
        for name, text in shown
        for line in output.wrap(output.clean(text), f"{name:<10} ", " " * 11)
    ]


def connection(view: NriView) -> str:
    """In one line."""
    text = nri_check(view).why
    if not view.enabled:
        return text
    if view.since is not None:
        text += f"{' since' if view.connected else '; lost at'} {output.date(view.since)}"
    if view.next_attempt_s is not None:
        text += f"; next attempt in {output.span(view.next_attempt_s)}"
    return text


def _changed(view: NriView) -> str:
    return (
        f"{view.adjusted} containers when created, {view.updated} updates of kubelet, "
        f"{view.pushed} by updates of ours, {view.refused} operations refused"
    )


def _pushing(view: NriView) -> str:
    """Whether the runtime hears of changes before it asks."""
    if view.pushes:
        return "the runtime gets changes at once"
    return f"no: {view.no_push_why or 'not connected'}"


def _ms(value: float | None) -> str:
    return output.NOTHING if value is None else output.span(value / 1000)
