"""Which pods a recommendation is about, and what one container of a pod uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from koordlet.protocol.errors import Problem
from koordlet.protocol.objects.recommendation import RecommendationTarget
from koordlet.protocol.selector import matches, selector_problems

_JOB_OF_A_CRON_JOB = re.compile(r"(.+)-\d{8,11}", re.ASCII)
_HASHES = (
    ("pod-template-hash", "Deployment", "apps"),
    ("rollouts-pod-template-hash", "Rollout", "argoproj.io"),
)


class Owner(NamedTuple):
    """``group`` is that of the API, without the version."""

    group: str
    kind: str
    name: str


def workloads(owners: Iterable[tuple[str, str, str]], labels: Mapping[str, str]) -> list[Owner]:
    """The workloads that a pod belongs to, from its owners (apiVersion, kind, name).

    A ReplicaSet of a Deployment has the Deployment's name and the hash that each of its pods has
    as a label, a Job of a CronJob the CronJob's name and a time, so nobody has to ask for them.
    """
    found = []
    for api_version, kind, name in owners:
        group = api_version.rpartition("/")[0]
        found.append(Owner(group, kind, name))
        if kind == "ReplicaSet":
            for label, above, its_group in _HASHES:
                end = f"-{labels.get(label, '')}"
                if len(end) > 1 and name.endswith(end) and len(name) > len(end):
                    found.append(Owner(its_group, above, name.removesuffix(end)))
        elif kind == "Job" and (match := _JOB_OF_A_CRON_JOB.fullmatch(name)):
            found.append(Owner("batch", "CronJob", match[1]))
    return found


def target_problems(target: RecommendationTarget) -> list[Problem]:
    """Why nothing can be recommended for it; empty where it is good."""
    if target.type == "workload":
        workload = target.workload
        if workload is None or not workload.kind or not workload.name:
            where = "spec.target.workload"
            return [Problem(where, "type workload needs its kind and its name")]
        return []
    if target.pod_selector is None:
        return [Problem("spec.target.podSelector", "type podSelector needs a selector")]
    return list(selector_problems(target.pod_selector, "spec.target.podSelector"))


def is_about(
    target: RecommendationTarget, owners: Sequence[Owner], labels: Mapping[str, str]
) -> bool:
    """Whether a pod of the target's namespace with these workloads and labels is meant."""
    if target.type == "podSelector":
        return target.pod_selector is not None and matches(target.pod_selector, labels)
    wanted = target.workload
    if wanted is None:
        return False
    group = wanted.api_version.rpartition("/")[0]
    return any(
        each.kind == wanted.kind
        and each.name == wanted.name
        and (not wanted.api_version or each.group == group)
        for each in owners
    )


class Container(NamedTuple):
    """What a container of a pod asks for; 0 where it asks for nothing."""

    name: str
    cpu_milli: int
    memory_bytes: int


class ContainerUsage(NamedTuple):
    name: str
    cpu_milli: float
    memory_bytes: float


def divided(
    containers: Sequence[Container], cpu_milli: float, memory_bytes: float
) -> list[ContainerUsage]:
    """What each container uses of what its pod uses.

    A NodeMetric tells of pods, not of containers. Of several containers each gets the share that
    it asks for, or all the same where one asks for nothing.
    """
    cpu = _shares([each.cpu_milli for each in containers])
    memory = _shares([each.memory_bytes for each in containers])
    return [
        ContainerUsage(each.name, cpu_milli * of_cpu, memory_bytes * of_memory)
        for each, of_cpu, of_memory in zip(containers, cpu, memory, strict=True)
    ]


def _shares(requests: list[int]) -> list[float]:
    if not all(requests):
        return [1 / len(requests)] * len(requests)
    total = sum(requests)
    return [each / total for each in requests]
