"""Quotas and pods for tests: CPU in cores, everything else as it is."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.share.quota.quotas import Quotas
from koord_scheduler.share.quota.words import ElasticQuotaArgs, Quota, QuotaGates
from koordlet.protocol.objects.quota import ROOT

_numbers = itertools.count(1)
NAME = "quota.scheduling.koordinator.sh/name"
PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"


def amounts(cpu: float | None = None, memory: int | None = None, **more: int) -> dict[str, int]:
    found = dict(more)
    if cpu is not None:
        found["cpu"] = round(cpu * 1000)
    if memory is not None:
        found["memory"] = memory
    return found


def quota(
    name: str,
    least: Mapping[str, int],
    most: Mapping[str, int],
    parent: str = ROOT,
    *,
    weight: Mapping[str, int] | None = None,
    **more: Any,
) -> Quota:
    return Quota(
        name=name, namespace="q", min=least, max=most, parent=parent,
        weight=most if weight is None else weight, **more,
    )  # fmt: skip


def pod_class(requests: Mapping[str, int], quota: str = "", **more: Any) -> PodClass:
    labels = dict(more.pop("labels", {}))
    if quota:
        labels[NAME] = quota
    namespace = more.pop("namespace", "default")
    return PodClass(
        number=next(_numbers), namespace=namespace, labels=labels, requests=requests, **more
    )


def pod(name: str, cls: PodClass, **more: Any) -> Pod:
    return Pod(key=f"{cls.namespace}/{name}", uid=name, cls=cls, **more)


class World:
    """One node that has everything, and quotas on it."""

    def __init__(
        self, total: Mapping[str, int], *quotas: Quota, gates: Any = (), **args: Any
    ) -> None:
        self.cluster = Cluster()
        self.quotas = Quotas(ElasticQuotaArgs(**args), QuotaGates(**dict(gates)))
        self.quotas.follow(self.cluster)
        self.total(total)
        for each in quotas:
            self.quotas.set_quota(each)

    def total(self, total: Mapping[str, int]) -> None:
        self.cluster.set_node(Node(name="n", allocatable=total))

    def request(self, quota: str, requests: Mapping[str, int], name: str = "") -> Pod:
        """One waiting pod of a quota."""
        made = pod(name or f"p{next(_numbers)}", pod_class(requests, quota))
        self.quotas.wait(made)
        return made

    def run(self, made: Pod, since_s: float = 0.0) -> None:
        self.cluster.add(Claim(made, "n", since_s))

    def runtime(self, quota: str, resource: str = "cpu") -> int:
        found = self.quotas.share(quota)
        assert found is not None
        return found[0].runtime_of(found[1]).get(resource, 0)

    def cores(self, *quotas: str) -> list[float]:
        return [self.runtime(each) / 1000 for each in quotas]
