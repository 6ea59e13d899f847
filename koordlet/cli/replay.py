"""``koordlet replay`` and ``koordlet tune``: past decisions made again, from the files alone."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import tomllib
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import msgspec

from koordlet.admin.client import NotReachableError
from koordlet.cli import output
from koordlet.cli.connect import connect, named_socket
from koordlet.cli.main import Exit, complain
from koordlet.cli.restore import usable
from koordlet.cli.times import parse_span
from koordlet.engine.parts import tsdb_path
from koordlet.engine.recording import inputs_path
from koordlet.protocol.errors import ProtocolError
from koordlet.replay.change import change_of, parsed, value_of
from koordlet.replay.trace import Trace
from koordlet.replay.tune import MOST_VALUES, Row, Tuned, tune
from koordlet.replay.verify import Verified, verify
from koordlet.replay.whatif import WhatIf, what_if
from koordlet.tsdb.files import DiskFiles

_NUMBER = r"-?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})(?::({_NUMBER}))?")
_STEPS = 10


def main(args: argparse.Namespace) -> int:
    """Exit.BAD where a decision differs from the record, or cannot be made again."""
    if args.verify and args.set:
        return complain("--verify is with the recorded settings: leave --set out", Exit.USAGE)
    try:
        span = parse_span(args.span, time.time())
        change = change_of([parsed(each) for each in args.set]) if args.set else None
    except ValueError as error:  # ProtocolError is one
        return _refused(error)
    trace = _trace(args)
    if trace is None:
        return Exit.BAD
    if change is None:
        verified = verify(trace, *span)
        output.emit(_with_verdict(verified), args.output, lambda: verify_lines(verified))
        if not verified.turns:
            return _nothing(trace, args.span)
        return Exit.OK if verified.ok else Exit.BAD
    try:
        found = what_if(trace, change, *span, most=args.limit)
    except ProtocolError as error:
        return _refused(error)
    output.emit(found, args.output, lambda: what_if_lines(found))
    return Exit.OK if found.turns else _nothing(trace, args.span)


def tune_main(args: argparse.Namespace) -> int:
    try:
        span = parse_span(args.span, time.time())
        values = _values(args.values) if args.values else []
    except ValueError as error:
        return _refused(error)
    trace = _trace(args)
    if trace is None:
        return Exit.BAD
    try:
        found = tune(trace, args.parameter, values, *span)
    except ProtocolError as error:
        return _refused(error)
    output.emit(found, args.output, lambda: tune_lines(found))
    return Exit.OK if found.turns else _nothing(trace, args.span)


def _refused(error: ValueError) -> int:
    problems = error.problems if isinstance(error, ProtocolError) else (error,)
    for each in problems:
        complain(each, Exit.USAGE)
    return Exit.USAGE


def _trace(args: argparse.Namespace) -> Trace | None:
    """None: said why."""
    output.log_to_stderr()
    settings = usable(args.config)
    if settings is None:
        return None
    config = settings.config
    state_dir, store = args.state_dir, ""
    if not state_dir:
        state_dir, store = _of_daemon(args)
    if state_dir:
        paths = msgspec.structs.replace(config.paths, state_dir=state_dir)
        tsdb = msgspec.structs.replace(config.tsdb, path=store)
        config = msgspec.structs.replace(config, paths=paths, tsdb=tsdb)
    where = inputs_path(config)
    try:
        os.scandir(where).close()
    except FileNotFoundError:
        complain(
            f"{where}: there is no inputs log; the daemon writes one where inputs.enable is true. "
            "Name the state directory of another one with --state-dir, or its --config",
            Exit.BAD,
        )
        return None
    except OSError as error:
        complain(f"{where} cannot be read: {error.strerror}", Exit.BAD)
        return None
    progress = _progress if sys.stderr.isatty() else _silent
    return Trace(DiskFiles(where), where, tsdb_path(config), progress)


def _of_daemon(args: argparse.Namespace) -> tuple[str, str]:
    """The state directory and the store of the daemon on the socket; empty where none answers, and
    none was named. Raises NotReachableError."""
    try:
        with connect(args) as client:
            values = {each.key: each.value for each in client.config().values}
            store = client.status().tsdb.directory
    except NotReachableError:
        if named_socket(args):
            raise
        return "", ""
    state_dir = values.get("paths.state_dir")
    return (tomllib.loads(f"value = {state_dir}")["value"], store) if state_dir else ("", "")


def _progress(time_s: float) -> None:
    """On one line, which what is printed next takes over."""
    print(f"\rreplaying {output.clock(time_s)}\r", end="", file=sys.stderr, flush=True)


def _silent(time_s: float) -> None:
    """Not into a log."""


def _nothing(trace: Trace, span: str) -> Exit:
    extent = trace.extent()
    if extent is None:
        return complain("nothing is recorded yet: a frame is written each minute", Exit.BAD)
    first, last = map(output.date, extent)
    return complain(f"nothing is recorded in {span}; the log goes from {first} to {last}", Exit.BAD)


def _values(text: str) -> list[Any]:
    """``50,60,70``, or ``50..90:10`` for each tenth from 50 to 90. Raises ValueError."""
    match = _RANGE.fullmatch(text)
    if match is None:
        return [value_of(each) for each in text.split(",") if each.strip()]
    # As they are written: in binary 0.1 + 2 * 0.1 is not 0.3, and 0.7 would be beyond the end.
    low, high = Decimal(match[1]), Decimal(match[2])
    number = float if "." in text.replace("..", "") else int
    step = Decimal(match[3]) if match[3] else (high - low) / _STEPS
    if number is int and not match[3]:
        step = max(step // 1, Decimal(1))
    if step <= 0 or high < low or (high - low) / step >= MOST_VALUES:
        raise ValueError(f"{text!r}: write FROM..TO:STEP for at most {MOST_VALUES} values")
    return [number(low + at * step) for at in range(int((high - low) / step) + 1)]


# Tables


def _with_verdict(found: Verified) -> dict[str, Any]:
    return {"ok": found.ok, **msgspec.to_builtins(found)}


def verify_lines(found: Verified) -> list[str]:
    if not found.turns:
        return _gap_lines(found)
    unequal = sum(found.unequal.values())
    lines = [_span_line(found.turns, found.first, found.last)]
    if unequal:
        parts = ", ".join(f"{name} {count:,}" for name, count in sorted(found.unequal.items()))
        lines.append(f"{unequal:,} of {found.decisions:,} decisions differ: {parts}")
        rows = [(output.date(d.time), d.wake, d.part, d.why) for d in found.differences]
        header = ("TIME", "WAKE", "PART", "WHICH INPUT IS MISSING")
        lines += ["", *output.columns(header, rows, output.terminal_width())]
        if len(rows) < unequal:
            lines.append(f"and {unequal - len(rows):,} more")
    else:
        lines.append(f"all {found.decisions:,} decisions are the same")
    if found.skipped:
        lines.append(f"{found.skipped:,} could not be made again:")
        lines += [f"  {name}: {why}" for name, why in sorted(found.unplayed.items())]
    return [*lines, *_gap_lines(found)]


def what_if_lines(found: WhatIf) -> list[str]:
    if not found.turns:
        return _gap_lines(found)
    counts = [
        (
            each.part,
            f"{each.decisions:,}",
            f"{each.differ:,}",
            output.ratio(each.differ / each.decisions),
            f"{each.unknown:,}",
        )
        for each in found.parts
        if each.differ or each.unknown
    ]
    lines = [_span_line(found.turns, found.first, found.last)]
    if counts:
        header = ("PART", ">DECISIONS", ">DIFFER", ">SHARE", ">UNSURE")
        lines += ["", *output.columns(header, counts), ""]
    same = [each for each in found.parts if not each.differ and not each.unknown]
    made = sum(each.decisions for each in same)
    lines.append(
        f"the same: all {made:,} decisions of {'the other ' if counts else ''}"
        f"{len(same)} strategies and hooks"
    )
    if found.differences:
        lines += ["", "The first that differ:"]
        for each in found.differences:
            lines.append(f"{output.date(each.time)}  {each.part}  ({each.wake})")
            lines += [f"  - {line}" for line in each.recorded]
            lines += [f"  + {line}" for line in each.instead]
    is_unsure = any(each.unknown for each in found.parts)
    return [*lines, "", *_doubts(found, is_unsure=is_unsure), *_gap_lines(found)]


def _doubts(found: WhatIf | Tuned, *, is_unsure: bool) -> list[str]:
    """What keeps the figures from being the truth."""
    lines = output.wrap(found.note)
    if is_unsure:
        text = "UNSURE: it asked for a value that the recorded decisions did not look at just then."
        lines += output.wrap(text)
    if found.unequal:
        text = (
            f"{found.unequal:,} decisions are not what was recorded, even with the same settings: "
            "`koordlet replay --verify` says why."
        )
        lines += output.wrap(text)
    return lines + [f"{name}: {why}" for name, why in sorted(found.unplayed.items())]


def tune_lines(found: Tuned) -> list[str]:
    if not found.turns:
        return _gap_lines(found)
    resources = list(dict.fromkeys(f.resource for row in found.rows for f in row.figures))
    spread = (*(f">{r} MEAN" for r in resources), *(f">{r} MIN..MAX" for r in resources))
    header = ("VALUE", ">DECISIONS", ">DIFFER", ">UNSURE", *_paired(spread, len(resources)))
    rows = (_tune_row(row, resources) for row in found.rows)
    lines = [
        f"{found.part}: {found.key}, recorded with {_text(found.recorded)}",
        _span_line(found.turns, found.first, found.last),
        "",
        *output.columns(header, rows),
        "",
        *_doubts(found, is_unsure=any(row.unknown for row in found.rows)),
    ]
    return [*lines, *_gap_lines(found)]


def _paired(names: tuple[str, ...], size: int) -> Iterable[str]:
    return (name for pair in zip(names[:size], names[size:], strict=True) for name in pair)


def _tune_row(row: Row, resources: list[str]) -> tuple[str, ...]:
    figures = {each.resource: each for each in row.figures}
    cells = [_text(row.value) + (" (recorded)" if row.is_recorded else "")]
    cells += [f"{row.decisions:,}", f"{row.differ:,}", f"{row.unknown:,}"]
    for resource in resources:
        figure = figures.get(resource)
        if figure is None:
            cells += ["", ""]
        else:
            cells += [f"{figure.mean:,.1f}", f"{figure.low:,g}..{figure.high:,g}"]
    return tuple(cells)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "no value" if value is None else str(value)


def _gap_lines(found: Verified | WhatIf | Tuned) -> list[str]:
    return output.section("Missing", [*found.gaps, *found.outside])


def _span_line(turns: int, first: float | None, last: float | None) -> str:
    assert first is not None and last is not None
    return f"{turns:,} turns, {output.date(first)} to {output.clock(last)}"
