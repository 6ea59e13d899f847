"""``koord-scheduler doctor``: whether a scheduler can work with this API server, and what to do
where it cannot."""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from koord_scheduler.cli.cluster import cluster_of
from koord_scheduler.cli.errors import WrongUseError
from koord_scheduler.cli.output import columns, emit, span
from koord_scheduler.cli.scheduling.source import DEADLINE_S, profiles_of
from koord_scheduler.daemon.controller import LEASES as LEASE_NAMES
from koord_scheduler.daemon.parts import UnknownPartError, chosen
from koord_scheduler.kube.scheduling.loading import LOADED, listed, served
from koord_scheduler.kube.shapes import NODE_METRICS
from koord_scheduler.model.reading import instant_s
from koord_scheduler.model.wire import NodeCondition
from koord_scheduler.plan.profile import Profile
from koordlet.kube.access import Need
from koordlet.kube.answers import head_of, read
from koordlet.kube.client import Client
from koordlet.kube.errors import RefusedError, UnusableError
from koordlet.kube.kinds import Kind
from koordlet.kube.lease import LEASES
from koordlet.kube.objects import Object, Shape
from koordlet.kube.trouble import TOO_DEEP
from koordlet.protocol.objects.custom import CUSTOM_RESOURCES

Level = Literal["ok", "note", "warn", "fail"]
OLDEST_MINOR = 27
"""Scheduling gates are on by default since Kubernetes 1.27."""
SKEW_S = 2.0
RENEWED_S = 60.0
"""kubelet renews the lease of its node every 10 s."""
T = TypeVar("T", bound=Object)
_LOOKED_AT = frozenset({"pods", "nodes"})
"""Kinds that are read for what they say."""
_AT_ONCE = 8
_MOST_NAMES = 5


class Finding(NamedTuple):
    """``advice``: what to do; empty where there is nothing to do."""

    level: Level
    about: str
    words: str
    advice: str = ""


class _Look(NamedTuple):
    """``unreadable``: objects that were met and cannot be read as they are."""

    client: Client
    profiles: tuple[Profile, ...]
    roles: tuple[str, ...]
    unreadable: list[str]


class _AccessStatus(Shape, frozen=True):
    allowed: bool = False


class _Access(Object, frozen=True):
    status: _AccessStatus = _AccessStatus()


_REVIEWS = Kind(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    False,
    _Access,
)


class _PodSpec(Shape, frozen=True):
    scheduler_name: str = ""
    node_name: str = ""
    scheduling_gates: tuple[Any, ...] = ()


class _Pod(Object, frozen=True):
    spec: _PodSpec = _PodSpec()


class _NodeStatus(Shape, frozen=True):
    conditions: tuple[NodeCondition, ...] = ()


class _Node(Object, frozen=True):
    status: _NodeStatus = _NodeStatus()


class _MetricStatus(Shape, frozen=True):
    update_time: str = ""


class _Metric(Object, frozen=True):
    status: _MetricStatus = _MetricStatus()


_PODS = Kind("", "v1", "Pod", "pods", True, _Pod)
_NODES = Kind("", "v1", "Node", "nodes", False, _Node)
_METRICS = Kind(
    NODE_METRICS.group, NODE_METRICS.version, NODE_METRICS.name, NODE_METRICS.plural, False, _Metric
)


def main(args: argparse.Namespace) -> int:
    """1 where something fails."""
    roles = tuple(filter(None, (each.strip() for each in args.roles.split(","))))
    try:
        chosen(roles, ("*",))
    except UnknownPartError as error:
        raise WrongUseError(str(error)) from None
    found = asyncio.run(_examine(args, profiles_of(args), roles))
    emit([each._asdict() for each in found], args.output, lambda: _lines(found))
    return 1 if any(each.level == "fail" for each in found) else 0


async def _examine(
    args: argparse.Namespace, profiles: tuple[Profile, ...], roles: tuple[str, ...]
) -> list[Finding]:
    found: list[Finding] = []
    async with Client(cluster_of(args), agent="koord-scheduler", deadline_s=DEADLINE_S) as client:
        look = _Look(client, profiles, roles, [])
        # An API server that is away ends it at once, with its own exit code.
        found += await _version(look)
        for each in _CHECKS:
            try:
                found += await each(look)
            except RefusedError as error:
                about = each.__name__.strip("_")
                found.append(Finding("fail", about, str(error), "give this user that right"))
    return found


async def _all(look: _Look, kind: Kind[T]) -> AsyncIterator[T]:
    """Those that can be read; the others are remembered."""
    async for raw in listed(look.client, kind):
        try:
            item, is_cut = read(kind, raw)
        except UnusableError as error:
            look.unreadable.append(f"{kind} {_name(raw)}: {error}")
            continue
        if is_cut:
            look.unreadable.append(f"{kind} {item.full_name}: {TOO_DEEP}")
        yield item


