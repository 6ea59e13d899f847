"""``koordlet strategies``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from koordlet.admin.strategies import StrategiesView, StrategyRow, StrategyState
from koordlet.cli import output
from koordlet.cli.connect import connect
from koordlet.cli.main import Exit
from koordlet.decision.record import Record

_HEADER = ("NAME", "STATE", "SINCE", ">SETTINGS", ">RUNS", "LAST RUN", "WHY")
_ACTING = frozenset({StrategyState.ACTIVE, StrategyState.OBSERVING})


def main(args: argparse.Namespace) -> int:
    """1 when one of them fails."""
    with connect(args) as client:
        view = client.strategies(args.name)
    output.emit(view, args.output, lambda: lines(view, at_length=bool(args.name)))
    failed = any(row.state is StrategyState.FAILED for row in view.strategies)
    return Exit.BAD if failed else Exit.OK


def lines(view: StrategiesView, *, at_length: bool) -> list[str]:
    if at_length:
        return [line for row in view.strategies for line in _about(row)]
    rows = [
        (
            row.name,
            row.state.value,
            output.clock(row.since),
            str(row.settings),
            str(row.runs),
            output.clock(row.last_run),
            _why(row),
        )
        for row in view.strategies
    ]
    return output.columns(_HEADER, rows, output.terminal_width())


def _why(row: StrategyRow) -> str:
    """What it did last, or why it does nothing and what would change that."""
    if row.state in _ACTING and row.last_decision is not None:
        return _decision(row.last_decision)
    return f"{row.why}; to change that: {row.remedy}" if row.remedy else row.why


def _decision(last: Record) -> str:
    where = f"{last.cgroup or 'node'} {last.resource}".rstrip()
    value = f" = {last.wanted}" if last.wanted is not None else ""
    return f"{output.clock(last.time)} {where}{value} ({last.result}): {last.why.text}"


def _about(row: StrategyRow) -> Iterator[str]:
    since = f" since {output.date(row.since)}" if row.since is not None else ""
    last = row.last_run
    ran = f"{row.runs}, the last at {output.clock(last)}" if last is not None else "none"
    facts = {
        "": row.about,
        "state": f"{row.state.value}{since}",
        "why": row.why,
        "to change": row.remedy,
        "settings": f"{row.settings} wanted in force, originals of {row.changed} files kept",
        "runs": f"{ran}, {row.failures} failed" if row.failures else ran,
        "last": _decision(row.last_decision) if row.last_decision is not None else "",
    }
    yield f"{row.name} ({row.kind})"
    for name, text in facts.items():
        if text:
            yield from output.wrap(output.clean(text), f"  {name:<10} " if name else "  ", " " * 13)
    lacks = (
        f"{each.feature}: {'; '.join(filter(None, (each.why, each.cost, each.remedy)))}"
        for each in row.lacks
    )
    yield from output.section("What this kernel lacks", [output.clean(each) for each in lacks])
    yield from output.section("Notes", [output.clean(each) for each in row.notes])
    keys = [(each.key, each.value, each.origin, each.meaning) for each in row.arguments]
    if keys:
        header = ("KEY", "VALUE", "ORIGIN", "MEANING")
        yield from output.section("Arguments", output.columns(header, keys))
