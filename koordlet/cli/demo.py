"""``koordlet demo``: run the arms, show the table, the goals and the reasons."""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from koordlet.cli import output
from koordlet.cli.main import Exit, complain, warn
from koordlet.cli.show.processes import SystemProcesses
from koordlet.decision.why import Input
from koordlet.demo.arms import Progress
from koordlet.demo.model import ArmResult, ArmSpec, DemoResult, Goal, Moment, Settings
from koordlet.demo.plan import Wish, problem
from koordlet.demo.report.html import render_report
from koordlet.demo.report.poster import poster
from koordlet.demo.run import NotRootError, run_demo
from koordlet.demo.stage import PARENT
from koordlet.demo.stats import disturbance, goals, of_arm, three_that_mattered
from koordlet.demo.table import (
    goal_text,
    header,
    moment_text,
    rows,
    settings_line,
    time_text,
)
from koordlet.demo.workdir import BusyError
from koordlet.demo.workloads import ArmFailedError
from koordlet.drawing.palette import DARK, LIGHT

_NOT_ROOT = (
    "the demo makes cgroups and changes their limits, which needs root: run it with sudo, or "
    "`koordlet demo --simulate` to see the same arms on a simulated kernel"
)
_SIMULATED = "SIMULATION: figures of the fake kernel and its scheduling model, not of this machine."
_WIDTH = 96
_OTHERS_NAMED = 3


class Document(msgspec.Struct, frozen=True):
    """What ``-o json`` prints. ``warning`` is empty when nothing disturbed the arms;
    ``mattered`` are of the managed arm."""

    settings: Settings
    goals: tuple[Goal, ...]
    warning: str
    mattered: tuple[Moment, ...]
    report: str
    results: tuple[ArmResult, ...]


def main(args: argparse.Namespace) -> int:
    arms = tuple(filter(None, args.arms.split(",")))
    wish = Wish(args.seconds, args.slices, arms, args.rate, args.seed)
    report = Path(args.report)
    pictures = Path(args.svg) if args.svg else None
    wrong = problem(wish) or _cannot_write(report) or _cannot_hold(pictures)
    if wrong:
        return complain(wrong, Exit.USAGE)
    try:
        others = SystemProcesses()
        others.biggest(())
        with _progress() as progress:
            demo = _run(wish, progress, simulated=args.simulate)
        report.write_text(render_report(demo))
        if pictures is not None:
            for name, palette in (("light", LIGHT), ("dark", DARK)):
                (pictures / f"demo-{name}.svg").write_text(poster(demo, palette))
    except NotRootError:
        return complain(_NOT_ROOT, Exit.BAD)
    except (BusyError, ArmFailedError) as error:
        return complain(error, Exit.BAD)
    except OSError as error:
        return complain(f"the demo cannot run here: {error}", Exit.BAD)
    document = _document(demo, report, _disturbed(demo, others), latencies=args.latencies)
    output.emit(document, args.output, lambda: _lines(demo, document))
    return Exit.OK


def _run(wish: Wish, progress: Progress, *, simulated: bool) -> DemoResult:
    if not simulated:
        return run_demo(wish, progress, warn)
    from koordlet.demo.simulate import simulate

    return simulate(wish, progress)


def _cannot_write(report: Path) -> str:
    """Known before the arms run, not after."""
    target = report if report.exists() else report.absolute().parent
    if report.is_dir() or not os.access(target, os.W_OK):
        return f"--report: {report} cannot be written"
    return ""


def _cannot_hold(pictures: Path | None) -> str:
    if pictures is None or (pictures.is_dir() and os.access(pictures, os.W_OK)):
        return ""
    return f"--svg: {pictures} is no directory that can be written"


