"""Small worlds for tests of the descheduler."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from koord_scheduler.balance.round import Counts, Limits, Outcome, Running, run_round
from koord_scheduler.balance.world import Details, NodeUsage, Resident, Workload, World
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Owner, Pod, PodClass
from koordlet.protocol.qos import PriorityClass, QoSClass

_numbers = itertools.count(1)
NOW_S = 1_000_000.0
NO_LIMITS = Limits()


def pod(name: str, node: str = "", namespace: str = "default", **changes: Any) -> Resident:
    """``changes`` are of Pod, PodClass or Details."""
    owner = changes.pop("owner", Owner("ReplicaSet", "rs", "rs-uid", "apps/v1"))
    details = {key: changes.pop(key) for key in Details.__struct_fields__ if key in changes}
    of_pod = {key: changes.pop(key) for key in Pod.__struct_fields__ if key in changes}
    cls = PodClass(
        number=next(_numbers),
        namespace=namespace,
        labels=of_pod.get("labels", {}),
        **{"priority_class": PriorityClass.PROD, "qos": QoSClass.LS, **changes},
    )
    made = Pod(
        key=f"{namespace}/{name}",
        uid=of_pod.pop("uid", f"uid-{name}"),
        cls=cls,
        node=node,
        owner=owner,
        **{"phase": "Running", "ready": True, "scheduler": "koord-scheduler", **of_pod},
    )
    return Resident(made, Details(**details))


def node(name: str, cpu: int = 4000, memory: int = 3000, pods: int = 10, **changes: Any) -> Node:
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods}
    return Node(name=name, **{"allocatable": allocatable, **changes})


def world(
    nodes: Iterable[Node],
    residents: Iterable[Resident],
    usage: Mapping[str, Mapping[str, int]] | None = None,
    **changes: Any,
) -> World:
    """``usage`` is that of pods by name; None: what they ask for."""
    by_node: dict[str, list[Resident]] = {}
    for each in residents:
        by_node.setdefault(each.pod.node, []).append(each)
    reports = {}
    made = list(nodes)
    for each in made:
        used = {}
        for resident in by_node.get(each.name, ()):
            if usage is None:
                used[resident.pod.key] = resident.requests
            elif resident.name in usage:
                used[resident.pod.key] = usage[resident.name]
        reports[each.name] = NodeUsage(NOW_S - 10, {}, used)
    return World(
        **{
            "now_s": NOW_S,
            "nodes": {each.name: each for each in made},
            "residents": {name: tuple(found) for name, found in by_node.items()},
            "usage": reports,
            **changes,
        }
    )


def workloads(**replicas: int) -> Any:
    """Controllers by uid (``_`` for ``-``), each of which is its own workload."""
    found = {
        uid.replace("_", "-"): Workload(
            uid.replace("_", "-"), "ReplicaSet", uid, count, frozenset({uid.replace("_", "-")})
        )
        for uid, count in replicas.items()
    }
    return lambda _namespace, owner: found.get(owner.uid)


class Simple:
    """A filter and an evictor: refuses what is named, admits all else."""

    name = "Simple"
    dry_run = False
    reserves = False

    def __init__(self, *refused: str) -> None:
        self.refused = refused

    def refusal(self, _world: World, resident: Resident) -> str | None:
        return "refused" if resident.name in self.refused or resident.details.static else None

    def before(self, _world: World, _resident: Resident) -> str | None:
        return None

    def admit(self, _world: World, _resident: Resident) -> str | None:
        return None


def run(
    seen: World,
    *plugins: Any,
    evictor: Any = None,
    limits: Limits = NO_LIMITS,
    filters: tuple[Any, ...] | None = None,
    **changes: Any,
) -> Outcome:
    evictor = evictor or Simple()
    found = filters if filters is not None else (evictor,)
    profile = Running("test", None, (), tuple(plugins), found, evictor)
    return run_round(seen, (profile,), limits, **changes)


def names(outcome: Outcome) -> list[str]:
    return [each.resident.name for each in outcome.requests]


__all__ = ["NOW_S", "Counts", "Limits", "names", "node", "pod", "run", "workloads", "world"]
