"""The state of a daemon in one line: the one source of `status`, `doctor`, systemd and a metric."""

from __future__ import annotations

import time
from collections.abc import Iterator

from koordlet.admin.blame import WaitingView
from koordlet.admin.model.doctor import CheckState
from koordlet.admin.model.status import Mode, StatusView, VerdictState, VerdictView
from koordlet.admin.nri_check import nri_check
from koordlet.admin.undo import PauseView

STARTING_S = 60.0
"""What is not there yet is no fault in the first so many seconds."""
SHOWN = 3
"""So many reasons stand in the line; all are in the list."""


def verdict(status: StatusView) -> VerdictView:
    """Pure. The first thing to know comes first: who has paused it, what does not work."""
    starts = status.uptime_s < STARTING_S
    reasons = tuple(_reasons(status, starts=starts))
    said: list[tuple[VerdictState, str]] = []
    if status.pauses:
        said.append((VerdictState.PAUSED, _paused(status.pauses)))
    if reasons:
        more = f" (and {len(reasons) - SHOWN} more)" if len(reasons) > SHOWN else ""
        text = f"degraded: {'; '.join(reasons[:SHOWN])}{more}"
        said.append((VerdictState.DEGRADED, text))
    if status.waiting:
        said.append((VerdictState.SUFFERING, _suffering(status.waiting)))
    if status.not_ready and starts:
        said.append((VerdictState.STARTING, f"starting: {'; '.join(status.not_ready)}"))
    if status.mode is Mode.OBSERVE:
        text = "observing: nothing is written (daemon.mode or --observe)"
        said.append((VerdictState.OBSERVING, text))
    if not said:
        return VerdictView(line=f"ok{_remarks(status)}")
    line = "; ".join(text for _, text in said)
    return VerdictView(state=said[0][0], line=line, reasons=reasons)


def _suffering(waiting: tuple[WaitingView, ...]) -> str:
    more = f" (and {len(waiting) - SHOWN} more)" if len(waiting) > SHOWN else ""
    return f"suffering: {'; '.join(map(_suffers, waiting[:SHOWN]))}{more}"


def waits(each: WaitingView) -> str:
    """One line about who suffers, and because of whom."""
    if not each.culprit:
        return _suffers(each)
    share = f"{100 * each.share:.0f} % of it " if each.share is not None else ""
    return f"{_suffers(each)}, {share}because of {each.culprit}"


def _suffers(each: WaitingView) -> str:
    return f"{each.title} {_SUFFERS.get(each.resource, _ANYTHING).format(percent=each.percent)}"


_ANYTHING = "waits {percent:.0f} % of its time"
_SUFFERS = {
    "cpu": f"{_ANYTHING} for a CPU",
    "memory": f"{_ANYTHING} for memory",
    "io": f"{_ANYTHING} for a disk",
    "limit": "is stopped by its own CPU limit in {percent:.0f} % of its periods",
}


def _paused(pauses: tuple[PauseView, ...]) -> str:
    """Everything first; what else is paused matters once that has ended."""
    everything = next((each for each in pauses if each.scope == "all"), None)
    if everything is not None:
        return f"paused {pause_by(everything)}"
    titles = "; ".join(f"{pause_title(each)} {pause_by(each)}" for each in pauses[:SHOWN])
    more = f" (and {len(pauses) - SHOWN} more)" if len(pauses) > SHOWN else ""
    return f"paused in part: {titles}{more}"


def pause_title(pause: PauseView) -> str:
    """What is paused."""
    if pause.scope == "cgroup":
        return f"cgroup {pause.name}"
    return pause.name or "everything"


def pause_by(pause: PauseView) -> str:
    """By whom, since when, until when and why."""
    until = f", until {_date(pause.until)}" if pause.until is not None else ""
    reason = f": {pause.reason}" if pause.reason else ""
    return f"by {pause.by} since {_date(pause.since)}{until}{reason}"


def _reasons(status: StatusView, *, starts: bool) -> Iterator[str]:
    """What does not do what was asked for. A bad annotation of some pod is none: koordlet does
    what it should."""
    if len(status.problems) > 1:
        yield f"{len(status.problems)} problems: {_problems(status)}"
    elif status.problems:
        yield f"1 problem: {_problems(status)}"
    if status.config.error:
        yield f"a newer configuration is kept out: {status.config.error}"
    if not status.journal.healthy:
        yield f"nothing is written, the journal is refused: {status.journal.why}"
    if not status.ready and not starts:
        yield f"not ready: {'; '.join(status.not_ready)}"
    for endpoint in status.endpoints:
        if not endpoint.listening:
            yield f"{endpoint.name} does not listen on {endpoint.address}: {endpoint.error}"
    nri = nri_check(status.nri)
    if nri.state is not CheckState.OK and not starts:
        yield f"NRI {nri.why}"
    if status.cluster.enabled and not status.cluster.connected and not starts:
        why = f": {status.cluster.error}" if status.cluster.error else ""
        yield f"the API server is not heard{why}"
    for source in status.sources:
        if source.error and not (status.cluster.error and source.name == "api"):
            yield f"source {source.name}: {source.error}"
    for collector in status.collectors:
        if not collector.success and not collector.shed and collector.error:
            yield f"collector {collector.name}: {collector.error}"
    now = status.started + status.uptime_s
    fought = [c for c in status.conflicts if (c.backing_off_until or 0.0) > now]
    if fought:
        yield f"{_number(len(fought), 'conflict')} with another writer: {fought[0].path}"
    if status.tsdb.error:
        yield f"the store is in memory only: {status.tsdb.error}"
    if status.decision_log.error:
        yield f"decisions are not recorded: {status.decision_log.error}"


def _problems(status: StatusView) -> str:
    shown = "; ".join(f"{each.part}: {each.why}" for each in status.problems[:SHOWN])
    more = f" (and {len(status.problems) - SHOWN} more)" if len(status.problems) > SHOWN else ""
    return shown + more


def _remarks(status: StatusView) -> str:
    refused = len(status.refused_inputs)
    return f"; {_number(refused, 'refused input')}" if refused else ""


def _number(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


def _date(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))
