"""Tables of the documentation, made from the records in ``bench/records``.

A page has a table between ``<!-- records: NAME -->`` and ``<!-- end of records -->``; ``make docs``
writes it anew, and a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from bench.effects.guest_means import ARMS as ARMS_OF_GUESTS
from bench.effects.means import ARMS, SHAPES
from bench.effects.whole import PAIRS, RUNGS, arm_of
from bench.figures import Figure, number
from bench.recording import Record, records

_PLACE = re.compile(r"(<!-- records: ([^>]+?) -->\n).*?(<!-- end of records -->)", re.DOTALL)
PAGES_WITH_RECORDS = ("README.md", "docs/benchmarks.md", "docs/concepts/cpu-spread.md")
_OF_KERNEL = re.compile(
    rf"(?P<shape>{'|'.join(SHAPES)})-(?P<version>\d+(\.\d+)+)(-(?P<cpus>\d+)-cpus)?"
)
_NOT_YET = "not recorded yet"
_FIRST = 3
TOPICS: Mapping[str, Sequence[str]] = {
    "chosen": ("chosen", "chosen-redis", "chosen-2-threads", "chosen-4-threads-short"),
    "effects": (
        *("cpu-burst", "cpu-burst-postgres", "put-off", "network", "blkio"),
        *("memory", "memory-pages", "memory-evict", "cpu-evict"),
    ),
    "blame": ("interference", "bpf"),
    "daemon": (
        *("daemon", "tick", "collect", "tsdb", "alarm", "inputs", "page", "explain", "hooks"),
        *("devices", "prediction", "member", "day"),
    ),
    "runtimes": ("nri", "proxy"),
    "central": ("scheduler", "engine", "descheduler", "manager", "admission", "recommend"),
}
"""Benches by the table that shows them."""


def filled(page: str) -> str:
    """The page with its tables as the records have them. Raises KeyError for an unknown table."""
    known = records()
    return _PLACE.sub(lambda found: f"{found[1]}\n{_TABLES[found[2]](known)}\n{found[3]}", page)


def _table(head: Sequence[str], rows: Iterator[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _with_interval(figure: Figure, digits: int = 2) -> str:
    """``1.03 [0.98, 1.09]``"""
    if figure.low is None or figure.high is None:
        return number(figure.value)
    value, low, high = (f"{each:.{digits}f}" for each in (figure.value, figure.low, figure.high))
    return f"{value} [{low}, {high}]"


def _judged(figure: Figure) -> str:
    verdict = figure.verdict
    text = _with_interval(figure)
    return text if verdict is None else f"{text} {verdict}"


def _value(record: Record, name: str) -> str:
    return number(record.figure(name).value)


def _services(known: Mapping[str, Record]) -> str:
    """A row a pair: p99 as a multiple of the service alone, at each rung."""
    rungs = [arm_of(percent) for percent in RUNGS]
    head = (
        *("Service beside best effort", "unmanaged", *(f"koordlet, {p / 100:.2f}" for p in RUNGS)),
        *("goal", "node CPU", "BE keeps", "koordlet without BE"),
    )

    def rows() -> Iterator[Sequence[str]]:
        for name, pair in PAIRS.items():
            record = known.get(name)
            if record is None:
                yield (pair.title, _NOT_YET, *[""] * (len(head) - 2))
                continue
            p99 = [record.figure(f"p99 {arm} / alone") for arm in rungs]
            kept = [record.figure(f"{pair.units} {arm} / unmanaged") for arm in rungs]
            cpu = [record.figure(f"node CPU {arm}") for arm in rungs]
            yield (
                pair.title,
                _with_interval(record.figure("p99 unmanaged / alone")),
                *map(_judged, p99),
                f"{pair.goal:.2f}",
                ", ".join(f"{each.value:.0f} %" for each in cpu),
                ", ".join(f"{each.value:.2f} x" for each in kept),
                _judged(record.figure("p99 with the daemon / alone")),
            )

    return _table(head, rows())


def _short(known: Mapping[str, Record]) -> str:
    """The pairs that were measured, at the middle rung."""
    arm = arm_of(RUNGS[1])
    head = ("p99 latency, as a multiple of the service alone", "without koordlet", "with koordlet",
            "node CPU", "best effort keeps", "goal")  # fmt: skip

    def rows() -> Iterator[Sequence[str]]:
        for name, pair in PAIRS.items():
            if (record := known.get(name)) is not None:
                p99 = record.figure(f"p99 {arm} / alone")
                yield (
                    pair.title,
                    _with_interval(record.figure("p99 unmanaged / alone")),
                    f"**{p99.value:.2f}** [{p99.low:.2f}, {p99.high:.2f}]",
                    f"{record.figure(f'node CPU {arm}').value:.0f} %",
                    f"{record.figure(f'{pair.units} {arm} / unmanaged').value:.2f} x",
                    f"{pair.goal:.2f}: {p99.verdict}",
                )
        if (record := known.get("demo")) is not None:
            p99 = record.figure("p99 managed / alone")
            yield (
                "the demo's service",
                _with_interval(record.figure("p99 unmanaged / alone")),
                f"**{p99.value:.2f}** [{p99.low:.2f}, {p99.high:.2f}]",
                f"{100 * record.figure('node CPU utilisation').value:.0f} %",
                "",
                f"{p99.goal:.2f}: {p99.verdict}",
            )

    return _table(head, rows())


def _waits(known: Mapping[str, Record]) -> str:
    """A row a pair: milliseconds a second that its tasks waited for a CPU."""
    arms = ("alone", "daemon", "unmanaged", *map(arm_of, RUNGS))
    head = ("Service", *arms, f"of which behind own, BE, others ({arms[-1]})")

    def rows() -> Iterator[Sequence[str]]:
        for name, pair in PAIRS.items():
            if (record := known.get(name)) is not None:
                behind = [
                    _value(record, f"waits behind {whose}, {arms[-1]}")
                    for whose in ("own", "BE", "others")
                ]
                waited = [_value(record, f"waits for a CPU, {arm}") for arm in arms]
                yield (pair.title, *waited, ", ".join(behind))

    return _table(head, rows())


def _means(known: Mapping[str, Record]) -> str:
    """A row a means: for each shape of the service p99 / alone, waits and what BE gets."""
    there = {
        name: f"{shape.threads} x {shape.work_ms:g} ms"
        for name, shape in SHAPES.items()
        if name in known
    }
    head = ["Best effort is held by"]
    for shape in there.values():
        head += [f"{shape}: p99 / alone", "waits", "BE, cores"]

    def rows() -> Iterator[Sequence[str]]:
        alone = ["nothing: it is not there"]
        for name in there:
            alone += ["1", _value(known[name], "waits for a CPU, alone"), "-"]
        yield alone
        for arm in ARMS:
            row = [arm]
            for name in there:
                record = known[name]
                if f"BE, {arm}" not in {each.name for each in record.figures}:
                    row += [_NOT_YET, "", ""]
                    continue
                row += [
                    _with_interval(record.figure(f"p99 {arm} / alone")),
                    _value(record, f"waits for a CPU, {arm}"),
                    f"{record.figure(f'BE, {arm}').value:.2f}",
                ]
            yield row

    return _table(head, rows())


def _of_kernel(name: str) -> tuple[tuple[int, ...], str, int] | None:
    """Version of the kernel, shape of the service and CPUs of a record that a guest made."""
    found = _OF_KERNEL.fullmatch(name)
    if found is None:
        return None
    version = tuple(int(part) for part in found["version"].split("."))
    return version, found["shape"], int(found["cpus"] or 2)


def _by_kernel(
    known: Mapping[str, Record], figure: str, arms: Sequence[str], digits: int = 2
) -> str:
    """A row a kernel and shape of the service, a column an arm; ``figure``: with a place for it."""
    found = sorted((of, name) for name in known if (of := _of_kernel(name)) is not None)

    def rows() -> Iterator[Sequence[str]]:
        for (version, shape, cpus), name in found:
            record, (threads, work_ms) = known[name], SHAPES[shape]
            cells = [_with_interval(record.figure(figure.format(arm)), digits) for arm in arms]
            linux = ".".join(map(str, version))
            slices = len(record.slices) // (1 + len(ARMS_OF_GUESTS))
            yield (linux, str(cpus), f"{threads} x {work_ms:g} ms", *cells, str(slices))

    return _table(("Linux", "CPUs", "Service", *arms, "slices of each"), rows())


def _demo(known: Mapping[str, Record]) -> str:
    """The figures of the demo with goals, and its waits."""
    record = known.get("demo")
    if record is None:
        return f"{_NOT_YET}\n"

    shown = (e for e in record.figures if e.in_slices or e.name.startswith("waits for"))
    return _table(("Figure", "measured", "goal", "verdict"), map(_row, shown))


def _of(topic: Sequence[str]) -> Callable[[Mapping[str, Record]], str]:
    """A row a figure that has a goal; of a bench without goals its first ones."""

    def made(known: Mapping[str, Record]) -> str:
        def rows() -> Iterator[Sequence[str]]:
            for name in topic:
                record = known.get(name)
                if record is None:
                    yield f"`{name}`", _NOT_YET, "", "", ""
                    continue
                judged = [each for each in record.figures if each.goal is not None]
                for each in judged or record.figures[:_FIRST]:
                    yield f"`{name}`", *_row(each)

        return _table(("Bench", "Figure", "measured", "goal", "verdict"), rows())

    return made


def _row(figure: Figure) -> tuple[str, str, str, str]:
    """Name, measured, goal, verdict."""
    unit = "" if figure.unit in ("", "x") else f" {figure.unit}"
    goal = ""
    if figure.goal is not None:
        goal = f"{'at most' if figure.at_most else 'at least'} {number(figure.goal)}{unit}"
    times = " x" if figure.unit == "x" and not figure.in_slices else ""
    verdict = figure.verdict or ""
    return figure.name, f"{_with_interval(figure)}{times}{unit}", goal, str(verdict)


def _machines(known: Mapping[str, Record]) -> str:
    """Where, when and how each record was made."""

    def rows() -> Iterator[Sequence[str]]:
        for name, record in known.items():
            machine = record.machine
            model = "emulated" if record.guest else machine.model
            where = f"{machine.cpus} CPUs ({model}), Linux {machine.kernel}"
            load = f"{record.load_before[0]:.1f}, {record.load_after[0]:.1f}"
            yield f"`{name}`", f"`{record.command}`", record.date, record.commit, where, load

    head = ("Record", "Command", "Day", "Commit", "Machine", "Load before, after")
    return _table(head, rows())


_TABLES: Mapping[str, Callable[[Mapping[str, Record]], str]] = {
    "services": _services,
    "short": _short,
    "waits": _waits,
    "means": _means,
    "kernels: p99": lambda known: _by_kernel(known, "p99 {} / alone", tuple(ARMS_OF_GUESTS)),
    "kernels: waits": lambda known: _by_kernel(
        known, "waits for a CPU, {}", ("alone", *ARMS_OF_GUESTS), digits=0
    ),
    "kernels: BE": lambda known: _by_kernel(known, "BE, {}", tuple(ARMS_OF_GUESTS)),
    "demo": _demo,
    **{name: _of(topic) for name, topic in TOPICS.items()},
    "machines": _machines,
}
