"""The controller of quota profiles on the fake API server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.kube import quota_shapes, shapes
from koord_scheduler.overcommit.quota_profile import tree_id
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.companion.running import NODES, cluster, companion, make, node, tree
from tests.fakekube import FakeKube, Fault
from tests.kube.worlds import World, until

PART = next(part for part in PARTS if part.name == "quotaprofile")
PROFILES = Kind("quota.koordinator.sh", "v1alpha1", "ElasticQuotaProfile", "elasticquotaprofiles",
                True, Object)  # fmt: skip
QUOTAS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas", True, Object)
PREFIX = "quota.scheduling.koordinator.sh/"


async def _profile(world: World, name: str = "p", **changes: Any) -> None:
    spec = {"quotaName": "root", "nodeSelector": {"matchLabels": {"zone": "a"}}, **changes}
    await make(world, PROFILES, {"metadata": {"name": name}, "spec": spec}, world.namespace)


def _quota(fake: FakeKube, world: World) -> dict[str, Any]:
    return tree(fake, "elasticquotas", "root", world.namespace)


def _least(fake: FakeKube, world: World) -> Any:
    return _quota(fake, world).get("spec", {}).get("min", {}).get("cpu")


def test_a_quota_follows_its_nodes() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART):
            await node(world, "n1", labels={"zone": "a"})
            await _profile(world, quotaLabels={"team": "x"})
            await until(lambda: _least(fake, world) == "10")
            made = _quota(fake, world)["metadata"]
            wanted = {f"{PREFIX}is-root": "true", f"{PREFIX}profile": "p", "team": "x"}
            assert wanted.items() <= made["labels"].items()
            assert made["labels"][f"{PREFIX}tree-id"] == tree_id(world.namespace, "p")
            profile = tree(fake, "elasticquotaprofiles", "p", world.namespace)["metadata"]
            assert profile["labels"][f"{PREFIX}tree-id"] == made["labels"][f"{PREFIX}tree-id"]

            await node(world, "n2", labels={"zone": "a"}, ready=False)
            await node(world, "n3", labels={"zone": "b"})
            await until(lambda: _least(fake, world) == "20")
            notes = _quota(fake, world)["metadata"]["annotations"]
            assert json.loads(notes[f"{PREFIX}unschedulable-resource"])["cpu"] == "10"
            assert json.loads(notes[f"{PREFIX}total-resource"])["cpu"] == "20"

            await world.client.patch(NODES, "n1", {"metadata": {"labels": {"zone": "c"}}})
            await until(lambda: _least(fake, world) == "10")

    asyncio.run(story())


def test_what_others_delete_or_change_comes_back_and_what_they_add_stays() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART) as made:
            await node(world, "n1", labels={"zone": "a"})
            await _profile(world)
            await until(lambda: _least(fake, world) == "10")
            await world.client.delete(QUOTAS, "root", world.namespace)
            await until(lambda: _least(fake, world) == "10")
            change = {
                "metadata": {"labels": {"mine": "1", f"{PREFIX}is-root": None}},
                "spec": {"min": {"cpu": "3", "other": "1"}, "max": {"cpu": 5}},
            }
            await world.client.patch(QUOTAS, "root", change, world.namespace)
            await until(lambda: _least(fake, world) == "10")
            spec, labels = _quota(fake, world)["spec"], _quota(fake, world)["metadata"]["labels"]
            assert set(spec["min"]) == {"cpu", "memory"} and spec["max"]["cpu"] != 5
            assert labels["mine"] == "1" and labels[f"{PREFIX}is-root"] == "true"
            junk = {"spec": {"min": {"other": "no quantity"}}}
            with pytest.raises(RefusedError, match="no quantity"):
                await world.client.patch(QUOTAS, "root", junk, world.namespace)
            # The profile goes, its quota stays.
            await world.client.delete(PROFILES, "p", world.namespace)
            await until(lambda: not made.context.watches.of(quota_shapes.QUOTA_PROFILES).objects)
            assert _quota(fake, world)

    asyncio.run(story())


def test_a_steady_state_is_not_written() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART) as made:
            await node(world, "n1", labels={"zone": "a"})
            await _profile(world)
            await until(lambda: _least(fake, world) == "10")
            before = sum(made.context.writes.tally.counts.values())
            for number in range(20):
                change = {"metadata": {"annotations": {"koordinator.sh/beat": str(number)}}}
                await world.client.patch(NODES, "n1", change)
            await node(world, "elsewhere", labels={"zone": "b"})
            nodes = made.context.watches.of(shapes.NODES)
            await until(lambda: len(nodes.objects) == 2)
            await asyncio.sleep(1.5)  # longer than changes of nodes settle
            assert sum(made.context.writes.tally.counts.values()) == before

    asyncio.run(story())


def test_a_refused_quota_is_told_and_tried_again() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART):
            path = QUOTAS.path(world.namespace)
            fake.faults.add(Fault(lambda what: what == f"POST {path}", status=403))
            await node(world, "n1", labels={"zone": "a"})
            await _profile(world)
            await until(lambda: _least(fake, world) == "10")
            events = fake.store._objects[fake.resource("events")].values()
            assert [each["reason"] for each in events] == ["CreateQuotaFailed"]

    asyncio.run(story())


def test_a_profile_that_cannot_be_used_says_why() -> None:
    async def story() -> None:
        async with cluster() as (world, fake), companion(world, PART):
            await _profile(world, resourceRatio="2")
            await until(lambda: _least(fake, world) == "0")

            def told() -> list[str]:
                events = fake.store._objects.get(fake.resource("events"), {}).values()
                return [each["message"] for each in events]

            await until(lambda: len(told()) == 1)
            assert "resourceRatio" in told()[0]

    asyncio.run(story())


def test_beside_the_webhooks_which_read_quotas_and_profiles_too() -> None:
    """All parts of a process share one watch of a kind, and so one shape."""

    async def story() -> None:
        every = [part for part in PARTS if part.name in ("webhook", "quotaprofile")]
        extra = {"feature_gates": "MultiQuotaTree=true", "webhook_addr": "127.0.0.1:0"}
        async with cluster() as (world, fake), companion(world, *every, **extra):
            await node(world, "n1", labels={"zone": "a"})
            await _profile(world)
            await until(lambda: _least(fake, world) == "10")

    asyncio.run(story())
