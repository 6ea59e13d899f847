"""``koordlet status``."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable, Iterable

from koordlet.admin.client import NoAccessError, NotReachableError
from koordlet.admin.cluster import ClusterView
from koordlet.admin.model.status import CollectorView, StatusView
from koordlet.admin.verdict import waits
from koordlet.cli import output
from koordlet.cli.arguments import DEFAULT_PROXY_STATUS_SOCKET
from koordlet.cli.connect import connect, named_socket
from koordlet.cli.main import Exit
from koordlet.cli.show import nri, pauses
from koordlet.cli.show.why import ended

Row = tuple[str, ...]


_MORE = " ..."
LINES = 12
"""Lines of the answer by default."""
_MOST = 2
"""Most of those that were ended, and of those that wait, that are shown by default."""
_VERDICT_LINES, _TEXT_LINES = 3, {"waiting": 3}
"""Most lines of the terminal by default, of another text one: so there is room for each of them."""


def main(args: argparse.Namespace) -> int:
    try:
        with connect(args) as client:
            status = client.status()
    except NoAccessError:
        raise
    except NotReachableError as error:
        if named_socket(args):
            raise
        config = f" --config {shlex.quote(args.config)}" if args.config else ""
        raise NotReachableError(f"{error} What it has left: `koordlet why{config}`.") from None
    output.emit(status, args.output, lambda: lines(status, verbose=args.verbose))
    return Exit.OK


def lines(status: StatusView, *, verbose: bool) -> list[str]:
    """The verdict; who was ended, who waits and because of whom, what is armed; then how koordlet
    is. ``verbose``: all of that, and a table for each part that has something to say, whose last
    column wraps."""
    found = output.wrap(output.clean(status.verdict.line))
    first = [*_ended(status), *_waiting(status), *_armed(status)]
    if not verbose:
        found = _cut(found, _VERDICT_LINES)
        about = ""
        for name, text in (*first, *_short(status)):
            about = name or about
            found += _cut(_wrapped([(name, text)]), _TEXT_LINES.get(about, 1))
        return [
            *found[: LINES - 1],
            "more: koordlet status --verbose; what is wrong: koordlet why",
        ]
    terminal = output.terminal_width()
    width = None if terminal is None else terminal - len(output.INDENT)
    found += _wrapped((*first, *_facts(status)))
    for title, header, rows_of in _TABLES:
        rows = list(rows_of(status))
        if rows:
            found += output.section(title, output.columns(header, rows, width))
    return found


def _wrapped(facts: Iterable[tuple[str, str]]) -> list[str]:
    return [
        line
        for name, text in facts
        for line in output.wrap(output.clean(text), f"{name:<10} ", " " * 11)
    ]


def _cut(lines: list[str], most: int) -> list[str]:
    if len(lines) <= most:
        return lines
    width = output.terminal_width() or len(lines[most - 1])
    return [*lines[: most - 1], f"{lines[most - 1][: width - len(_MORE)]}{_MORE}"]


def _ended(status: StatusView) -> Iterable[tuple[str, str]]:
    """Kills and evictions of the last day."""
    for number, text in enumerate(ended(status.ended, _MOST)):
        yield "" if number else "evictions", text


def _waiting(status: StatusView) -> Iterable[tuple[str, str]]:
    for number, each in enumerate(status.waiting[:_MOST]):
        yield "" if number else "waiting", f"{waits(each)}; next: {each.advice}"
    if len(status.waiting) > _MOST:
        yield "", f"and {len(status.waiting) - _MOST} more: koordlet blame"


def _short(status: StatusView) -> Iterable[tuple[str, str]]:
    """One line for each thing about koordlet itself that is worth one by default."""
    own, tsdb = status.own, status.tsdb
    uses = f"CPU {output.cores(own.cpu_cores)} cores, memory {output.size(own.rss_bytes)}"
    how = f"{status.mode.value}, up {output.span(status.uptime_s)}, {uses}"
    yield "koordlet", f"{status.version} on {status.node}, {how}"
    if not status.ready:
        yield "not ready", "; ".join(status.not_ready)
    active = sum(each.enabled for each in status.strategies)
    yield (
        "changed",
        f"{status.journal.entries} values in force; {active} parts are on: koordlet strategies",
    )
    if tsdb.damaged_segments:
        yield "damaged", f"{tsdb.damaged_segments} segments of the store are not read"


def _facts(status: StatusView) -> list[tuple[str, str]]:
    config, own, tsdb, journal = status.config, status.own, status.tsdb, status.journal
    log = status.decision_log
    working = sum(capability.supported for capability in status.capabilities)
    tried = len(status.capabilities)
    return [
        ("koordlet", f"{status.version}, pid {status.pid}, up {output.span(status.uptime_s)}"),
        ("node", f"{status.node}, cgroups {status.cgroup_layout}"),
        ("mode", status.mode.value),
        ("ready", "yes" if status.ready else "no: " + "; ".join(status.not_ready)),
        ("config", f"{config.file}, in force since {output.date(config.in_force_since)}"),
        *([("", f"newer file kept out: {config.error}")] if config.error else []),
        (
            "kernel",
            f"{working} of {tried} features work"
            + ("" if working == tried else "; `koordlet doctor` says what the others cost"),
        ),
        (
            "own usage",
            (
                f"CPU {_of(output.cores(own.cpu_cores), output.cores(own.cpu_budget_cores))} cores"
                f", memory {_of(output.size(own.rss_bytes), output.size(own.memory_budget_bytes))}"
                f", {own.open_files} open files"
            ),
        ),
        (
            "store",
            f"{tsdb.series} series, {output.size(tsdb.memory_bytes)} in memory, "
            f"{output.size(tsdb.disk_bytes)} in {tsdb.segments} segments on disk"
            + (f", {tsdb.damaged_segments} damaged" if tsdb.damaged_segments else ""),
        ),
        *([("", f"in memory only: {tsdb.error}")] if tsdb.error else []),
        (
            "decisions",
            f"{log.records} records, {output.size(log.disk_bytes)} in {log.path}"
            + (f", {log.dropped} dropped" if log.dropped else ""),
        ),
        *([("", f"not recorded: {log.error}")] if log.error else []),
        *_cluster(status.cluster),
        ("nri", nri.connection(status.nri)),
        *_proxy(),
        ("journal", f"{journal.entries} changed values in {journal.path}"),
        *([] if journal.healthy else [("", f"nothing is written: {journal.why}")]),
        *([("", "damaged, see the problems below")] if journal.damage else []),
    ]


def _armed(status: StatusView) -> Iterable[tuple[str, str]]:
    """What may end or freeze work."""
    if not status.armed:
        yield "armed", "nothing: no eviction is switched on"
    for number, each in enumerate(status.armed):
        name = f"{each.owner}, {each.name}" if each.owner else each.name
        yield "" if number else "armed", f"{name}: {each.does} when {each.when}; by {each.by}"


def _cluster(cluster: ClusterView) -> Iterable[tuple[str, str]]:
    if not cluster.enabled:
        return
    if cluster.connected:
        yield "cluster", f"{cluster.server}, as {cluster.node}, {cluster.writes} writes"
        return
    server = cluster.server or "no API server yet"
    text = f"{server}, as {cluster.node}: not heard; what was last known stays in force"
    yield "cluster", f"{text}: {cluster.error}" if cluster.error else text


def _objects(status: StatusView) -> Iterable[Row]:
    for o in status.cluster.objects:
        age = "now" if o.age_s == 0 else "" if o.age_s is None else f"{output.span(o.age_s)} ago"
        yield o.kind, o.name, o.state, age, o.error


def _proxy() -> Iterable[tuple[str, str]]:
    """The CRI proxy is a process of its own; most nodes have none."""
    if not os.path.exists(DEFAULT_PROXY_STATUS_SOCKET):
        return
    from koordlet.cli.process.proxy import ask

    try:
        found = ask(DEFAULT_PROXY_STATUS_SOCKET)
    except (OSError, ValueError) as error:
        yield "proxy", f"does not answer: {error}"
        return
    calls = sum(method.calls for method in found.methods)
    changed = sum(method.changed for method in found.methods)
    runtime = found.backend_error or "runtime answers"
    yield "proxy", f"{calls} calls, {changed} changed, {runtime}; `koordlet proxy status` has more"


def _of(used: str, budget: str) -> str:
    return used if budget == output.NOTHING else f"{used} of {budget}"


def _sources(status: StatusView) -> Iterable[Row]:
    for s in status.sources:
        yield s.name, output.yes(s.synced), str(s.pods), str(s.applications), s.error


def _collectors(status: StatusView) -> Iterable[Row]:
    for c in status.collectors:
        yield (
            c.name,
            output.span(c.interval_s),
            _state(c),
            output.span(c.last_duration_s),
            "never" if c.staleness_s is None else f"{output.span(c.staleness_s)} ago",
            str(c.samples),
            c.error or c.missing,
        )


def _state(collector: CollectorView) -> str:
    if collector.shed:
        return "shed"
    if collector.missing:
        return "not here"
    return "ok" if collector.success else "failing"


def _strategies(status: StatusView) -> Iterable[Row]:
    for s in status.strategies:
        yield s.name, s.kind, output.yes(s.enabled), output.clock(s.last_run), s.result


def _alarms(status: StatusView) -> Iterable[Row]:
    for a in status.alarms:
        yield a.name, a.mechanism, str(a.count), output.clock(a.last_time), a.why


def _endpoints(status: StatusView) -> Iterable[Row]:
    for e in status.endpoints:
        yield e.name, e.address, output.yes(e.listening), e.error


def _conflicts(status: StatusView) -> Iterable[Row]:
    for c in status.conflicts:
        until = output.clock(c.backing_off_until)
        file = f"{c.path}, likely by {c.likely}" if c.likely else c.path
        yield c.expected, c.found, str(c.count), until, file


def _refused(status: StatusView) -> Iterable[Row]:
    for r in status.refused_inputs:
        yield r.subject, str(r.count), f"{r.path}: {r.message}"


def _problems(status: StatusView) -> Iterable[Row]:
    for p in status.problems:
        yield p.part, p.why


def _pauses(status: StatusView) -> Iterable[Row]:
    return pauses.rows(status.pauses)


_TABLES: tuple[tuple[str, Row, Callable[[StatusView], Iterable[Row]]], ...] = (
    ("Paused", pauses.HEADER, _pauses),
    ("Sources", ("NAME", "SYNCED", ">PODS", ">APPLICATIONS", "ERROR"), _sources),
    ("Cluster", ("KIND", "NAME", "STATE", ">HEARD", "ERROR"), _objects),
    (
        "Collectors",
        ("NAME", ">EVERY", "STATE", ">TOOK", ">LAST SUCCESS", ">SAMPLES", "ERROR"),
        _collectors,
    ),
    ("Strategies and hooks", ("NAME", "KIND", "ENABLED", "LAST RUN", "RESULT"), _strategies),
    ("Alarms", ("NAME", "MECHANISM", ">COUNT", "LAST", "WHY"), _alarms),
    ("Listening", ("NAME", "ADDRESS", "LISTENING", "ERROR"), _endpoints),
    (
        "Conflicts with other writers",
        ("EXPECTED", "FOUND", ">TIMES", "HANDS OFF UNTIL", "FILE"),
        _conflicts,
    ),
    ("Refused inputs", ("SUBJECT", ">TIMES", "WHAT"), _refused),
    ("Problems", ("PART", "WHY"), _problems),
)
