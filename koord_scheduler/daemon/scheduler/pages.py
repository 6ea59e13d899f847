"""What the scheduler answers over HTTP: services of the reference under its paths
(docs/reference/central.md 9.2). Only the process that leads answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.plan import explain
from koord_scheduler.plan.evaluator import PluginError
from koord_scheduler.services.http import Reply, Request, Route
from koord_scheduler.share.gang.summary import summaries as gang_summaries
from koord_scheduler.share.gang.summary import summary as gang_summary
from koord_scheduler.share.quota.views import summaries as quota_summaries
from koord_scheduler.share.quota.views import summary_of as quota_summary

BASE = "/apis/v1"
_NOT_LEADING = {"message": "the instance is not leader"}
_AFFINITY = ("affinity", "anti_affinity", "preferred_affinity", "preferred_anti_affinity")
NON_ZERO = {"cpu": 100, "memory": 200 * 1024 * 1024}
"""What a pod that asks for none counts with in ``nonZeroRequested``, as in kube-scheduler."""


class NotFoundError(Exception):
    """The text is the reply's message."""


class Service(NamedTuple):
    """``answer`` gives what becomes JSON. Raises NotFoundError, and ValueError where the thing is
    there and nothing can be said of it."""

    path: str
    answer: Callable[[Scheduler, Request], Any]


def node(scheduler: Scheduler, request: Request) -> dict[str, Any]:
    cluster, name = scheduler.cluster, request.names["node"]
    row = cluster.row.get(name)
    known = cluster.nodes[row] if row is not None else None
    if row is None or known is None:
        raise NotFoundError(f"cannot find node {name}")
    names = cluster.columns.names
    allocatable = _amounts(names, cluster.allocatable[row])
    requested = _amounts(names, cluster.requested[row])
    claims = [claim for claim in cluster.claims_on(row).values() if not claim.pod.holds]
    non_zero = {
        resource: sum(claim.pod.cls.requests.get(resource, 0) or least for claim in claims)
        for resource, least in NON_ZERO.items()
    }
    return {
        "node": msgspec.to_builtins(known),
        "pods": [claim.pod.key for claim in claims],
        "podsWithAffinity": [
            claim.pod.key
            for claim in claims
            if any(getattr(claim.pod.cls, each) for each in _AFFINITY)
        ],
        "podsWithRequiredAntiAffinity": [
            claim.pod.key for claim in claims if claim.pod.cls.anti_affinity
        ],
        "usedPorts": [port._asdict() for claim in claims for port in claim.pod.cls.ports],
        "requested": requested,
        "nonZeroRequested": non_zero,
        "remaining": {n: allocatable.get(n, 0) - requested.get(n, 0) for n in allocatable},
        "allocatable": allocatable,
        "imageStates": {},
        "pvcRefCounts": {},
        "generation": cluster.version,
    }


def gang(scheduler: Scheduler, request: Request) -> Any:
    book = scheduler.parts.gangs
    name = f"{request.names['namespace']}/{request.names['name']}"
    found = gang_summary(book, name, scheduler.assumed) if book is not None else None
    if found is None:
        raise NotFoundError(f"cannot find gang {name}")
    return found


def all_gangs(scheduler: Scheduler, request: Request) -> Any:
    book = scheduler.parts.gangs
    return gang_summaries(book, scheduler.assumed) if book is not None else {}


def quota(scheduler: Scheduler, request: Request) -> Any:
    quotas, name = scheduler.parts.quotas, request.names["name"]
    found = quotas.share(name) if quotas is not None else None
    if quotas is None or found is None:
        raise NotFoundError(f"cannot find quota {name}")
    return quota_summary(quotas, *found, pods=_flag(request, "includePods"))


def all_quotas(scheduler: Scheduler, request: Request) -> Any:
    quotas = scheduler.parts.quotas
    if quotas is None:
        return {}
    return quota_summaries(
        quotas, request.query.get("tree", ""), pods=_flag(request, "includePods")
    )


