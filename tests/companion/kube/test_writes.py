"""Writes are fenced, counted, and bounded for each node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koord_scheduler.kube.migration_shapes import JOBS
from koord_scheduler.kube.shapes import NODE_SLOS, NODES
from koord_scheduler.kube.writes import NotLeadingError, Tally, TooManyWritesError, Writes
from koordlet.kube.errors import RefusedError
from tests.companion.running import cluster, make, tree

JOB = {"metadata": {"name": "j"}, "spec": {"podRef": {"namespace": "n", "name": "p"}}}


class Sent:
    """Stands for a client: takes everything."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def __getattr__(self, name: str) -> Any:
        async def take(*args: Any, **kwargs: Any) -> None:
            self.sent.append(name)

        return take


def test_who_does_not_lead_sends_nothing() -> None:
    async def story() -> None:
        client = Sent()
        writes = Writes(client, lambda: False)  # type: ignore[arg-type]
        for call in (
            writes.create(NODE_SLOS, {}),
            writes.patch(NODE_SLOS, "n", {}),
            writes.replace(NODE_SLOS, "n", {}),
            writes.delete(NODE_SLOS, "n"),
        ):
            with pytest.raises(NotLeadingError):
                await call
        assert client.sent == [] and not writes.tally.counts

    asyncio.run(story())


def test_a_node_has_its_share_of_each_minute() -> None:
    async def story() -> None:
        now = [6.0]
        client = Sent()
        writes = Writes(client, lambda: True, Tally(2, lambda: now[0]))  # type: ignore[arg-type]
        for _ in range(2):
            await writes.patch(NODES, "a", {}, subresource="status", about="a")
        with pytest.raises(TooManyWritesError) as refused:
            await writes.delete(NODE_SLOS, "a", about="a")
        assert refused.value.wait_s == 54.0
        await writes.create(NODE_SLOS, {}, about="b")
        await writes.create(NODE_SLOS, {})
        assert writes.tally.busiest() == ("", 0)
        now[0] = 61.0
        await writes.delete(NODE_SLOS, "a", about="a")
        assert writes.tally.busiest() == ("a", 2)
        assert client.sent == ["patch", "patch", "create", "create", "delete"]
        assert writes.tally.counts[("nodes/status", "patch")] == 2
        assert writes.tally.refused == 1
        now[0] = 300.0
        assert writes.tally.busiest() == ("", 0)

    asyncio.run(story())


@pytest.mark.parametrize("meanwhile", ["nothing", "another write", "another object", "deleted"])
def test_a_status_is_written_to_the_object_that_was_meant(meanwhile: str) -> None:
    async def story() -> None:
        async with cluster() as (world, fake):
            await make(world, JOBS, JOB)
            there = (await world.client.get(JOBS, "j")).metadata
            jobs = fake.resource("podmigrationjobs")
            if meanwhile == "another write":
                fake.store.merge(jobs, ("", "j"), {"metadata": {"labels": {"a": "b"}}})
            elif meanwhile != "nothing":
                fake.store.delete(jobs, ("", "j"), {})
            if meanwhile == "another object":
                await make(world, JOBS, JOB)
            writes = Writes(world.client, lambda: True)
            if meanwhile in ("nothing", "another write"):
                await writes.set_status(JOBS, there, {"phase": "Running"})
                assert tree(fake, "podmigrationjobs", "j")["status"]["phase"] == "Running"
            else:
                with pytest.raises(RefusedError) as refused:
                    await writes.set_status(JOBS, there, {"phase": "Running"})
                assert refused.value.gone
                assert "status" not in tree(fake, "podmigrationjobs", "j")

    asyncio.run(story())


def test_the_uid_alone_is_no_fence_for_the_status_of_a_custom_resource() -> None:
    async def story() -> None:
        writes = Writes(Sent(), lambda: True)  # type: ignore[arg-type]
        body = {"metadata": {"uid": "u"}, "status": {}}
        with pytest.raises(AssertionError):
            await writes.patch(JOBS, "j", body, subresource="status")
        await writes.patch(NODES, "n", body, subresource="status")

    asyncio.run(story())
