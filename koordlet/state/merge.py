"""What several sources know about one pod, put together. Pure.

The first source that knows a field decides it, so the order of the sources is their rank. Labels
and annotations change while a pod lives: those reported last count. A container without an id is
one that a pod's spec names, or was reported before it was created: what was asked for it counts for
the container of its name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.snapshot import Container, Resources
from koordlet.kernel.cgroup.kubepods import classify

_T = TypeVar("_T", PodFacts, ContainerFacts)

_LIVE = ("labels", "annotations")
_OF_NAME = ("requested", "resources")


def bare_id(container_id: str) -> str:
    """``containerd://<hash>`` and ``<hash>`` name the same container."""
    return container_id.rpartition("://")[2]


def container_key(container: ContainerFacts) -> str:
    """What identifies a container in its pod: the bare id, else the name (no id looks like one)."""
    return bare_id(container.id) or f"/{container.name or ''}"


def merge_pod(known: Sequence[tuple[str, PodFacts]]) -> tuple[PodFacts, dict[str, str]]:
    """``known``: (source name, facts) in rank order, at least one, all of the same pod.

    Returns the merged facts, containers sorted by id, and field -> source name. The class follows
    from the cgroup where no source has it.
    """
    merged, origins = _first_known(list(known), {"containers", "as_of", *_LIVE})
    merged = _last_told(known, merged, origins)
    if merged.kube_qos is None and merged.cgroup is not None:
        merged = msgspec.structs.replace(merged, kube_qos=classify(merged.cgroup))
        origins["kube_qos"] = origins["cgroup"]
    containers: dict[str, list[tuple[str, ContainerFacts]]] = {}
    by_name: dict[str, list[tuple[str, ContainerFacts]]] = {}
    for origin, facts in known:
        for container in facts.containers:
            if not container.id:
                by_name.setdefault(container.name or "", []).append((origin, container))
                continue
            containers.setdefault(bare_id(container.id), []).append((origin, container))
    merged_containers = []
    for bare in sorted(containers):
        group = containers[bare]
        container, container_origins = _first_known(group, {"id"})
        for origin, before in by_name.get(container.name or "", ()) if container.name else ():
            container = _with_asked_for(container, before, origin, container_origins)
        full_id = next((facts.id for _, facts in group if "://" in facts.id), bare)
        # Ids of sandboxes and containers differ: one source that knows is enough.
        sandbox = any(facts.is_sandbox for _, facts in group) or container.is_sandbox
        merged_containers.append(msgspec.structs.replace(container, id=full_id, is_sandbox=sandbox))
        origins.update({f"containers.{bare}.{k}": v for k, v in container_origins.items()})
    return msgspec.structs.replace(merged, containers=tuple(merged_containers)), origins


def _with_asked_for(
    container: ContainerFacts, before: ContainerFacts, origin: str, origins: dict[str, str]
) -> ContainerFacts:
    """With what ``origin`` knew of its name before it had an id, where nobody knows it of the
    container itself."""
    for field in _OF_NAME:
        value = getattr(before, field)
        if getattr(container, field) is None and value is not None:
            container = msgspec.structs.replace(container, **{field: value})
            origins[field] = origin
    return container


def containers_of(facts: PodFacts) -> tuple[Container, ...]:
    """Containers whose cgroup is known: without it nothing can be measured or set."""
    return tuple(
        Container(
            id=container.id,
            cgroup=container.cgroup,
            name=container.name or "",
            is_sandbox=container.is_sandbox,
            resources=container.resources or Resources(),
            requested=container.requested or {},
            given=container.given,
            inner=container.inner or "",
        )
        for container in facts.containers
        if container.cgroup is not None
    )


def _last_told(
    known: Sequence[tuple[str, PodFacts]], merged: PodFacts, origins: dict[str, str]
) -> PodFacts:
    """Among facts of the same age, and among those without a time, the first counts."""
    values: dict[str, Any] = {}
    for field in _LIVE:
        reported = [(origin, facts) for origin, facts in known if getattr(facts, field) is not None]
        if reported:
            origin, facts = max(reported, key=lambda each: _time(each[1]))
            values[field], origins[field] = getattr(facts, field), origin
    as_of = max((_time(facts) for _, facts in known), default=-math.inf)
    return msgspec.structs.replace(
        merged,
        labels=values.get("labels"),
        annotations=values.get("annotations"),
        as_of=as_of if as_of > -math.inf else None,
    )


def _time(facts: PodFacts) -> float:
    return -math.inf if facts.as_of is None else facts.as_of


def _first_known(known: list[tuple[str, _T]], without: set[str]) -> tuple[_T, dict[str, str]]:
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for field in known[0][1].__struct_fields__:
        if field in without:
            continue
        for origin, facts in known:
            value = getattr(facts, field)
            if value is not None:
                values[field] = value
                if field != "uid":
                    origins[field] = origin
                break
    return msgspec.structs.replace(known[0][1], **values), origins
