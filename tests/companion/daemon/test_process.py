"""The process: who leads, what runs, what health says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
import yaml

from koord_scheduler.daemon.controller import Options, Part
from koord_scheduler.daemon.parts import PARTS, UnknownPartError, chosen
from koord_scheduler.daemon.process import Companion
from koordlet.kube.credentials import Cluster
from tests.companion.daemon.cluster import CRDS
from tests.companion.daemon.probes import HERE, MADE
from tests.fakekube import FakeKube, serving
from tests.kube.worlds import until

OPTIONS = Options(metrics_address="127.0.0.1:0", health_address="127.0.0.1:0")
PROBE = Part("probe", "manager", "", HERE + "make_probe")


@contextlib.asynccontextmanager
async def companion(
    fake: FakeKube,
    *parts: Part,
    on_synced: Callable[[], None] = lambda: None,
    **options: object,
) -> AsyncIterator[Companion]:
    made = Companion(
        Cluster(fake.url, "the test"),
        Options(**{**{f: getattr(OPTIONS, f) for f in OPTIONS.__dataclass_fields__}, **options}),
        parts,
        on_synced,
    )
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _get(port: int, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


def test_a_controller_runs_where_the_process_leads_and_the_second_takes_over() -> None:
    async def story() -> None:
        MADE.clear()
        async with serving() as fake:
            async with companion(fake, PROBE) as first:
                await until(lambda: MADE[0].running)
                async with companion(fake, PROBE) as second:
                    await until(lambda: not second.context.watches.unsynced())
                    assert not MADE[1].running and not second.leads()
                    status, text = await _get(second.health_port, "/readyz")
                    assert (status, text) == (200, "ok, waits to lead\n")
                    assert first.leads()
                    # The first ends; it gives the lease back.
                    fake_lease = fake.store.all(fake.resource("leases"), "", _ANY)
                    assert len(fake_lease) == 1
            assert not MADE[0].running

    asyncio.run(story())


def test_the_lease_goes_to_the_next_at_once() -> None:
    async def story() -> None:
        MADE.clear()
        async with serving() as fake:
            first = companion(fake, PROBE)
            await first.__aenter__()
            await until(lambda: MADE[0].running)
            async with companion(fake, PROBE) as second:
                await first.__aexit__(None, None, None)
                await until(lambda: MADE[1].running)
                assert second.leads()

    asyncio.run(story())


def test_without_election_it_leads() -> None:
    async def story() -> None:
        MADE.clear()
        async with serving() as fake, companion(fake, PROBE, elect=False) as made:
            await until(lambda: MADE[0].running)
            assert made.leads()
            assert fake.store.all(fake.resource("leases"), "", _ANY) == []

    asyncio.run(story())


def test_what_does_not_need_to_lead_runs_everywhere() -> None:
    async def story() -> None:
        MADE.clear()
        everywhere = Part("server", "manager", "", HERE + "make_probe", leads=False)
        async with serving() as fake, companion(fake, PROBE):
            await until(lambda: MADE[0].running)
            async with companion(fake, everywhere) as second:
                await until(lambda: MADE[1].running)
                assert not second.leads()

    asyncio.run(story())


def test_a_defect_ends_the_process() -> None:
    async def story() -> None:
        broken = Part("broken", "manager", "", HERE + "make_broken")
        async with serving() as fake:
            made = Companion(Cluster(fake.url, "the test"), OPTIONS, [broken])
            with pytest.raises(BaseExceptionGroup) as raised:
                await made.run()
            assert raised.group_contains(RuntimeError, match="a defect")

    asyncio.run(story())


def test_not_ready_before_everything_was_listed() -> None:
    async def story() -> None:
        MADE.clear()
        async with serving() as fake:
            fake.faults.down = True
            async with companion(fake, PROBE) as made:
                await until(lambda: bool(made.health_port))
                status, text = await _get(made.health_port, "/readyz")
                assert status == 503 and text.startswith("configmaps: ")
                assert (await _get(made.health_port, "/healthz"))[0] == 200
                fake.faults.down = False
                await until(lambda: MADE[0].running)
                assert (await _get(made.health_port, "/readyz")) == (200, "ok, leads\n")
                status, page = await _get(made.metrics_port, "/metrics")
                assert status == 200 and "koord_scheduler_leader 1\n" in page

    asyncio.run(story())


def test_what_is_read_at_the_start_is_left_alone_once_all_is_listed() -> None:
    async def story() -> None:
        MADE.clear()
        calls: list[bool] = []
        async with serving() as fake:
            fake.faults.down = True

            def on_synced() -> None:
                calls.append(MADE[0].running)

            async with companion(fake, PROBE, on_synced=on_synced) as made:
                await until(lambda: bool(made.health_port))
                await _get(made.health_port, "/readyz")
                assert not calls
                fake.faults.down = False
                await until(lambda: MADE[0].running)
                assert calls == [False]

    asyncio.run(story())


def test_a_kind_that_the_server_does_not_have_stops_those_who_need_it_alone() -> None:
    async def story() -> None:
        MADE.clear()
        needy = Part("needy", "manager", "", HERE + "make_needy")
        async with serving() as fake, companion(fake, needy, PROBE) as made:
            await until(lambda: MADE[1].running)
            await until(lambda: bool(made.context.watches.unsynced(missing=True)))
            assert not MADE[0].running
            status, text = await _get(made.health_port, "/readyz")
            assert status == 200 and "nodeslos.slo.koordinator.sh: " in text
            path = CRDS / "slo.koordinator.sh_nodeslos.yaml"
            fake.define(yaml.safe_load(path.read_text()))
            await until(lambda: MADE[0].running)

    asyncio.run(story())


@pytest.mark.parametrize("names", [["*"], ["*", "-nothing"]])
def test_names_of_controllers_are_checked(names: list[str]) -> None:
    if len(names) == 1:
        assert chosen(["manager"], names) == tuple(
            p for p in PARTS if p.by_default and p.role == "manager"
        )
    else:
        with pytest.raises(UnknownPartError, match="nothing"):
            chosen(["manager"], names)


class _Any:
    def matches(self, tree: object) -> bool:
        return True


_ANY = _Any()
