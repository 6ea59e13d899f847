"""What callers look up: explain, hooks, query, events. Every argument comes from outside."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from koordlet.admin import model as m
from koordlet.admin import series
from koordlet.admin.daemon import InvalidError, Lookup, NotFoundError
from koordlet.admin.ranges import RangeView
from koordlet.admin.runtime import HooksView
from koordlet.admin.worker import Worker, in_turns
from koordlet.collectors import CATALOGUE
from koordlet.decision.cgroups import parent
from koordlet.decision.metrics import Metric
from koordlet.decision.names import encodable, meant, shown
from koordlet.decision.record import Record
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Container, Pod, Snapshot, Wake, WakeKind
from koordlet.engine.absent import PART
from koordlet.engine.engine import Engine
from koordlet.engine.events import event_view
from koordlet.engine.options import enabled_collectors
from koordlet.engine.parts import Parts
from koordlet.hooks import HOOKS, describe, missed
from koordlet.hooks.combine import in_guest
from koordlet.hooks.describe import Action
from koordlet.kernel.background import Pause, no_pause
from koordlet.protocol.decode import nearest
from koordlet.report.decision_search import Extent, history
from koordlet.report.decision_search import explain as search
from koordlet.state.node_state import LABELS_AWAITED_S

KNOWN_SHOWN = 8
SEARCHED = 500
"""Names that a mistyped one is compared with."""
RECORDS_AT_ONCE = 200
"""Records of the log that are fetched at a time: 400 KiB."""


def explain(engine: Engine, target: str, limit: int) -> Lookup[m.ExplainView]:
    """The latest decisions about a pod, application, container or cgroup, of an owner or a rule;
    ``node``: about everything. Raises NotFoundError, InvalidError."""
    parts = engine.parts
    limit = max(1, limit)
    if not target.strip("/ "):
        raise InvalidError("say what to explain: a pod, application, cgroup, owner or node")
    pods, applications = parts.state.pods(), parts.state.applications()
    log, owners = parts.decisions.extent(), tuple(engine.runs)
    absent = parts.problems.get(f"{PART}{target}", "")

    def look_up(pause: Pause = no_pause) -> m.ExplainView:
        def records(sought: str | None) -> tuple[Record, ...]:
            return tuple(search(log, sought, limit, pause))

        if target == "node":
            everything = "everything on this node"
            return m.ExplainView(target=target, matched=everything, decisions=records(None))
        meanings = _meanings(pods, applications)
        pause()
        kind, sought = meanings.get(target, ("", target.strip("/")))
        found = records(encodable(sought))
        if not found and not kind:  # a name as a shell completes it, and not as koordlet shows it
            found = records(shown(sought))
        there = _exists(parts, meant(sought)) or _exists(parts, sought)
        if not found and not kind and not there:
            known = ", ".join(sorted(meanings)[:KNOWN_SHOWN]) or "no pods and applications"
            raise NotFoundError(
                f"{target!r} is no pod, application, container, cgroup, owner or rule with a "
                f"decision; owners: {', '.join(owners) or 'none'}; known: {known}"
            )
        matched = f"{kind} in cgroup {sought}" if kind else sought
        if absent:
            matched += f"; {absent}"
        return m.ExplainView(target=target, matched=matched, decisions=found)

    return look_up


def hooks_view(engine: Engine, target: str) -> HooksView:
    """All hooks, and what those that are enabled would do to a pod (uid or namespace/name) or an
    application. Raises NotFoundError."""
    rows = describe.table(tuple(HOOKS.values()), engine.node(), engine.hooks)
    if not target:
        return HooksView(hooks=rows)
    parts = engine.parts
    pods = {pod.uid: pod for pod in parts.state.pods()}
    named = {f"{pod.namespace}/{pod.name}": pod for pod in pods.values() if pod.name}
    applications = {application.name for application in parts.state.applications()}
    pod = pods.get(target) or named.get(target)
    if pod is not None:
        wanted, matched = describe.of_pod(pod.uid), f"{pod.qos} pod in cgroup {shown(pod.cgroup)}"
        matched = "; ".join(filter(None, (matched, in_guest(pod), _labels_awaited(pod))))
    elif target in applications:
        wanted, matched = describe.of_application(target), "application"
    else:
        known = ", ".join(sorted({*(named or pods), *applications})[:KNOWN_SHOWN])
        raise NotFoundError(
            f"{target!r} is no pod (uid or namespace/name) and no application; known: "
            f"{known or 'none'}"
        )
    snapshot = engine.snapshot(Wake(WakeKind.TICK))
    containers = {each.cgroup: each for each in (pod.containers if pod is not None else ())}
    return HooksView(
        target=target,
        matched=matched,
        hooks=rows,
        actions=tuple(
            _beside(engine, action, containers, snapshot)
            for action in describe.actions(engine.hooks, snapshot, wanted)
        ),
        faults=pod.faults if pod is not None else (),
    )


def _beside(
    engine: Engine, action: Action, containers: Mapping[str, Container], snapshot: Snapshot
) -> Action:
    """With what the cgroup or the container has now."""
    if action.kind == "setting":
        value = snapshot.in_force.value(action.cgroup, Resource(action.name))
        return msgspec.structs.replace(action, has=str(value) if value is not None else None)
    container = containers.get(action.cgroup)
    given = engine.missed.given(container) if container is not None else None
    if container is None or given is None or action.kind not in ("env", "device", "mount"):
        return action
    return msgspec.structs.replace(
        action,
        has=missed.has(action.kind, action.name, given),
        missed=engine.missed.missed(container, action.kind, action.name),
    )


def _labels_awaited(pod: Pod) -> str:
    if not pod.awaits_labels:
        return ""
    return f"its labels are not known yet: nothing is set for it for up to {LABELS_AWAITED_S:g} s"


def cgroup_of(parts: Parts, name: str) -> str:
    """The cgroup of a pod or application, or the one with this path; what a path begins with may
    be the mount point. Raises NotFoundError for one that is not there, InvalidError for the
    root."""
    known = _meanings(parts.state.pods(), parts.state.applications())
    if name in known:
        return known[name][1]
    path = name
    for root in sorted(parts.cgroups.layout.roots, key=len, reverse=True):
        if path == root or path.startswith(f"{root}/"):
            path = path[len(root) :]
            break
    path = path.strip("/")
    if not path:
        raise InvalidError(f"{name!r} is the root cgroup, that is everything: name nothing for it")
    if _exists(parts, path):
        return path
    likely = nearest(path, _paths(parts, path, known))
    meant = f'; did you mean "{likely}"?' if likely else ""
    raise NotFoundError(f"{name!r} is no cgroup, pod or application{meant}")


def _paths(parts: Parts, path: str, known: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    """What may have been meant by a path: names, and the cgroups beside it."""
    for name, (_, cgroup) in islice(known.items(), SEARCHED):
        yield from (name, cgroup)
    above = parent(path)
    with contextlib.suppress(OSError, ValueError):
        yield from islice(parts.knobs.children(above), SEARCHED)


def _meanings(
    pods: Iterable[Pod], applications: Iterable[Application]
) -> dict[str, tuple[str, str]]:
    """Name -> what it is and its cgroup. An application wins over a pod of the same name."""
    found: dict[str, tuple[str, str]] = {}
    for pod in pods:
        cgroup = shown(pod.cgroup)
        found[pod.uid] = ("pod", cgroup)
        if pod.name:
            found[f"{pod.namespace}/{pod.name}"] = ("pod", cgroup)
        for container in pod.containers:
            inside = shown(container.cgroup)
            found[container.id] = ("container", inside)
            found[container.id.rpartition("://")[2]] = ("container", inside)
    return found | {a.name: ("application", shown(a.cgroup)) for a in applications}


def _exists(parts: Parts, cgroup: str) -> bool:
    try:
        return parts.cgroups.exists(cgroup)
    except (OSError, ValueError):
        return False


def query(
    parts: Parts,
    kind: str,
    match: Mapping[str, str],
    window_s: float,
    aggregate: str,
    until: float | None = None,
) -> Lookup[m.QueryView]:
    """One number per series, over the time before ``until`` (None: now). Raises InvalidError."""
    metric = series.metric_of(_catalogue(parts), kind, match)
    how = series.aggregate_of(aggregate)
    window = series.window_of(window_s, parts.host.time() if until is None else until)

    def look_up(pause: Pause = no_pause) -> m.QueryView:
        return series.summary(parts.store, metric, match, window, how, pause)

    return look_up


async def query_range(
    parts: Parts,
    worker: Worker,
    kind: str,
    match: Mapping[str, str],
    start: float,
    end: float,
    step_s: float,
    aggregate: str,
) -> AsyncIterator[RangeView]:
    """A number for each step, in pieces: whoever asks for a week waits for his turn between them.
    Raises InvalidError."""
    metric = series.metric_of(_catalogue(parts), kind, match)
    how = series.aggregate_of(aggregate)
    where = series.grid_of(start, end, step_s)
    pieces = in_turns(
        worker, lambda pause: series.over_time(parts.store, metric, match, where, how, pause)
    )
    async for piece in pieces:
        yield piece


def _catalogue(parts: Parts) -> Mapping[str, Metric]:
    running = enabled_collectors(parts.config)
    return CATALOGUE | {metric.kind: metric for each in running for metric in each.metrics}


async def events(
    parts: Parts, worker: Worker, *, since: float, follow: bool
) -> AsyncIterator[m.EventView]:
    """The events of this run since a unix time. For the time before the oldest of them,
    the decision log answers, also of earlier runs; such events have the sequence number 0. With
    ``since`` 0 the log is left alone."""
    if since > 0:
        until = parts.events.oldest
        async for record in _logged(parts.decisions.extent(), worker, since):
            if until is not None and record.time >= until:
                break
            yield event_view(record)
    async for event in parts.events.stream(since=since, follow=follow):
        yield event


async def _logged(log: Extent, worker: Worker, since: float) -> AsyncIterator[Record]:
    def batches(pause: Pause) -> Iterator[list[Record]]:
        records = history(log, since, pause=pause)
        while batch := list(islice(records, RECORDS_AT_ONCE)):
            yield batch

    async for batch in in_turns(worker, batches):
        for record in batch:
            yield record
