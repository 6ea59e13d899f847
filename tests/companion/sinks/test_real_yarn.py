"""A real ResourceManager and NodeManager (Hadoop, from Maven Central) get batch resources.

`tools/fetch-yarn` fetches them. Kubernetes is the fake one: the real one is the other tests'.
"""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from koord_scheduler.daemon import yarn as controller
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.daemon.yarn import Setup
from tests.companion.running import NODES, cluster, companion, node, tree
from tests.companion.sinks.yarn_fake import recorded
from tests.realkube.yarn import RealYarn, real_yarn, why_not

pytestmark = [pytest.mark.cluster, pytest.mark.slow]
PART = next(part for part in PARTS if part.name == "yarn")
CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"
WITHIN_S = 180.0


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealYarn]:
    if reason := why_not():
        pytest.skip(reason)
    with real_yarn(tmp_path_factory.mktemp("yarn") / "yarn") as made:
        yield made


def _origin(cpu_milli: int, memory_gib: int) -> str:
    return json.dumps({"resources": {CPU: str(cpu_milli), MEMORY: f"{memory_gib}Gi"}})


async def _until(asked: Callable[[], Any], expected: Any) -> None:
    """``asked`` waits for an answer of another process, so it gets a thread."""
    async with asyncio.timeout(WITHIN_S):
        while await asyncio.to_thread(asked) != expected:
            await asyncio.sleep(0.2)


def test_the_story(yarn: RealYarn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NodeManager of 1 CPU runs a container of 2, because the node has 4 to spare; Kubernetes
    hears of it; a NodeManager and a ResourceManager that begin anew are told again."""
    monkeypatch.setattr(controller, "EVERY_S", 0.5)
    monkeypatch.setattr(controller, "SETTLE_S", 0.1)
    monkeypatch.setattr(controller, "GONE_S", 5.0)

    async def story() -> None:
        async with cluster() as (world, fake):

            def taken() -> Any:
                notes = tree(fake, "nodes", "n1")["metadata"].get("annotations", {})
                found = json.loads(notes.get(ALLOCATIONS, "{}")).get("allocations", [])
                return [each["resources"] for each in found]

            setup = Setup({"": (yarn.url,)})
            async with companion(world, PART, yarn=setup):
                annotations = {
                    ORIGIN: _origin(4000, 2),
                    "node.yarn.koordinator.sh/node-id": yarn.node,
                }
                await node(world, "n1", annotations=annotations)
                await _until(yarn.total, (4, 2048))
                await asyncio.to_thread(yarn.submit, "sleep 600", 2, 512)
                await _until(yarn.used, (2, 512))
                await _until(taken, [{CPU: "2k", MEMORY: "512Mi"}])
                # Production needs its CPUs: the container goes on, no other may begin.
                change = {"metadata": {"annotations": {ORIGIN: _origin(1000, 2)}}}
                await world.client.patch(NODES, "n1", change)
                await _until(yarn.total, (1, 2048))
                assert await asyncio.to_thread(yarn.used) == (2, 512)
                change = {"metadata": {"annotations": {ORIGIN: _origin(3000, 2)}}}
                await world.client.patch(NODES, "n1", change)
                await _until(yarn.total, (3, 2048))
                # Not in a thread: a process ends with the thread that began it.
                yarn.restart_node()
                await _until(yarn.total, (3, 2048))
                yarn.restart_manager()
                await _until(yarn.total, (3, 2048))
                await _until(taken, [])

    asyncio.run(story())


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shape(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shape(each) for each in value[:1]]
    return type(value) if not isinstance(value, int | float) else float


def test_it_answers_as_recorded(yarn: RealYarn) -> None:
    yarn.until_running()
    assert _shape(yarn.ask("/nodes?states=RUNNING")) == _shape(recorded("nodes"))
    offer = {"resource": {"memory": 1024, "vCores": 1}, "overCommitTimeout": -1}
    assert _shape(yarn.ask(f"/nodes/{yarn.node}/resource", offer)) == _shape(recorded("updated"))
    with pytest.raises(urllib.error.HTTPError) as caught:
        yarn.ask("/nodes/nosuch:1/resource", offer)
    assert caught.value.code == 404
    assert json.loads(caught.value.read()) == recorded("unknown-node")
