"""What the scheduler watches itself by: limits above which something takes too long
(docs/reference/central.md 9.4, 9.7). Defaults are the reference's."""

from __future__ import annotations

from typing import NamedTuple


class MonitorLimits(NamedTuple):
    """Every ``period_s`` it is looked for attempts that take longer than ``timeout_s``."""

    period_s: float = 10.0
    timeout_s: float = 30.0


class AuditLimits(NamedTuple):
    """Above each of them the auditor raises an alert. ``reschedule_s``: from the end of the last
    victim to the next result. ``deletion_s``: from a nomination to that end. ``deleting_retries``:
    attempts meanwhile. ``interval_s``: between results of one round."""

    reschedule_s: float = 10.0
    deletion_s: float = 30.0
    deleting_retries: int = 3
    interval_s: float = 300.0


class Watching(NamedTuple):
    """``audit`` None: no auditor. ``audit_labels``: name of a label of its metrics -> label of
    pods."""

    monitor: MonitorLimits = MonitorLimits()
    audit: AuditLimits | None = None
    audit_labels: tuple[tuple[str, str], ...] = ()
