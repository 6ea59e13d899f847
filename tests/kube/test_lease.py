"""At no instant do two processes believe that they lead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from koordlet.kube.client import Client
from koordlet.kube.lease import LEASES, Leadership
from tests.fakekube import FakeKube, Fault
from tests.kube.worlds import World, fake_world, until

DURATION_S, DEADLINE_S = 2, 0.5


class Candidate:
    def __init__(self, world: World, client: Client, name: str) -> None:
        self.told: list[bool] = []
        self.lead = Leadership(
            client,
            world.namespace,
            "koordlet-test",
            name,
            self.told.append,
            duration_s=DURATION_S,
            renew_s=0.05,
            deadline_s=DEADLINE_S,
        )
        self.task = asyncio.create_task(self.lead.run())

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


@contextlib.asynccontextmanager
async def candidates(*names: str) -> AsyncIterator[tuple[World, FakeKube, list[Candidate]]]:
    async with fake_world() as (world, fake), contextlib.AsyncExitStack() as stack:
        made = []
        for name in names:
            client = await stack.enter_async_context(Client(world.cluster, per_second=1e6))
            made.append(Candidate(world, client, name))
            stack.push_async_callback(made[-1].stop)
            await until(lambda: bool(made[0].told))
        yield world, fake, made


def test_one_leads_and_hands_over_when_it_stops() -> None:
    async def run() -> None:
        async with candidates("a", "b") as (world, _, (a, b)):
            assert a.lead.held() and not b.lead.held()
            await until(lambda: b.lead.holder == "a")
            await a.stop()
            assert a.told == [True, False]
            await until(b.lead.held)
            lease = await world.client.get(LEASES, "koordlet-test", world.namespace)
            assert lease.spec.holder_identity == "b"
            assert lease.spec.lease_transitions == 1

    asyncio.run(run())


def test_who_cannot_renew_stops_before_another_begins() -> None:
    async def run() -> None:
        async with candidates("a", "b") as (_, fake, (a, b)):
            puts = fake.faults.add(Fault(lambda what: what.startswith("PUT"), 10**9, status=503))
            await until(lambda: a.told == [True, False])
            assert not b.told
            assert "503" in a.lead.error
            puts.times = 0
            await until(lambda: a.lead.held() or b.lead.held())
            assert not (a.lead.held() and b.lead.held())

    asyncio.run(run())


def test_a_lease_whose_holder_died_is_taken_after_all_of_its_time() -> None:
    async def run() -> None:
        async with fake_world() as (world, _):
            spec = {"holderIdentity": "dead", "leaseDurationSeconds": 1}
            body = {"metadata": {"name": "koordlet-test"}, "spec": spec}
            await world.client.create(LEASES, body, world.namespace)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            b = Candidate(world, world.client, "b")
            try:
                await until(b.lead.held)
                assert loop.time() - begun >= 1.0
            finally:
                await b.stop()

    asyncio.run(run())


def test_a_renewal_in_vain_ends_in_time() -> None:
    """Requests that hang must not keep the leader from noticing that its time is over."""

    async def run() -> None:
        async with candidates("a") as (_, fake, (a,)):
            fake.faults.add(Fault(lambda what: "leases" in what, 10**9, after_s=None))
            loop = asyncio.get_running_loop()
            begun = loop.time()
            await until(lambda: a.told == [True, False])
            assert loop.time() - begun < DURATION_S + DEADLINE_S
            fake.faults.pending.clear()

    asyncio.run(run())