def _disturbed(demo: DemoResult, others: SystemProcesses) -> str:
    """What else used the machine, by name as far as it still runs."""
    warning = disturbance(demo)
    if not warning:
        return ""
    biggest = others.biggest((PARENT,), _OTHERS_NAMED + 1)
    named = [
        f"{output.clean(each.name)} (pid {each.pid}) {each.cores:.2f}"
        for each in biggest
        if each.pid != os.getpid()
    ]
    return (
        f"{warning} The biggest of it, in cores: {', '.join(named[:_OTHERS_NAMED])}."
        if named
        else warning
    )


def _document(demo: DemoResult, report: Path, warning: str, *, latencies: bool) -> Document:
    def shown(result: ArmResult) -> ArmResult:
        """Each request stands in its slice and in the whole."""
        if latencies:
            return result
        slices = tuple(msgspec.structs.replace(s, requests=()) for s in result.slices)
        return msgspec.structs.replace(result, latencies=(), slices=slices)

    return Document(
        settings=demo.settings,
        goals=goals(demo),
        warning=warning,
        mattered=tuple(_mattered(demo)),
        report=str(report.absolute()),
        results=tuple(shown(result) for result in demo.results),
    )


def _mattered(demo: DemoResult) -> list[Moment]:
    managed = of_arm(demo, "managed")
    return three_that_mattered(managed) if managed is not None else []


def _lines(demo: DemoResult, document: Document) -> Iterator[str]:
    if demo.settings.simulated:
        yield from ("", _SIMULATED)
    yield from ("", *textwrap.wrap(settings_line(demo.settings), _WIDTH), "")
    yield from _table(demo)
    yield from output.section("Goals", [_verdict(goal) for goal in document.goals])
    if document.warning:
        yield from ("", *textwrap.wrap(document.warning, _WIDTH))
    for moment in document.mattered:
        if moment is document.mattered[0]:
            yield from ("", "The decisions that mattered most:")
        yield from _decision(moment)
    yield from ("", f"Report: {document.report}")


def _table(demo: DemoResult) -> list[str]:
    """Figures to the right, so that they can be compared."""
    table = [header(demo), *rows(demo)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if index else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in table
    ]


def _verdict(goal: Goal) -> str:
    word = "-" if goal.verdict is None else goal.verdict
    return f"{word:9}  {goal_text(goal)}"


def _decision(moment: Moment) -> Iterator[str]:
    yield ""
    yield f"  {time_text(moment)}  {moment_text(moment)}"
    yield from _wrapped(moment.why.text)
    yield from _wrapped(f"by {moment.owner}, rule {moment.why.rule}")
    if moment.why.inputs:
        yield from _wrapped("looked at: " + "; ".join(map(_input, moment.why.inputs)))


def _wrapped(text: str) -> list[str]:
    indent = " " * 4
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)


def _input(fact: Input) -> str:
    value = f"{fact.value:.4g}" if isinstance(fact.value, float) else str(fact.value)
    return f"{fact.name} {value} {fact.unit}".rstrip()


@contextmanager
def _progress() -> Iterator[Progress]:
    """On stderr: a bar with the time left, or a line a slice where that is no terminal."""
    if not sys.stderr.isatty():
        yield _plain()
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}"))
    with Bars(*columns, console=Console(stderr=True)) as bars:
        task = bars.add_task("starting", total=1.0, left="")

        def show(arm: ArmSpec, done_s: float, whole_s: float) -> None:
            bars.update(
                task,
                description=arm.title,
                completed=done_s / whole_s,
                left=_left(done_s, whole_s),
            )

        yield show


def _left(done_s: float, whole_s: float) -> str:
    return f"{max(0.0, whole_s - done_s):.0f} s left"


def _plain() -> Progress:
    """A line whenever another arm begins."""
    before = ""

    def show(arm: ArmSpec, done_s: float, whole_s: float) -> None:
        nonlocal before
        if done_s < whole_s and arm.name != before:
            print(f"{arm.title}: {_left(done_s, whole_s)}", file=sys.stderr)
            before = arm.name

    return show
