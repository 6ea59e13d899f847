"""Options of ``koord-scheduler run`` by which the scheduler watches itself
(docs/reference/central.md 9.4,
9.7)."""

from __future__ import annotations

import argparse
import re

from koord_scheduler.cli.arguments import Argument, argument
from koord_scheduler.daemon.scheduler.watching import AuditLimits, MonitorLimits, Watching
from koordlet.protocol.duration import format_duration, parse_duration
from koordlet.protocol.errors import ProtocolError

MOST_LABELS = 8
_MONITOR, _AUDIT = MonitorLimits(), AuditLimits()
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,62}", re.ASCII)
_TAKEN = frozenset({"priority", "event_type", "outcome", "le"})


def _duration(name: str, default_s: float, about: str) -> Argument:
    default = format_duration(default_s)
    return argument(name, metavar="DURATION", default=default, help=f"{about} (default: {default})")


WATCHING = (
    _duration(
        "--scheduler-monitor-period",
        _MONITOR.period_s,
        "how often the role scheduler looks for attempts that take too long",
    ),
    _duration(
        "--scheduling-timeout",
        _MONITOR.timeout_s,
        "an attempt that takes longer is logged and counted",
    ),
    argument(
        "--enable-workload-auditor",
        action="store_true",
        help="the role scheduler follows each pod and gang group that waits, and raises alerts",
    ),
    argument(
        "--workload-auditor-metric-labels",
        metavar="LIST",
        default="",
        help="labels of its metrics beside the priority: NAME=POD-LABEL,... (default: none)",
    ),
    _duration(
        "--workload-auditor-victim-reschedule-duration",
        _AUDIT.reschedule_s,
        "alert where a result comes later than this after the last victim is gone",
    ),
    _duration(
        "--workload-auditor-victim-deletion-duration",
        _AUDIT.deletion_s,
        "alert where victims are there for longer than this after a nomination",
    ),
    argument(
        "--workload-auditor-victim-deleting-retries",
        metavar="N",
        type=int,
        default=_AUDIT.deleting_retries,
        help="alert after more attempts than these while victims leave "
        f"(default: {_AUDIT.deleting_retries})",
    ),
    _duration(
        "--workload-auditor-scheduling-event-interval",
        _AUDIT.interval_s,
        "alert where two results of one round are further apart",
    ),
)


def watching_of(args: argparse.Namespace) -> Watching:
    """Raises ValueError with the option that cannot be used."""

    def seconds(name: str) -> float:
        option = f"--{name.replace('_', '-')}"
        try:
            found = parse_duration(getattr(args, name))
        except ProtocolError as error:
            raise ValueError(f"{option}: {error}") from None
        if found <= 0:
            raise ValueError(f"{option} must be more than 0")
        return found

    limits = AuditLimits(
        seconds("workload_auditor_victim_reschedule_duration"),
        seconds("workload_auditor_victim_deletion_duration"),
        args.workload_auditor_victim_deleting_retries,
        seconds("workload_auditor_scheduling_event_interval"),
    )
    if limits.deleting_retries < 0:
        raise ValueError("--workload-auditor-victim-deleting-retries must be at least 0")
    return Watching(
        MonitorLimits(seconds("scheduler_monitor_period"), seconds("scheduling_timeout")),
        limits if args.enable_workload_auditor else None,
        _labels(args.workload_auditor_metric_labels),
    )


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    option = "--workload-auditor-metric-labels"
    found: dict[str, str] = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        name, _, label = (each.strip() for each in pair.partition("="))
        if not _NAME.fullmatch(name) or not label:
            raise ValueError(f"{option}: {pair[:80]!r} is not NAME=POD-LABEL")
        if name in _TAKEN or name in found:
            raise ValueError(f"{option}: there is a label {name} already")
        found[name] = label
    if len(found) > MOST_LABELS:
        raise ValueError(f"{option}: at most {MOST_LABELS} labels")
    return tuple(found.items())