def _name(raw: msgspec.Raw) -> str:
    try:
        return head_of(raw).full_name
    except UnusableError:
        return "without a name"


async def _objects(look: _Look) -> list[Finding]:
    """What the other checks have met, and kinds that they do not look at."""
    for kind in (each.kind for each in LOADED if each.kind.plural not in _LOOKED_AT):
        try:
            async for _ in _all(look, kind):
                pass
        except RefusedError as error:
            if not error.missing:
                raise
    if look.unreadable:
        words = f"{len(look.unreadable)} cannot be read as they are: {_names(look.unreadable)}"
        return [Finding("warn", "objects", words, "delete them, or ask who wrote them")]
    return [Finding("ok", "objects", "all of them can be read")]


async def _version(look: _Look) -> list[Finding]:
    text = str((await look.client.tree("/version")).get("gitVersion", ""))
    found = re.match(r"v?(\d+)\.(\d+)", text)
    if found is None:
        return [Finding("note", "version", f"the API server does not say its version ({text!r})")]
    if (int(found[1]), int(found[2])) < (1, OLDEST_MINOR):
        advice = f"scheduling gates need Kubernetes 1.{OLDEST_MINOR}"
        return [Finding("warn", "version", f"Kubernetes {text}", advice)]
    return [Finding("ok", "version", f"Kubernetes {text}")]


async def _definitions(look: _Look) -> list[Finding]:
    """What the scheduler reads, and what it writes statuses of."""
    ours = {f"{each.plural}.{each.group}": each for each in CUSTOM_RESOURCES}
    wanted = {str(each.kind): (each.kind, each.optional) for each in LOADED}
    for name, each in ours.items():
        kind = Kind(each.group, each.version, each.kind, each.plural, False, Object)
        wanted.setdefault(name, (kind, True))
    missing: list[str] = []
    versions: list[str] = []
    for name, (kind, optional) in wanted.items():
        try:
            kind = await served(look.client, kind)
            if kind.versions:
                versions.append(f"{name} as {kind.version}")
        except RefusedError as error:
            if not error.missing:
                raise
            if not optional:
                return [Finding("fail", "definitions", f"the API server has no {kind}")]
            missing.append(name)
    custom = [name for name in missing if name in ours]
    found = [Finding("ok", "definitions", f"all {len(ours)} custom resources are there")]
    if custom:
        words = f"the API server has no {', '.join(custom)}: what needs them is off"
        found = [Finding("warn", "definitions", words, "kubectl apply -f deploy/crds")]
    others = [name for name in missing if name not in ours]
    if others:
        words = f"off in this Kubernetes, and so here: {', '.join(others)}"
        found.append(Finding("note", "gates", words))
    if versions:
        found.append(Finding("ok", "versions", f"the API server has {', '.join(versions)}"))
    return found


async def _rights(look: _Look) -> list[Finding]:
    """Each need of the roles, asked one by one of whoever runs this."""
    needs = [need for part in chosen(look.roles, ("*",)) for need in part.needs]
    asked = sorted({each for need in needs for each in _reviews(need)})
    many = asyncio.Semaphore(_AT_ONCE)

    async def allowed(review: _Review) -> bool:
        async with many:
            attributes = {k: v for k, v in review._asdict().items() if v}
            body = {
                "apiVersion": _REVIEWS.api_version,
                "kind": _REVIEWS.name,
                "spec": {"resourceAttributes": attributes},
            }
            return (await look.client.create(_REVIEWS, body)).status.allowed

    try:
        answers = await asyncio.gather(*map(allowed, asked))
    except RefusedError as error:
        if not error.missing:
            raise
        return [Finding("note", "rights", "the API server cannot be asked about rights")]
    refused = [str(each) for each, yes in zip(asked, answers, strict=True) if not yes]
    roles = ", ".join(look.roles)
    if refused:
        advice = "apply deploy/ (or run this as the service account of the companion)"
        words = f"{len(refused)} of {len(asked)} rights of {roles} are missing: {_names(refused)}"
        return [Finding("fail", "rights", words, advice)]
    return [Finding("ok", "rights", f"all {len(asked)} rights of {roles}")]


class _Review(NamedTuple):
    group: str
    resource: str
    subresource: str
    verb: str
    namespace: str
    name: str

    def __str__(self) -> str:
        where = f" in {self.namespace}" if self.namespace else ""
        sub = f"/{self.subresource}" if self.subresource else ""
        group = f".{self.group}" if self.group else ""
        return f"{self.verb} {self.resource}{sub}{group}{where}"


def _reviews(need: Need) -> Iterable[_Review]:
    resource, _, subresource = need.resource.partition("/")
    for verb in need.verbs:
        for name in need.names or ("",):
            yield _Review(need.group, resource, subresource, verb, need.namespace, name)


