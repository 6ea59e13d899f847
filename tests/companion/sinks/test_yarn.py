"""The controller between a fake API server and a fake ResourceManager."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.daemon import yarn as controller
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.daemon.yarn import Setup
from koord_scheduler.kube import shapes
from koord_scheduler.kube.yarn_shapes import BATCH_PODS
from koord_scheduler.sinks.yarn_client import Access
from koordlet.kube.answers import decoded
from tests.companion.running import NODES, PODS, cluster, companion, make, node, tree
from tests.companion.sinks.yarn_fake import FakeYarn, fake_yarn
from tests.fakekube import FakeKube, Fault
from tests.kube.certificates import authority
from tests.kube.worlds import World, until

PART = next(part for part in PARTS if part.name == "yarn")
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"
AGENT = "nm-1:8041"
SPACE = "hadoop-yarn"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "EVERY_S", 0.05)
    monkeypatch.setattr(controller, "SETTLE_S", 0.01)


def _setup(yarn: FakeYarn, **changes: Any) -> Setup:
    return Setup(**{"managers": {"": (yarn.url,)}, **changes})


def _origin(cpu_milli: int, memory_gib: int) -> str:
    return json.dumps({"resources": {CPU: str(cpu_milli), MEMORY: f"{memory_gib}Gi"}})


async def _node(world: World, name: str = "n1", **annotations: str) -> None:
    await node(
        world,
        name,
        annotations={
            ORIGIN: _origin(8000, 16),
            "node.yarn.koordinator.sh/node-id": AGENT,
            **annotations,
        },
    )


async def _agent(
    world: World, node_id: str, on: str = "n1", name: str = "nm-1", **extra: str
) -> None:
    body = {
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/component": "node-manager"},
            "annotations": {"yarn.hadoop.apache.org/node-id": node_id, **extra},
        },
        "spec": {"nodeName": on, "containers": [{"name": "nm"}]},
    }
    await make(world, PODS, body, SPACE)
    status = {"status": {"phase": "Running"}}
    await world.client.patch(PODS, name, status, SPACE, subresource="status")


def _taken(fake: FakeKube, name: str = "n1") -> Any:
    text = tree(fake, "nodes", name)["metadata"].get("annotations", {}).get(ALLOCATIONS)
    return json.loads(text)["allocations"] if text else None


async def _annotate(world: World, name: str, **annotations: str | None) -> None:
    await world.client.patch(NODES, name, {"metadata": {"annotations": annotations}})


def _events(fake: FakeKube) -> list[str]:
    return [
        each["message"] for each in fake.store._objects.get(fake.resource("events"), {}).values()
    ]


def test_a_node_manager_gets_batch_resources_and_tells_what_it_took() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            yarn.join(AGENT)
            async with companion(world, PART, yarn=_setup(yarn)) as made:
                await _node(world)
                await until(lambda: yarn.total(AGENT) == (8, 16384))
                assert yarn.timeouts == [-1] and _taken(fake) is None
                yarn.use(AGENT, 3, 2048)
                await until(lambda: _taken(fake) is not None)
                entry = {"name": "hadoop-yarn", "priority": "koord-batch"}
                assert _taken(fake) == [{**entry, "resources": {CPU: "3k", MEMORY: "2Gi"}}]
                # Its own part does not make it smaller.
                await _annotate(world, "n1", **{ORIGIN: _origin(6000, 16)})
                await until(lambda: yarn.total(AGENT) == (6, 16384))
                yarn.use(AGENT, 0, 0)
                await until(lambda: _taken(fake) is None)
                page = made.context.metrics.page()
                assert 'yarn_node_cpu_resource{node="n1"} 6\n' in page
                assert 'yarn_node_memory_allocated_resource{node="n1"} 0\n' in page
                assert 'koord_scheduler_yarn_updates_total{cluster="",outcome="ok"} 2\n' in page

    asyncio.run(story())


def test_pods_of_kubernetes_keep_what_they_asked_for() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, _):
            yarn.join(AGENT)
            async with companion(world, PART, yarn=_setup(yarn)):
                await _node(world)
                await until(lambda: yarn.total(AGENT) == (8, 16384))
                amounts = {CPU: "2000", MEMORY: "4Gi"}
                container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
                meta = {"name": "spark", "labels": {"koordinator.sh/qosClass": "BE"}}
                spec = {"nodeName": "n1", "containers": [container, {**container, "name": "d"}]}
                await make(world, PODS, {"metadata": meta, "spec": spec}, world.namespace)
                running = {"status": {"phase": "Running"}}
                await world.client.patch(
                    PODS, "spark", running, world.namespace, subresource="status"
                )
                await until(lambda: yarn.total(AGENT) == (4, 8192))
                await world.client.delete(PODS, "spark", world.namespace)
                await until(lambda: yarn.total(AGENT) == (8, 16384))

    asyncio.run(story())


def test_later_offers_carry_what_is_left_of_the_time() -> None:
    """Seen with Hadoop 3.4.1: each update starts the time anew, so that it never ended."""

    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, _):
            yarn.join(AGENT)
            setup = _setup(yarn, over_commit_timeout_ms=60_000)
            async with companion(world, PART, yarn=setup):
                await _node(world)
                await until(lambda: yarn.total(AGENT) == (8, 16384))
                yarn.use(AGENT, 7, 2048)
                for cores in (6, 5):
                    await asyncio.sleep(0.01)
                    await _annotate(world, "n1", **{ORIGIN: _origin(1000 * cores, 16)})
                    await until(lambda wanted=(cores, 16384): yarn.total(AGENT) == wanted)
                first, begun, later = yarn.timeouts
                assert first == begun == 60_000 > later > 0
                yarn.use(AGENT, 1, 2048)  # they have ended; the next time is a new one
                looks = yarn.requests["GET /ws/v1/cluster/nodes"]
                await until(lambda: yarn.requests["GET /ws/v1/cluster/nodes"] > looks + 2)
                yarn.use(AGENT, 5, 2048)
                await _annotate(world, "n1", **{ORIGIN: _origin(4000, 16)})
                await until(lambda: yarn.total(AGENT) == (4, 16384))
                assert yarn.timeouts[-1] == 60_000

    asyncio.run(story())


@pytest.mark.parametrize(
    ("listed", "named"),
    [
        ("nm-1.example.com:8041", "nm-1:8041"),
        ("nm-1:8041", "nm-1.example.com:8041"),
        ("nm-1.example.com:8041", "nm-1"),
    ],
)
def test_a_short_name_and_the_full_one_are_one_host(listed: str, named: str) -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, _):
            yarn.join(listed)
            async with companion(world, PART, yarn=_setup(yarn)):
                await _node(world, **{"node.yarn.koordinator.sh/node-id": named})
                await until(lambda: yarn.total(listed) == (8, 16384))

    asyncio.run(story())


def test_a_node_manager_that_is_not_there_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MISSED_S", 0.1)
    others = ("nm-1.a.example.com:8041", "nm-1.b.example.com:8041", "nm-10:8041")

    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            for each in others:
                yarn.join(each)
            async with companion(world, PART, yarn=_setup(yarn)):
                await _node(world)
                await until(lambda: bool(_events(fake)))
                (event,) = _events(fake)
                assert event == (
                    "the ResourceManager has no NodeManager nm-1:8041 that runs; "
                    "it has nm-1.a.example.com:8041, nm-1.b.example.com:8041"
                )
                assert [yarn.total(each) for each in others] == [(1, 1024)] * 3

    asyncio.run(story())


def test_what_began_anew_is_told_again() -> None:
    async def story() -> None:
        async with (
            fake_yarn() as yarn,
            cluster() as (world, _),
            companion(world, PART, yarn=_setup(yarn)),
        ):
            await _node(world)
            yarn.join(AGENT)
            await until(lambda: yarn.total(AGENT) == (8, 16384))
            yarn.join(AGENT)
            assert yarn.total(AGENT) == (1, 1024)
            await until(lambda: yarn.total(AGENT) == (8, 16384))

    asyncio.run(story())


def test_the_pod_of_a_node_manager_says_which_it_is() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, fake_yarn() as blue, cluster() as (world, _):
            yarn.join(AGENT)
            blue.join("nm-2:8041")
            setup = _setup(yarn, managers={"": (yarn.url,), "blue": (blue.url,)})
            async with companion(world, PART, yarn=setup):
                for name in ("n1", "n2"):
                    await node(world, name, annotations={ORIGIN: _origin(4000, 8)})
                await _agent(world, AGENT)
                cluster_id = {"yarn.hadoop.apache.org/cluster-id": "blue"}
                await _agent(world, "nm-2:8041", "n2", "nm-2", **cluster_id)
                await until(lambda: yarn.total(AGENT) == (4, 8192))
                await until(lambda: blue.total("nm-2:8041") == (4, 8192))

    asyncio.run(story())


def test_only_pods_of_its_namespace_say_so() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, _):
            yarn.join(AGENT)
            async with companion(world, PART, yarn=_setup(yarn, namespace="elsewhere")) as made:
                await node(world, "n1", annotations={ORIGIN: _origin(4000, 8)})
                await _agent(world, AGENT)
                nodes = made.context.watches.of(shapes.NODES)
                await until(lambda: bool(nodes.objects) and yarn.requests.total() > 5)
                assert yarn.total(AGENT) == (1, 1024)

    asyncio.run(story())


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"node.yarn.koordinator.sh/node-id": "no node"}, "is no NodeManager"),
        ({"node.yarn.koordinator.sh/cluster-id": "red"}, "named for cluster 'red'"),
        ({ALLOCATIONS: "{"}, ALLOCATIONS),
    ],
)
def test_what_is_wrong_with_a_node_is_told_once(annotations: dict[str, str], expected: str) -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            yarn.join(AGENT)
            yarn.use(AGENT, 1, 1)
            async with companion(world, PART, yarn=_setup(yarn)):
                await _node(world, **annotations)
                await until(lambda: bool(_events(fake)))
                before = yarn.requests.total()
                await until(lambda: yarn.requests.total() > before + 5)
                events = fake.store._objects[fake.resource("events")].values()
                assert [expected in each["message"] for each in events] == [True]
                assert next(iter(events))["count"] == 1

    asyncio.run(story())


def test_a_node_manager_that_two_nodes_claim_is_nobodys() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            yarn.join(AGENT)
            await _node(world, "n1")
            await _node(world, "n2")
            async with companion(world, PART, yarn=_setup(yarn)):
                await until(lambda: len(_events(fake)) == 2)
                assert "claimed by several nodes: n1, n2" in _events(fake)[0]
                assert yarn.total(AGENT) == (1, 1024)
                await _annotate(world, "n2", **{"node.yarn.koordinator.sh/node-id": None})
                await until(lambda: yarn.total(AGENT) == (8, 16384))

    asyncio.run(story())


def test_while_yarn_is_away_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "GONE_S", 0.5)

    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            yarn.join(AGENT)
            yarn.use(AGENT, 2, 1024)
            async with companion(world, PART, yarn=_setup(yarn)):
                await _node(world)
                await until(lambda: _taken(fake) is not None)
                yarn.status = 503
                before = yarn.requests.total()
                await until(lambda: yarn.requests.total() > before + 20)
                assert _taken(fake) is not None
                # It is back, and knows no NodeManager yet: their containers go on.
                left = yarn.nodes.pop(AGENT)
                yarn.status = 0
                before = yarn.requests.total()
                await until(lambda: yarn.requests.total() > before + 2)
                assert _taken(fake) is not None
                yarn.nodes[AGENT] = left
                before = yarn.requests.total()
                await until(lambda: yarn.requests.total() > before + 2)
                yarn.nodes.clear()
                await until(lambda: _taken(fake) is None)

    asyncio.run(story())


def test_a_node_without_a_node_manager_gives_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "GONE_S", 0.2)

    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            old = json.dumps(
                {"allocations": [{"name": "hadoop-yarn", "priority": "koord-batch",
                                  "resources": {CPU: "1k", MEMORY: "1Gi"}},
                                 {"name": "other", "priority": "koord-batch"}]}
            )  # fmt: skip
            await node(world, "n1", annotations={ALLOCATIONS: old})
            async with companion(world, PART, yarn=_setup(yarn)):
                await until(lambda: len(_taken(fake)) == 1)
                assert _taken(fake)[0]["name"] == "other"

    asyncio.run(story())


def test_conflicts_are_tried_again_and_entries_of_others_stay() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, fake):
            yarn.join(AGENT)
            yarn.use(AGENT, 2, 1024)
            other = json.dumps({"allocations": [{"name": "other", "priority": "koord-batch"}]})
            await _node(world, **{ALLOCATIONS: other})
            write = "PATCH /api/v1/nodes/n1"
            fault = fake.faults.add(Fault(lambda what: what == write, times=2, status=409))
            async with companion(world, PART, yarn=_setup(yarn)):
                await until(lambda: len(_taken(fake) or ()) == 2)
                assert {each["name"] for each in _taken(fake)} == {"other", "hadoop-yarn"}
                assert fault.met == 2

    asyncio.run(story())


def test_a_ca_file_that_is_missing_stops_nobody_else(tmp_path: Path) -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, _):
            setup = _setup(yarn, access=Access(ca_file=str(tmp_path / "missing")))
            async with companion(world, PART, yarn=setup) as made:
                await until(lambda: made.leads() and not made.context.watches.unsynced())
                await asyncio.sleep(0.2)
                assert yarn.requests.total() == 0

    asyncio.run(story())


def test_without_a_resource_manager_nothing_is_watched() -> None:
    async def story() -> None:
        async with cluster() as (world, _), companion(world, PART) as made:
            await until(lambda: bool(made.metrics_port))
            assert made.context.watches.all() == ()

    asyncio.run(story())


def test_two_watches_of_a_kind_are_one_line_of_the_metrics() -> None:
    async def story() -> None:
        async with (
            fake_yarn() as yarn,
            cluster() as (world, _),
            companion(world, PART, yarn=_setup(yarn)) as made,
        ):
            await until(lambda: not made.context.watches.unsynced())
            page = made.context.metrics.page()
            for name in ("watched_objects", "watch_listed", "watch_silent_seconds"):
                assert page.count(f'koord_scheduler_{name}{{resource="pods"}}') == 1

    asyncio.run(story())


def test_a_node_that_is_gone_leaves_nothing_behind() -> None:
    async def story() -> None:
        async with fake_yarn() as yarn, cluster() as (world, _):
            yarn.join(AGENT)
            async with companion(world, PART, yarn=_setup(yarn)) as made:
                await _node(world)
                await until(lambda: yarn.total(AGENT) == (8, 16384))
                ((_, part),) = made.controllers
                assert isinstance(part, controller.Yarn) and "n1" in part._offered
                await world.client.delete(NODES, "n1")
                await until(lambda: not (part._offered or part._used or part._problems))

    asyncio.run(story())


def test_a_batch_pod_counts_as_the_scheduler_counts_it() -> None:
    """Sidecars run already while an init container that comes after them does."""

    def container(milli: str, **more: str) -> dict[str, Any]:
        return {"name": "c", "resources": {"requests": {CPU: milli}}, **more}

    spec = {
        "nodeName": "n1",
        "initContainers": [container("500", restartPolicy="Always"), container("2000")],
        "containers": [container("1000")],
    }
    body = {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running"}}
    assert decoded(BATCH_PODS, json.dumps(body).encode()).batch.cpu_milli == 2500


def test_a_ca_file_that_comes_later_is_used(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "ca.crt"
        async with fake_yarn() as yarn, cluster() as (world, _):
            yarn.join(AGENT)
            setup = _setup(yarn, access=Access(ca_file=str(path)))
            async with companion(world, PART, yarn=setup) as made:
                await _node(world)
                ((_, part),) = made.controllers
                assert isinstance(part, controller.Yarn)
                await until(lambda: "cluster " in part._problems)
                path.write_bytes(authority(tmp_path, "late").certificate.read_bytes())
                await until(lambda: yarn.total(AGENT) == (8, 16384))

    asyncio.run(story())
