"""What callers look up: explain, hooks, query, events. Every argument comes from outside."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice

import msgspec

from koordlet.admin import series
from koordlet.admin.daemon import InvalidError, Lookup, NotFoundError
from koordlet.admin.model.events import EventView, ExplainView
from koordlet.admin.ranges import QueryView, RangeView
from koordlet.admin.runtime import HooksView
from koordlet.admin.worker import Worker, in_turns
from koordlet.collectors import CATALOGUE
from koordlet.decision.cgroups import parent
from koordlet.decision.metrics import Metric
from koordlet.decision.names import meant, shown
from koordlet.decision.record import PodKind, Record
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Container, Pod, Snapshot, Wake, WakeKind
from koordlet.decision.strategy import Action
from koordlet.diagnosis.events import wanted
from koordlet.diagnosis.explained import Known, Meaning, explained
from koordlet.diagnosis.targets import completed, known_names
from koordlet.diagnosis.who import Key, Who
from koordlet.engine.absent import PART
from koordlet.engine.engine import Engine
from koordlet.engine.events import event_view
from koordlet.engine.options import enabled_collectors
from koordlet.engine.parts import Parts
from koordlet.hooks import HOOKS, describe, missed
from koordlet.hooks.combine import in_guest
from koordlet.kernel.background import Pause, no_pause
from koordlet.protocol.decode import nearest
from koordlet.report.decision_search import Extent, history
from koordlet.state.node_state import LABELS_AWAITED_S

SEARCHED = 500
"""Names that a mistyped one is compared with."""
RECORDS_AT_ONCE = 200
"""Records of the log that are fetched at a time: 400 KiB."""


def explain(engine: Engine, target: str, limit: int) -> Lookup[ExplainView]:
    """The latest decisions about a pod, application, container or cgroup, of an owner or a rule;
    ``node``: about everything. Raises NotFoundError, InvalidError."""
    parts = engine.parts
    limit = max(1, limit)
    if not target.strip("/ "):
        raise InvalidError("say what to explain: a pod, application, cgroup, owner or node")
    pods, applications = parts.state.pods(), parts.state.applications()
    log, owners = parts.decisions.extent(), tuple(engine.runs)
    absent, time = parts.problems.get(f"{PART}{target}", ""), parts.host.time()

    def look_up(pause: Pause = no_pause) -> ExplainView:
        known = Known(
            people(pods, applications),
            _meanings(pods, applications),
            owners,
            lambda cgroup: _exists(parts, cgroup),
        )
        pause()
        found = explained(log, known, target, limit, time, pause)
        if absent:
            return msgspec.structs.replace(found, matched=f"{found.matched}; {absent}")
        return found

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
    if target not in pods:
        target = completed(target, {*named, *applications}) or target
    pod = pods.get(target) or named.get(target)
    if pod is not None:
        wanted, matched = describe.of_pod(pod.uid), f"{pod.qos} pod in cgroup {shown(pod.cgroup)}"
        matched = "; ".join(filter(None, (matched, in_guest(pod), _labels_awaited(pod))))
    elif target in applications:
        wanted, matched = describe.of_application(target), "application"
    else:
        raise NotFoundError(
            f"{target!r} is no pod (uid or namespace/name) and no application; "
            f"{known_names(target, sorted({*(named or pods), *applications}))}"
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
        return known[name].cgroup
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
    suggested = f'; did you mean "{likely}"?' if likely else ""
    raise NotFoundError(f"{name!r} is no cgroup, pod or application{suggested}")


def _paths(parts: Parts, path: str, known: Mapping[str, Meaning]) -> Iterator[str]:
    """What may have been meant by a path: names, and the cgroups beside it."""
    for name, meaning in islice(known.items(), SEARCHED):
        yield from (name, meaning.cgroup)
    above = parent(path)
    with contextlib.suppress(OSError, ValueError):
        yield from islice(parts.knobs.children(above), SEARCHED)


def people(pods: Iterable[Pod], applications: Iterable[Application]) -> dict[Key, Who]:
    """Return those who are there, as the store names them."""
    found: dict[Key, Who] = {}
    for pod in pods:
        key = PodKind.POD, pod.uid
        cgroup = shown(pod.cgroup)
        found[key] = Who(
            *key, pod.name, pod.namespace, "" if pod.awaits_labels else pod.qos, cgroup
        )
    for application in applications:
        if application.present:
            name, qos = application.name, application.qos or ""
            cgroup = shown(application.cgroup)
            found[PodKind.APPLICATION, name] = Who(
                PodKind.APPLICATION, name=name, qos=qos, cgroup=cgroup
            )
    return found


def _meanings(pods: Iterable[Pod], applications: Iterable[Application]) -> dict[str, Meaning]:
    """An application wins over a pod of the same name."""
    found: dict[str, Meaning] = {}
    for pod in pods:
        title = f"{pod.namespace}/{pod.name}" if pod.name else pod.uid
        found[pod.uid] = found[title] = Meaning("pod", shown(pod.cgroup), title)
        for container in pod.containers:
            inside = Meaning("container", shown(container.cgroup), f"{title}/{container.name}")
            found[container.id] = found[container.id.rpartition("://")[2]] = inside
    return found | {
        each.name: Meaning("application", shown(each.cgroup), each.name) for each in applications
    }


def cgroups(
    parts: Parts, pods: Iterable[Pod], applications: Iterable[Application]
) -> Callable[[str], str | None]:
    """Return what finds the cgroup of a container, pod or application by its id, or that of the
    path."""
    meanings = _meanings(pods, applications)

    def cgroup_of(name: str) -> str | None:
        if name in meanings:
            return meanings[name].cgroup
        return name if _exists(parts, meant(name)) else None

    return cgroup_of


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
) -> Lookup[QueryView]:
    """One number per series, over the time before ``until`` (None: now). Raises InvalidError."""
    metric = series.metric_of(_catalogue(parts), kind, match)
    how = series.aggregate_of(aggregate)
    window = series.window_of(window_s, parts.host.time() if until is None else until)

    def look_up(pause: Pause = no_pause) -> QueryView:
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


def events(
    parts: Parts,
    worker: Worker,
    *,
    since: float,
    follow: bool,
    kinds: Collection[str] = (),
    subject: str = "",
) -> AsyncIterator[EventView]:
    """The events of this run since a unix time. For the time before the oldest of them,
    the decision log answers, also of earlier runs; such events have the sequence number 0. With
    ``since`` 0 the log is left alone. ``kinds`` and ``subject``: as in ``diagnosis.events``. Raises
    InvalidError."""
    known = _meanings(parts.state.pods(), parts.state.applications()) if subject else {}
    is_wanted = wanted(kinds, subject, known)

    async def every() -> AsyncIterator[EventView]:
        if since > 0:
            until = parts.events.oldest
            async for record in _logged(parts.decisions.extent(), worker, since):
                if until is not None and record.time >= until:
                    break
                yield event_view(record)
        async for event in parts.events.stream(since=since, follow=follow):
            yield event

    async def chosen() -> AsyncIterator[EventView]:
        async for event in every():
            if is_wanted(event):
                yield event

    return chosen()


async def _logged(log: Extent, worker: Worker, since: float) -> AsyncIterator[Record]:
    def batches(pause: Pause) -> Iterator[list[Record]]:
        records = history(log, since, pause=pause)
        while batch := list(islice(records, RECORDS_AT_ONCE)):
            yield batch

    async for batch in in_turns(worker, batches):
        for record in batch:
            yield record