def waiting(scheduler: Scheduler, request: Request) -> Any:
    """Not of the reference: who waits, for what, and how many are ahead."""
    return {
        name: {
            "state": position.state.value,
            "ahead": position.ahead,
            "attempts": position.attempts,
            "waitsFor": list(position.waits_for),
        }
        for name, position in scheduler.queue.positions(_MOST_ROWS).items()
    }


def why(scheduler: Scheduler, request: Request) -> Any:
    """Not of the reference: all reasons against all nodes for one pod that waits."""
    key = f"{request.names['namespace']}/{request.names['name']}"
    pod = scheduler.waiting.get(key)
    if pod is None:
        raise NotFoundError(f"pod {key} does not wait for this scheduler")
    return msgspec.to_builtins(explain.explain(scheduler.parts.engines[pod.scheduler], pod))


_MOST_ROWS = 10_000
_PLUGINS = f"{BASE}/plugins"
SERVICES: tuple[Service, ...] = (
    Service(f"{BASE}/nodes/{{node}}", node),
    Service(f"{_PLUGINS}/Coscheduling/gang/{{namespace}}/{{name}}", gang),
    Service(f"{_PLUGINS}/Coscheduling/gangs", all_gangs),
    Service(f"{_PLUGINS}/ElasticQuota/quotas/{{name}}", quota),
    Service(f"{_PLUGINS}/ElasticQuota/quotas", all_quotas),
    Service(f"{BASE}/queue", waiting),
    Service(f"{BASE}/explain/{{namespace}}/{{name}}", why),
)


def routes(scheduler: Scheduler) -> list[Route]:
    """``summaries`` of plugins come in their ``services``: path below the plugin -> answer."""
    services = [*SERVICES, *_of_plugins(scheduler)]
    paths = sorted(each.path for each in services)

    def listing(_scheduler: Scheduler, _request: Request) -> Any:
        return {"GET": [_as_reference(path) for path in paths]}

    services.append(Service(f"{BASE}/__services__", listing))
    return [Route("GET", each.path, _replying(scheduler, each)) for each in services]


def _of_plugins(scheduler: Scheduler) -> list[Service]:
    """A plugin that has ``services`` offers them: path below its own -> ``f(cluster, names) ->
    JSON | None``, where None means that there is no such thing."""
    found: dict[str, Service] = {}
    for engine in scheduler.parts.engines.values():
        for plugin, _ in engine.plugins:
            offered: Mapping[str, Callable[[Cluster, Mapping[str, str]], Any]]
            offered = getattr(plugin, "services", {})
            for path, answer in offered.items():
                whole = f"{_PLUGINS}/{plugin.name}/{path}"
                found.setdefault(whole, Service(whole, _answering(answer)))
    return list(found.values())


def _answering(
    answer: Callable[[Cluster, Mapping[str, str]], Any],
) -> Callable[[Scheduler, Request], Any]:
    def call(scheduler: Scheduler, request: Request) -> Any:
        found = answer(scheduler.cluster, {**request.query, **request.names})
        if found is None:
            raise NotFoundError(f"cannot find {'/'.join(request.names.values())}")
        return found

    return call


def _replying(scheduler: Scheduler, service: Service) -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        if not scheduler.context.leads():
            return _json(503, _NOT_LEADING)
        try:
            return _json(200, service.answer(scheduler, request))
        except NotFoundError as error:
            return _json(404, {"message": str(error)})
        except (PluginError, ValueError) as error:
            return _json(500, {"message": str(error)})

    return reply


def _json(status: int, value: Any) -> Reply:
    return Reply(status, msgspec.json.encode(value).decode())


def _as_reference(path: str) -> str:
    return path.replace("{", ":").replace("}", "")


def _amounts(names: list[str], row: Any) -> dict[str, int]:
    return {name: int(n) for name, n in zip(names, row.tolist(), strict=True) if n}


def _flag(request: Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("true", "1")