async def _schedulers(look: _Look) -> list[Finding]:
    ours = {profile.scheduler_name for profile in look.profiles}
    waits: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    gated = 0
    async for item in _all(look, _PODS):
        pod = item.spec
        (runs if pod.node_name else waits)[pod.scheduler_name] += 1
        gated += bool(pod.scheduling_gates and not pod.node_name)
    found = []
    others = [name for name in {*waits, *runs} if name and name not in ours]
    names = ", ".join(sorted(ours))
    mine = sum(waits[name] for name in ours), sum(runs[name] for name in ours)
    found.append(Finding("ok", "schedulers", f"{names}: {mine[1]} pods run, {mine[0]} wait"))
    for name in sorted(others)[:_MOST_NAMES]:
        words = f"{name} also places pods here: {runs[name]} run, {waits[name]} wait"
        found.append(Finding("note", "schedulers", words))
    if gated:
        found.append(Finding("note", "gates", f"{gated} pods wait for scheduling gates"))
    return found


async def _leases(look: _Look) -> list[Finding]:
    """Who leads, and how far the clocks of nodes are from ours: kubelet renews a lease with its
    own."""
    now_s = time.time()
    leaders: list[Finding] = []
    ahead: list[str] = []
    newest_s = 0.0
    names = {LEASE_NAMES[role] for role in look.roles} | {"kube-scheduler"}
    async for lease in _all(look, LEASES):
        renewed_s = instant_s(lease.spec.renew_time)
        if renewed_s is None:
            continue
        name, space = lease.metadata.name, lease.metadata.namespace
        if space == "kube-node-lease":
            newest_s = max(newest_s, renewed_s)
            if renewed_s > now_s + SKEW_S:
                ahead.append(f"{name} ({span(renewed_s - now_s)})")
        elif name in names and lease.spec.holder_identity:
            old = now_s - renewed_s > lease.spec.lease_duration_seconds
            state = f"until {span(now_s - renewed_s)} ago" if old else "now"
            words = f"{space}/{name} is held by {lease.spec.holder_identity} {state}"
            leaders.append(Finding("note", "leader", words))
    return [*leaders, *_clocks(now_s, newest_s, ahead)]


def _clocks(now_s: float, newest_s: float, ahead: list[str]) -> list[Finding]:
    if not newest_s:
        return [Finding("note", "clocks", "no node renews a lease: clocks cannot be compared")]
    advice = "let all machines follow the same time (NTP)"
    if ahead:
        words = f"the clocks of {len(ahead)} nodes are ahead of this one: {_names(ahead)}"
        return [Finding("warn", "clocks", words, advice)]
    if now_s - newest_s > RENEWED_S:
        words = f"no node renewed its lease for {span(now_s - newest_s)} by the clock of this host"
        return [Finding("warn", "clocks", words, f"look at the nodes, and {advice}")]
    return [Finding("ok", "clocks", "no node is ahead of this host")]


async def _nodes(look: _Look) -> list[Finding]:
    """Whether nodes are ready and report their load."""
    total, unready = 0, 0
    async for node in _all(look, _NODES):
        total += 1
        conditions = node.status.conditions
        unready += any(c.type == "Ready" and c.status != "True" for c in conditions)
    found = [
        Finding("warn" if unready else "ok", "nodes", f"{total} nodes, {unready} not ready")
        if total
        else Finding("warn", "nodes", "there is no node")
    ]
    plugins = {each.declared.name for profile in look.profiles for each in profile.enabled}
    if "LoadAwareScheduling" in plugins and total:
        found.append(await _load(look, total))
    return found


async def _load(look: _Look, nodes: int) -> Finding:
    now_s = time.time()
    fresh = 0
    try:
        async for metric in _all(look, _METRICS):
            reported_s = instant_s(metric.status.update_time)
            fresh += reported_s is not None and now_s - reported_s < _report_s(look)
    except RefusedError as error:
        if not error.missing:
            raise
    words = f"{fresh} of {nodes} nodes report their load"
    if fresh < nodes:
        return Finding("warn", "load", words, "run koordlet on all nodes, and the role manager")
    return Finding("ok", "load", words)


def _report_s(look: _Look) -> float:
    args = look.profiles[0].args.get("LoadAwareScheduling", {})
    value = args.get("nodeMetricExpirationSeconds", 180)
    return float(value) if isinstance(value, int | float) and value > 0 else 180.0


_CHECKS: tuple[Callable[[_Look], Coroutine[Any, Any, list[Finding]]], ...] = (
    _definitions,
    _rights,
    _schedulers,
    _leases,
    _nodes,
    _objects,
)


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMES])
    left = len(names) - _MOST_NAMES
    return f"{shown} and {left} more" if left > 0 else shown


def _lines(found: list[Finding]) -> list[str]:
    return columns(("", "ABOUT", "FOUND", "WHAT TO DO"), found)
