"""What callers look up: explain, hooks, query, events. Every argument comes from outside."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping

from koordlet.admin import model as m
from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.admin.runtime import HooksView
from koordlet.daemon.engine import Engine
from koordlet.daemon.parts import Parts
from koordlet.daemon.record import decision_view, event_view
from koordlet.decision.metrics import CATALOGUE, Aggregate
from koordlet.decision.snapshot import Wake, WakeKind
from koordlet.hooks import describe, hooks
from koordlet.hooks.combine import in_guest
from koordlet.tsdb.aggregates import summarise, without_gaps

KNOWN_SHOWN = 8
LONGEST_WINDOW_S = 366 * 86400.0
RECORDS_AT_ONCE = 200
"""Some 2 ms; the log may hold fifty thousand, and alarms must not wait for them."""


def explain(engine: Engine, target: str, limit: int) -> m.ExplainView:
    """The latest decisions about a pod, application, container or cgroup, of an owner or a rule;
    ``node``: about everything. Raises NotFoundError, InvalidError."""
    parts = engine.parts
    limit = max(1, limit)
    if not target.strip("/ "):
        raise InvalidError("say what to explain: a pod, application, cgroup, owner or node")
    if target == "node":
        records = parts.decisions.explain(None, limit)
        return m.ExplainView(
            target=target,
            matched="everything on this node",
            decisions=tuple(map(decision_view, records)),
        )
    meanings = _meanings(parts)
    kind, sought = meanings.get(target, ("", target.strip("/")))
    found = parts.decisions.explain(sought, limit)
    if not found and not kind and not _exists(parts, sought):
        owners, known = ", ".join(engine.runs), ", ".join(sorted(meanings)[:KNOWN_SHOWN])
        raise NotFoundError(
            f"{target!r} is no pod, application, container, cgroup, owner or rule with a "
            f"decision; owners: {owners or 'none'}; known: {known or 'no pods and applications'}"
        )
    return m.ExplainView(
        target=target,
        matched=f"{kind} in cgroup {sought}" if kind else sought,
        decisions=tuple(map(decision_view, found)),
    )


def hooks_view(engine: Engine, target: str) -> HooksView:
    """All hooks, and what those that are enabled would do to a pod (uid or namespace/name) or an
    application. Raises NotFoundError."""
    rows = describe.table(hooks(), engine.node(), engine.hooks)
    if not target:
        return HooksView(hooks=rows)
    parts = engine.parts
    pods = {pod.uid: pod for pod in parts.state.pods()}
    named = {f"{pod.namespace}/{pod.name}": pod for pod in pods.values() if pod.name}
    applications = {application.name for application in parts.state.applications()}
    pod = pods.get(target) or named.get(target)
    if pod is not None:
        wanted, matched = describe.of_pod(pod.uid), f"{pod.qos} pod in cgroup {pod.cgroup}"
        matched = "; ".join(filter(None, (matched, in_guest(pod))))
    elif target in applications:
        wanted, matched = describe.of_application(target), "application"
    else:
        known = ", ".join(sorted({*(named or pods), *applications})[:KNOWN_SHOWN])
        raise NotFoundError(
            f"{target!r} is no pod (uid or namespace/name) and no application; known: "
            f"{known or 'none'}"
        )
    snapshot = engine.snapshot(Wake(WakeKind.TICK))
    return HooksView(
        target=target,
        matched=matched,
        hooks=rows,
        actions=describe.actions(engine.hooks, snapshot, wanted),
        faults=pod.faults if pod is not None else (),
    )


def _meanings(parts: Parts) -> dict[str, tuple[str, str]]:
    """Name -> what it is and its cgroup. An application wins over a pod of the same name."""
    found: dict[str, tuple[str, str]] = {}
    for pod in parts.state.pods():
        found[pod.uid] = ("pod", pod.cgroup)
        if pod.name:
            found[f"{pod.namespace}/{pod.name}"] = ("pod", pod.cgroup)
        for container in pod.containers:
            found[container.id] = ("container", container.cgroup)
            found[container.id.rpartition("://")[2]] = ("container", container.cgroup)
    return found | {a.name: ("application", a.cgroup) for a in parts.state.applications()}


def _exists(parts: Parts, cgroup: str) -> bool:
    try:
        return parts.cgroups.exists(cgroup)
    except (OSError, ValueError):
        return False


def query(
    parts: Parts, kind: str, match: Mapping[str, str], window_s: float, aggregate: str
) -> m.QueryView:
    """One number per series. Raises InvalidError."""
    metric = CATALOGUE.get(kind)
    if metric is None:
        raise InvalidError(f"no metric {kind!r}; there are: {', '.join(sorted(CATALOGUE))}")
    unknown = sorted(set(match) - set(metric.labels))
    if unknown:
        raise InvalidError(
            f"{kind} has no label {unknown[0]!r}; it has: {', '.join(metric.labels) or 'none'}"
        )
    try:
        how = Aggregate(aggregate)
    except ValueError:
        raise InvalidError(
            f"no aggregate {aggregate!r}; there are: {', '.join(Aggregate)}"
        ) from None
    if not 0 < window_s <= LONGEST_WINDOW_S:
        raise InvalidError(
            f"the window must be longer than 0 s and at most {LONGEST_WINDOW_S:g} s, "
            f"not {window_s:g} s"
        )
    now_ms = math.ceil(parts.host.time() * 1000)
    found = parts.store.history(kind, match, now_ms - int(window_s * 1000), now_ms)
    series = []
    for labels, points in sorted(found.items()):
        times, values = without_gaps(points.times, points.values)
        value = summarise(values, how)
        if value is not None and times:
            age_s = max(0.0, (now_ms - times[-1]) / 1000)
            series.append(
                m.SeriesView(labels=dict(labels), value=value, age_s=age_s, count=len(values))
            )
    return m.QueryView(
        kind=kind, unit=metric.unit, aggregate=how, window_s=window_s, series=tuple(series)
    )


async def events(parts: Parts, *, since: float, follow: bool) -> AsyncIterator[m.EventView]:
    """The events of this run since a unix time. Before the oldest of them the decision log tells,
    also of earlier runs; such events have the sequence number 0. With ``since`` 0 the log is left
    alone."""
    if since > 0:
        until = parts.events.oldest
        for number, record in enumerate(parts.decisions.read(newest_first=False, since=since)):
            if until is not None and record.time >= until:
                break
            yield event_view(record)
            if number % RECORDS_AT_ONCE == 0:
                await asyncio.sleep(0)
    async for event in parts.events.stream(since=since, follow=follow):
        yield event
