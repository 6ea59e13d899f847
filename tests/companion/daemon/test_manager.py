"""The controllers of the manager, on the fake server and on a real one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest

from koord_scheduler.daemon.process import Companion
from koord_scheduler.kube.shapes import CONFIG_MAPS
from koord_scheduler.kube.shapes import NODES as WATCHED
from koordlet.kube.errors import RefusedError
from tests.companion.daemon.cluster import (
    CONFIG,
    DEVICES,
    MAPS,
    METRICS,
    NODES,
    ON,
    PODS,
    SLOS,
    TOPOLOGIES,
    Here,
    Tree,
    Whole,
    fake_here,
    here_on,
    manager,
)
from tests.fakekube import Fault
from tests.realkube.control_plane import ControlPlane

BATCH_CPU, BATCH_MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
OpenHere = Callable[[], AbstractAsyncContextManager[Here]]


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
def open_here(request: pytest.FixtureRequest) -> OpenHere:
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("plane")
        return lambda: here_on(plane.admin)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Here]:
        async with fake_here() as (here, _):
            yield here

    return opened


def _offers(cpu: str, memory: str) -> Callable[[Whole], bool]:
    def holds(node: Whole) -> bool:
        return all(
            _same(node.status[field].get(BATCH_CPU), cpu)
            and _same(node.status[field].get(BATCH_MEMORY), memory)
            for field in ("capacity", "allocatable")
        )

    return holds


def _same(found: str | None, wanted: str) -> bool:
    """A real server writes 25000 as 25k."""
    return found is not None and _number(found) == _number(wanted)


def _number(text: str) -> int:
    for suffix, factor in (("k", 10**3), ("M", 10**6), ("G", 10**9)):
        if text.endswith(suffix):
            return int(text[:-1]) * factor
    return int(text)


async def _pod(here: Here, name: str, phase: str, requests: Tree, **labels: str) -> Tree:
    body = {
        "metadata": {"labels": {f"koordinator.sh/{k}": v for k, v in labels.items()}},
        "spec": {
            "nodeName": here.name,
            "containers": [{"name": "c", "image": "x", "resources": {"requests": requests}}],
        },
        "status": {"phase": phase},
    }
    await here.put(PODS, name, body, here.namespace)
    return {"namespace": here.namespace, "name": name}


async def _fixture_f(here: Here) -> list[Tree]:
    """Of docs/reference/central.md 1.4. Returns the metrics of its pods."""

    def used(key: Tree, priority: str, cpu: str, memory: str) -> Tree:
        resources = {"cpu": cpu, "memory": memory}
        return {**key, "priority": priority, "podUsage": {"resources": resources}}

    a = await _pod(here, "a", "Running", {"cpu": "20", "memory": "20G"}, qosClass="LS")
    b = await _pod(here, "b", "Running", {}, qosClass="BE")
    c = await _pod(
        here, "c", "Pending", {"cpu": "20", "memory": "40G"}, **{"priority-class": "koord-prod"}
    )
    return [
        used(a, "koord-prod", "11", "11G"),
        used(b, "koord-batch", "10", "10G"),
        used(c, "koord-prod", "22", "22G"),
    ]


OF_NODES = {"nodemetric", "nodeslo", "noderesource"}


async def settled(made: Companion) -> None:
    """The queues of nodes were empty for a while."""
    queues = [
        (c._reconciles if part.name == "noderesource" else c._all.reconciles).queue
        for part, c in made.controllers
        if part.name in OF_NODES
    ]
    quiet = 0
    async with asyncio.timeout(60):
        while quiet < 20:
            quiet = 0 if any(map(len, queues)) else quiet + 1
            await asyncio.sleep(0.01)


def test_a_node_from_its_beginning_to_its_end(open_here: OpenHere) -> None:
    """Objects come with the node, batch resources with its report, new ones with another
    configuration; all go with the node."""

    async def story() -> None:
        async with open_here() as here:
            await here.configure(ON)
            async with manager(here) as made:
                await here.node()
                metrics = await _fixture_f(here)
                metric = await here.until(METRICS, lambda m: True)
                policy = metric.spec["metricCollectPolicy"]
                assert policy["reportIntervalSeconds"] == 60
                slo = await here.until(SLOS, lambda s: bool(s.spec))
                assert slo.spec["resourceUsedThresholdWithBE"]["enable"] is False
                node = await here.get(NODES)
                assert node is not None and BATCH_CPU not in node.status["allocatable"]

                await here.report(pods=metrics)
                node = await here.until(NODES, _offers("25000", "33000000000"))  # B1
                page = made.context.metrics.page(internal=True)
                assert 'slo_controller_node_resource_reconcile_count{status="succeeded"' in page
                labels = f'{{node="{here.name}",resource="{BATCH_CPU}",unit="integer"}}'
                family = "slo_controller_node_extended_resource_allocatable_internal"
                async with asyncio.timeout(60):  # the manager's own watch tells it
                    while f"{family}{labels} 25\n" not in made.context.metrics.page():
                        await asyncio.sleep(0.01)
                origin = "node.koordinator.sh/originExtendedAllocatable"
                said = json.loads(node.metadata.annotations[origin])["resources"]
                assert said == {BATCH_CPU: "25000", BATCH_MEMORY: "33000000000"}

                await here.configure(  # B4
                    {
                        "enable": True,
                        "cpuReclaimThresholdPercent": 70,
                        "memoryReclaimThresholdPercent": 80,
                        "memoryCalculatePolicy": "request",
                        "metricReportIntervalSeconds": 20,
                    },
                    resource_threshold_config='{"clusterStrategy":{"enable":true}}',
                )
                await here.until(NODES, _offers("30000", "36000000000"))
                await here.until(
                    METRICS,
                    lambda m: m.spec["metricCollectPolicy"]["reportIntervalSeconds"] == 20,
                )
                await here.until(SLOS, lambda s: s.spec["resourceUsedThresholdWithBE"]["enable"])

                await here.configure({"enable": False})
                await here.until(NODES, lambda n: BATCH_CPU not in n.status["allocatable"])
                await here.until(NODES, lambda n: BATCH_MEMORY not in n.status["capacity"])

                await here.client.delete(NODES, here.name)
                await here.until_gone(METRICS)
                await here.until_gone(SLOS)

    asyncio.run(story())


def test_a_report_that_is_too_old_offers_nothing(open_here: OpenHere) -> None:
    async def story() -> None:
        async with open_here() as here:
            await here.configure({**ON, "degradeTimeMinutes": 1})
            async with manager(here):
                await here.node()
                await here.until(METRICS, lambda m: True)
                # It becomes too old in a moment, and nothing happens then but time.
                await here.report(age_s=57)
                await here.until(NODES, lambda n: BATCH_CPU in n.status["allocatable"])
                await here.until(NODES, lambda n: BATCH_CPU not in n.status["allocatable"])

    asyncio.run(story())


def test_devices_and_zones(open_here: OpenHere) -> None:
    async def story() -> None:
        async with open_here() as here:
            await here.configure(ON)
            async with manager(here, extra={"sync_gpu_shared": True}):
                await here.node(cpu="100", memory="120G")
                gpu = {
                    "type": "gpu",
                    "health": True,
                    "minor": 0,
                    "id": "GPU-0",
                    "resources": {"koordinator.sh/gpu-core": "100"},
                }
                label = {"node.koordinator.sh/gpu-model": "A100"}
                body = {"metadata": {"labels": label}, "spec": {"devices": [gpu]}}
                await here.put(DEVICES, here.name, body)
                half = {"capacity": "50", "allocatable": "50", "available": "50"}
                memory = dict.fromkeys(("capacity", "allocatable", "available"), "60G")
                resources = [{"name": "cpu", **half}, {"name": "memory", **memory}]
                zones = [
                    {"name": f"node-{n}", "type": "Node", "resources": resources} for n in (0, 1)
                ]
                policies = {"topologyPolicies": ["None"], "zones": zones}
                await here.put(TOPOLOGIES, here.name, policies)
                await here.until(METRICS, lambda m: True)
                await here.report()
                node = await here.until(
                    NODES, lambda n: "koordinator.sh/gpu-core" in n.status["allocatable"]
                )
                assert node.metadata.labels["node.koordinator.sh/gpu-model"] == "A100"
                assert node.status["allocatable"]["koordinator.sh/gpu.shared"] == "100"
                # (100 - 35 - 7) / 2 cores and (120 - 42 - 12) / 2 GB.
                await here.until(NODES, _offers("58000", "66000000000"))
                topology = await here.until(
                    TOPOLOGIES,
                    lambda t: all(len(zone["resources"]) == 4 for zone in t.zones),
                )
                for zone in topology.zones:
                    by_name = {each["name"]: each["allocatable"] for each in zone["resources"]}
                    assert by_name["cpu"] == "50"
                    assert _same(str(by_name[BATCH_CPU]), "29000")

    asyncio.run(story())


def test_what_is_wrong_with_the_configuration_is_told_at_the_configmap(
    open_here: OpenHere,
) -> None:
    async def story() -> None:
        async with open_here() as here:
            await here.configure(ON)
            async with manager(here):
                await here.node()
                await here.until(METRICS, lambda m: True)
                await here.report()
                await here.until(NODES, lambda n: BATCH_CPU in n.status["allocatable"])
                await here.configure(None, colocation_config="{")
                async with asyncio.timeout(60):
                    while True:
                        found = [e for e in await here.events() if e.reason.startswith("Coloc")]
                        if found:
                            break
                        await asyncio.sleep(0.02)
                assert found[0].reason == "ColocationCfgUnmarshalFailed"
                assert found[0].involved_object["name"] == "slo-controller-config"
                node = await here.get(NODES)
                assert node is not None and BATCH_CPU in node.status["allocatable"]

    asyncio.run(story())


def test_what_is_wrong_with_a_node_is_told_at_the_node_once(open_here: OpenHere) -> None:
    async def story() -> None:
        async with open_here() as here:
            await here.configure(ON)
            async with manager(here) as made:
                bad = {"node.koordinator.sh/network-bandwidth": "much"}
                await here.node(annotations=bad)
                await here.until(SLOS, lambda s: bool(s.spec))
                async with asyncio.timeout(60):
                    while not (found := await here.events("default", here.name)):
                        await asyncio.sleep(0.02)
                assert "network-bandwidth" in found[0].message
                for count in range(3):
                    await here.node(labels={"count": str(count)}, annotations=bad)
                await settled(made)
                assert len(await here.events("default", here.name)) == len(found)

    asyncio.run(story())


def test_a_configmap_that_is_deleted_changes_nothing(open_here: OpenHere) -> None:
    async def story() -> None:
        async with open_here() as here:
            await here.configure(ON)
            async with manager(here) as made:
                await here.node()
                await here.until(METRICS, lambda m: True)
                await here.report()
                await here.until(NODES, _offers("58000", "66000000000"))
                await here.client.delete(MAPS, CONFIG, here.namespace)
                watched = made.context.watches.of(
                    CONFIG_MAPS, namespace=here.namespace, fields=f"metadata.name={CONFIG}"
                )
                async with asyncio.timeout(60):
                    while watched.objects:
                        await asyncio.sleep(0.01)
                await here.report(system="17")
                await here.until(NODES, _offers("48000", "66000000000"))

    asyncio.run(story())


# What a real server does not do on demand


def test_a_refused_key_is_told_also_where_nothing_else_changes(open_here: OpenHere) -> None:
    async def story() -> None:
        async with open_here() as here:
            await here.configure(ON)
            async with manager(here) as made:
                async with asyncio.timeout(60):
                    while not made.leads() or made.context.configured.current is None:
                        await asyncio.sleep(0.02)
                assert not await here.events()
                await here.configure(ON, cpu_burst_config="{")
                async with asyncio.timeout(60):
                    while not (found := await here.events()):
                        await asyncio.sleep(0.02)
                assert "cpu-burst-config" in found[0].message

    asyncio.run(story())


def test_nothing_is_written_twice() -> None:
    """A manager that begins anew on what its predecessor left writes nothing at all."""

    async def story() -> None:
        async with fake_here() as (here, fake):
            await here.configure(ON)
            async with manager(here):
                await here.node()
                await here.until(METRICS, lambda m: True)
                await here.until(SLOS, lambda s: True)
                await here.report()
                await here.until(NODES, lambda n: BATCH_CPU in n.status["allocatable"])
            version = fake.store.version
            async with manager(here) as second:
                await settled(second)
                assert second.context.writes.tally.counts.total() == 0
            changed = {each.resource.plural for each in fake.store.log if each.version > version}
            assert changed <= {"leases"}

    asyncio.run(story())


def test_a_conflict_is_tried_again() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            await here.configure(ON)
            await here.put(SLOS, here.name, {"spec": {"cpuBurstStrategy": {"policy": "auto"}}})
            conflict = Fault(lambda what: what.startswith("PATCH") and "nodeslos" in what)
            conflict.status = 409
            fake.faults.add(conflict)
            await here.node()
            async with manager(here):
                await here.until(
                    SLOS, lambda s: s.spec.get("cpuBurstStrategy", {}).get("policy") == "none"
                )
                assert conflict.met == 1

    asyncio.run(story())


def test_a_watch_that_shows_too_little_deletes_nothing() -> None:
    """What goes with a node is deleted only where the server itself says the node is gone."""

    async def story() -> None:
        async with fake_here() as (here, fake):
            await here.configure(ON)
            await here.node()
            await here.put(SLOS, here.name, {"spec": {}})
            await here.put(METRICS, here.name, {"spec": {}})
            meta = {"resourceVersion": str(fake.store.version)}
            empty = {"kind": "NodeList", "metadata": meta, "items": []}
            lie = Fault(lambda what: what == "GET /api/v1/nodes", times=10**9)
            lie.body = json.dumps(empty).encode()
            fake.faults.add(lie)
            async with manager(here) as made:
                await settled(made)
                assert lie.met and not made.context.watches.of(WATCHED).objects
                assert made.context.writes.tally.counts.total() == 0
                assert await here.get(SLOS) and await here.get(METRICS)

    asyncio.run(story())


def test_the_api_server_goes_away_and_comes_back() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            await here.configure(ON)
            async with manager(here, elect=False) as made:
                await here.node()
                await here.until(METRICS, lambda m: True)
                await here.report()
                await here.until(NODES, lambda n: BATCH_CPU in n.status["allocatable"])
                fake.faults.down = True
                fake.faults.cut_watches()
                async with asyncio.timeout(60):
                    while not made.context.watches.of(WATCHED).mirror.error:
                        await asyncio.sleep(0.01)
                fake.faults.down = False
                await here.report(system="17")
                await here.until(NODES, _offers("48000", "66000000000"))

    asyncio.run(story())


def test_who_no_longer_leads_writes_nothing() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            await here.configure(ON)
            async with manager(here) as made:
                await here.node()
                await here.until(METRICS, lambda m: True)
                await settled(made)
                assert made.roles["manager"].leadership is not None
                # Somebody else has the lease from now on.
                lease = fake.resource("leases")
                name = (here.namespace, "koordinator-manager")
                fake.store.merge(lease, name, {"spec": {"holderIdentity": "another"}})
                async with asyncio.timeout(60):
                    while made.leads():
                        await asyncio.sleep(0.01)
                before = made.context.writes.tally.counts.total()
                await here.report()
                await asyncio.sleep(0.3)
                assert made.context.writes.tally.counts.total() == before
                node = await here.get(NODES)
                assert node is not None and BATCH_CPU not in node.status["allocatable"]

    asyncio.run(story())


def test_somebody_who_fights_costs_a_bounded_number_of_writes() -> None:
    """Whoever takes the resources away again and again is answered some times a minute."""

    async def story() -> None:
        async with fake_here() as (here, _fake):
            await here.configure(ON)
            async with manager(here) as made:
                await here.node()
                await here.until(METRICS, lambda m: True)
                await here.report()
                await here.until(NODES, lambda n: BATCH_CPU in n.status["allocatable"])
                removed: Tree = {BATCH_CPU: None}
                status = {"status": {"capacity": removed, "allocatable": removed}}
                for _ in range(40):
                    await here.client.patch(NODES, here.name, status, subresource="status")
                    await asyncio.sleep(0.02)
                counts = made.context.writes.tally.counts
                # The fight may fall into two minutes.
                assert counts[("nodes/status", "patch")] <= 2 * made.context.writes.tally.most
                assert made.context.writes.tally.refused

    asyncio.run(story())


def test_refused_objects_do_not_stop_the_others() -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            await here.configure(ON)
            await here.node()
            nodes = fake.resource("nodes")
            fake.store.create(nodes, "", {"metadata": {"name": "bad"}, "status": {"capacity": [1]}})
            async with manager(here) as made:
                await here.until(METRICS, lambda m: True)
                await here.report()
                await here.until(NODES, lambda n: BATCH_CPU in n.status["allocatable"])
                (named,) = made.context.watches.unreadable()
                assert named[0] == "nodes bad"
                status, page = made._ready()
                assert status == 200
                assert "nodes bad: " in page
                with pytest.raises(RefusedError):
                    await here.client.get(METRICS, "bad")

    asyncio.run(story())
