"""What each request does, and how it fails."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from koordlet.kube.answers import decoded
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster, Material
from koordlet.kube.errors import (
    KubeError,
    NoAnswerError,
    NotSentError,
    RefusedError,
    UnusableError,
)
from tests.fakekube import Fault
from tests.kube.kinds import BUDGETS, CONFIG_MAPS, PODS
from tests.kube.worlds import OpenWorld, World, fake_world

POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "localhost/none:1"}]},
}


async def refused(coroutine: object) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await coroutine  # type: ignore[misc]
    return caught.value


def test_an_object_from_its_creation_to_its_end(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            client, space = world.client, world.namespace
            made = await client.create(
                CONFIG_MAPS, {"metadata": {"name": "a"}, "data": {"v": "1"}}, space
            )
            assert (made.metadata.name, made.metadata.namespace) == ("a", space)
            assert made.metadata.uid and made.metadata.resource_version
            assert (
                await refused(client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, space))
            ).exists
            patched = await client.patch(CONFIG_MAPS, "a", {"data": {"w": "2"}}, space)
            assert patched.data == {"v": "1", "w": "2"}
            cleared = await client.patch(CONFIG_MAPS, "a", {"data": {"v": None}}, space)
            assert cleared.data == {"w": "2"}
            again = await client.patch(CONFIG_MAPS, "a", {"data": {"w": "2"}}, space)
            assert again.metadata.resource_version == cleared.metadata.resource_version
            await client.delete(CONFIG_MAPS, "a", space, uid=made.metadata.uid)
            assert (await refused(client.get(CONFIG_MAPS, "a", space))).missing

    asyncio.run(run())


def test_who_read_an_old_version_cannot_replace_or_patch_it(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            client, space = world.client, world.namespace
            await world.put("a", "1")
            old = await client.get(CONFIG_MAPS, "a", space)
            await world.put("a", "2")
            meta = {"name": "a", "resourceVersion": old.metadata.resource_version}
            body = {"metadata": meta, "data": {"v": "3"}}
            assert (await refused(client.replace(CONFIG_MAPS, "a", body, space))).conflict
            assert (await refused(client.patch(CONFIG_MAPS, "a", body, space))).conflict
            assert (await client.get(CONFIG_MAPS, "a", space)).data == {"v": "2"}

    asyncio.run(run())


def test_an_object_of_another_uid_is_left_alone(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            client, space = world.client, world.namespace
            await world.put("a", "1")
            foreign = "11111111-2222-3333-4444-555555555555"
            assert (await refused(client.delete(CONFIG_MAPS, "a", space, uid=foreign))).conflict
            patch = {"metadata": {"uid": foreign}, "data": {"v": "2"}}
            assert (await refused(client.patch(CONFIG_MAPS, "a", patch, space))).status in (
                409,
                422,
            )
            assert (await client.get(CONFIG_MAPS, "a", space)).data == {"v": "1"}

    asyncio.run(run())


async def _pod(world: World) -> str:
    made = await world.client.create(PODS, POD, world.namespace)
    return made.metadata.uid


def test_binding_writes_node_and_annotations_at_once(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            client, space = world.client, world.namespace
            uid = await _pod(world)
            foreign = "11111111-2222-3333-4444-555555555555"
            assert (await refused(client.bind(space, "p", "n1", uid=foreign))).conflict
            await client.bind(space, "p", "n1", uid=uid, annotations={"k": "v"})
            pod = await client.get(PODS, "p", space)
            assert (pod.spec.node_name, pod.metadata.annotations["k"]) == ("n1", "v")
            assert (await refused(client.bind(space, "p", "n2", uid=uid))).conflict
            assert (await client.get(PODS, "p", space)).spec.node_name == "n1"

    asyncio.run(run())


async def _allows(world: World, disruptions: int, generation: int) -> None:
    """As the controller of disruption budgets would say."""
    status = {
        "observedGeneration": generation,
        "disruptionsAllowed": disruptions,
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "expectedPods": 1,
    }
    await world.client.patch(
        BUDGETS, "b", {"status": status}, world.namespace, subresource="status"
    )


def test_eviction_asks_the_disruption_budget(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            space = world.namespace
            made = await world.client.create(
                PODS, {**POD, "metadata": {"name": "p", "labels": {"app": "a"}}}, space
            )
            uid = made.metadata.uid
            await world.client.bind(space, "p", "n1", uid=uid)
            ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
            await world.client.patch(PODS, "p", {"status": ready}, space, subresource="status")
            budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
            made = await world.client.create(
                BUDGETS, {"metadata": {"name": "b"}, "spec": budget}, space
            )
            await _allows(world, 0, made.metadata.generation)
            assert (await refused(world.client.evict(space, "p", uid=uid))).throttled
            await _allows(world, 1, made.metadata.generation)
            await world.client.evict(space, "p", uid=uid, grace_s=0)
            assert (await refused(world.client.get(PODS, "p", space))).missing

    asyncio.run(run())


def test_a_write_without_an_answer_may_have_happened() -> None:
    """Told apart from one that no server took."""

    async def run() -> None:
        async with fake_world() as (world, fake):
            await world.put("a", "1")
            fake.faults.add(Fault(lambda what: what.startswith("PATCH"), after_s=None))
            async with Client(world.cluster, deadline_s=0.3) as client:
                with pytest.raises(NoAnswerError, match=r"PATCH .*: no answer in time"):
                    await client.patch(CONFIG_MAPS, "a", {"data": {"v": "2"}}, world.namespace)
            assert (await world.client.get(CONFIG_MAPS, "a", world.namespace)).data == {"v": "2"}
            fake.faults.add(Fault(lambda what: what.startswith("PATCH"), drop=True))
            with pytest.raises(NoAnswerError):
                await world.client.patch(CONFIG_MAPS, "a", {"data": {"v": "3"}}, world.namespace)
        async with Client(world.cluster, deadline_s=2.0) as client:
            with pytest.raises(NotSentError, match="PATCH"):
                await client.patch(CONFIG_MAPS, "a", {"data": {"v": "4"}}, world.namespace)

    asyncio.run(run())


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"metadata": 1}', b"\xff"])
def test_an_answer_that_is_none(body: bytes) -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            await world.put("a", "1")
            fake.faults.add(Fault(lambda what: what.startswith("GET"), body=body))
            with pytest.raises(UnusableError):
                await world.client.get(CONFIG_MAPS, "a", world.namespace)

    asyncio.run(run())


def test_a_refusal_says_when_to_come_again() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.add(Fault(lambda what: True, status=429, retry_after_s=7))
            error = await refused(world.client.get(CONFIG_MAPS, "a", world.namespace))
            assert error.throttled and error.passing and error.retry_after_s == 7
            assert "GET /api/v1/namespaces" in str(error)

    asyncio.run(run())


def test_a_renewed_token_is_used_after_a_refusal(tmp_path: Path) -> None:
    async def run() -> None:
        file = tmp_path / "token"
        file.write_text("old\n")
        async with fake_world() as (world, fake):
            cluster = Cluster(fake.url, "the test", token=Material(str(file)))
            fake.faults.token = "old"
            async with Client(cluster) as client:
                await client.raw("/version")
                fake.faults.token = "new"
                file.write_text("new\n")
                assert (await refused(client.raw("/api/v1/nodes"))).status == 401
                await client.raw("/api/v1/nodes")
            assert "old" not in repr(client.cluster) and world.namespace

    asyncio.run(run())


def test_requests_beyond_the_budget_wait_and_do_not_wait_for_ever() -> None:
    async def run() -> None:
        async with (
            fake_world() as (world, _),
            Client(world.cluster, per_second=0.01, burst=2, deadline_s=0.3) as client,
        ):
            await client.raw("/version")
            await client.raw("/version")
            with pytest.raises(NotSentError, match="wait already"):
                await client.raw("/version")

    asyncio.run(run())


def test_the_wait_for_the_budget_counts_towards_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        async with fake_world() as (world, _), Client(world.cluster, deadline_s=60.0) as client:
            given: list[float] = []
            send = client._send

            def watched(*args: Any, timeout: aiohttp.ClientTimeout, **more: Any) -> Any:
                given.append(timeout.total or 0.0)
                return send(*args, timeout=timeout, **more)

            async def slow(_: object) -> None:
                await asyncio.sleep(0.2)

            monkeypatch.setattr(client, "_send", watched)
            monkeypatch.setattr(client._budget, "take", slow)
            await client.raw("/version")
            assert 0 < given[0] <= 59.8

    asyncio.run(run())


def test_an_object_of_more_levels_than_python_has_frames_is_read() -> None:
    deep = b"[" * 5000 + b"]" * 5000
    found = decoded(CONFIG_MAPS, b'{"metadata":{"name":"a"},"more":' + deep + b"}")
    assert found.metadata.name == "a"
    with pytest.raises(UnusableError):
        decoded(CONFIG_MAPS, b'{"metadata":{"name":"a"},"more":' + deep)


def test_names_are_no_paths() -> None:
    async def run() -> None:
        async with fake_world() as (world, _):
            with pytest.raises(KubeError):
                await world.client.get(CONFIG_MAPS, "../../../nodes", world.namespace)
            with pytest.raises(ValueError, match="called"):
                await world.client.get(CONFIG_MAPS, "..", world.namespace)
            with pytest.raises(ValueError, match="needs a namespace"):
                await world.client.get(CONFIG_MAPS, "a")

    asyncio.run(run())
