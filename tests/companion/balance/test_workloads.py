"""Replicas of workloads, by whatever owner a pod claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koord_scheduler.balance.world import Workload
from koord_scheduler.daemon.descheduler.workloads import Workloads
from koord_scheduler.model.cluster.pods import Owner


class _Client:
    def __init__(self) -> None:
        self.asked: list[str] = []

    async def tree(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if path.endswith("/scale"):
            return {"spec": {"replicas": 3}}
        kinds = {"CloneSet": "clonesets", "ReplicationController": "replicationcontrollers"}
        found = [{"kind": kind, "name": name} for kind, name in kinds.items()]
        return {"resources": found}


def _asked(version: str, kind: str, name: str = "web") -> tuple[list[str], int | None]:
    async def ask() -> tuple[list[str], int | None]:
        client: Any = _Client()
        workloads = Workloads(dict, dict, dict, lambda: 0.0)
        owner = Owner(kind=kind, name=name, uid="u", api_version=version)
        assert workloads.find("default", owner) is None
        await workloads.look_up(client)
        found = workloads.find("default", owner)
        return client.asked, found.replicas if found is not None else None

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("version", "kind"),
    [("apps.kruise.io/v1alpha1", "CloneSet"), ("v1", "ReplicationController")],
)
def test_workloads_of_other_kinds_are_looked_up_by_their_scale(version: str, kind: str) -> None:
    assert _asked(version, kind)[1] == 3


@pytest.mark.parametrize("version", ["example.com/v1", "apps/../../api/v1", "apps/v1?x=", "v2/v1"])
def test_no_other_group_is_asked_for(version: str) -> None:
    assert _asked(version, "CloneSet") == ([], None)


def test_the_name_of_an_owner_leads_nowhere_else() -> None:
    asked, _ = _asked("v1", "ReplicationController", "../secrets/x?")
    assert "/secrets/" not in asked[-1] and "?" not in asked[-1]


IGNORES: dict[str, Any] = {
    "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
}


@pytest.mark.parametrize(
    ("spec", "status", "replicas", "left"),
    [
        ({}, {}, 1, 6),
        ({"parallelism": 5, "completions": 20}, {"succeeded": 3, "failed": 2}, 5, 4),
        ({"parallelism": 5, "completions": 20}, {"succeeded": 18}, 2, 6),
        ({"parallelism": 5, "backoffLimit": 1}, {"failed": 3}, 5, 0),
        ({"parallelism": 5, "backoffLimit": 0, "podFailurePolicy": IGNORES}, {}, 5, None),
    ],
)
def test_a_job_is_read_itself(
    spec: dict[str, Any], status: dict[str, Any], replicas: int, left: int | None
) -> None:
    class Batch:
        async def tree(self, path: str) -> dict[str, Any]:
            assert path == "/apis/batch/v1/namespaces/default/jobs/train"
            return {"metadata": {"uid": "u"}, "spec": spec, "status": status}

    async def ask(uid: str) -> Workload | None:
        client: Any = Batch()
        workloads = Workloads(dict, dict, dict, lambda: 0.0)
        owner = Owner(kind="Job", name="train", uid=uid, api_version="batch/v1")
        assert workloads.find("default", owner) is None
        await workloads.look_up(client)
        return workloads.find("default", owner)

    found = asyncio.run(ask("u"))
    assert found == Workload("u", "Job", "train", replicas, frozenset(("u",)), left)
    assert asyncio.run(ask("another")) is None
