"""Evictions through the API server: budgets, refusals, and a server that is away."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from koordlet.actuator.evict import api
from koordlet.actuator.evict.api import ITSELF, NO_CLUSTER, EvictionApi, Mode
from koordlet.actuator.evict.journal import Begun
from koordlet.actuator.evict.ways import Progress
from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.why import Why
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from tests.cluster.reporting.rig import fake_cluster, make_pod
from tests.fakekube import FakeKube, Fault
from tests.fakekube.selectors import Selector
from tests.kube.worlds import until


def begun(uid: str, kind: VictimKind = VictimKind.POD, namespace: str = "jobs") -> Begun:
    why = Why("rule", "too much")
    return Begun(
        Victim(kind, uid), "t", "c", 1, "o", "BEMemoryEvict", why, 0.0, 30.0,
        namespace=namespace, name="be",
    )  # fmt: skip


def way(client: Client, mode: Mode, away: Callable[[], str] = str) -> EvictionApi:
    async def evict(namespace: str, name: str, uid: str) -> None:
        await client.evict(namespace, name, uid=uid)

    made = EvictionApi()
    made.connect(evict, mode, away)
    return made


async def asked(made: EvictionApi, uid: str) -> Progress:
    progress = made.begin(begun(uid))
    assert isinstance(progress, Progress) and not progress.final and not progress.kills
    await until(lambda: progress.done)
    return progress


def names(fake: FakeKube) -> list[str]:
    found = fake.store.all(fake.resource("pods"), "", Selector())
    return [each["metadata"]["name"] for each in found]


def budget(fake: FakeKube, name: str = "b", allowed: int = 0) -> None:
    body = {
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "be"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    fake.store.create(fake.resource("poddisruptionbudgets"), "jobs", body)


def test_a_pod_goes() -> None:
    async def run() -> None:
        async with fake_cluster() as (fake, client):
            uid = await make_pod(client, "be")
            budget(fake, allowed=1)
            progress = await asked(way(client, Mode.ONLY_API), uid)
            assert progress == Progress(done=True, kills=False)
            assert names(fake) == []

    asyncio.run(run())


@pytest.mark.parametrize("mode", [Mode.API_FIRST, Mode.ONLY_API])
@pytest.mark.parametrize(("budgets", "error"), [(1, "a disruption budget"), (2, "more than one")])
def test_a_budget_forbids_it(mode: Mode, budgets: int, error: str) -> None:
    async def run() -> None:
        async with fake_cluster() as (fake, client):
            uid = await make_pod(client, "be")
            for number in range(budgets):
                budget(fake, f"b{number}")
            progress = await asked(way(client, mode), uid)
            assert error in progress.error and names(fake) == ["be"]
            assert progress.forbids == (mode is Mode.ONLY_API)
            assert (ITSELF in progress.error) == (mode is Mode.API_FIRST)

    asyncio.run(run())


@pytest.mark.parametrize("mode", [Mode.API_FIRST, Mode.ONLY_API])
def test_another_pod_of_its_name_stays(mode: Mode) -> None:
    async def run() -> None:
        async with fake_cluster() as (fake, client):
            await make_pod(client, "be")
            progress = await asked(way(client, mode), "an-older-one")
            assert names(fake) == ["be"]
            assert progress.error.endswith(ITSELF) and not progress.forbids

    asyncio.run(run())


def test_a_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ANSWER_S", 0.2)

    async def run() -> None:
        async with fake_cluster() as (fake, client):
            uid = await make_pod(client, "be")
            fake.faults.add(Fault(lambda what: "eviction" in what, after_s=None))
            progress = await asked(way(client, Mode.ONLY_API), uid)
            assert progress.error == f"no answer in 0.2 s: {ITSELF}" and not progress.forbids
        async with Client(Cluster("http://127.0.0.1:9", "nobody")) as client:
            progress = await asked(way(client, Mode.ONLY_API), uid)
            assert ITSELF in progress.error and not progress.forbids

    asyncio.run(run())


def test_nobody_is_asked() -> None:
    async def run() -> None:
        async with fake_cluster() as (fake, client):
            assert EvictionApi().begin(begun("u")) == NO_CLUSTER
            first = way(client, Mode.API_FIRST)
            assert first.begin(begun("job", VictimKind.APPLICATION)) == "only evicts pods"
            assert "name in the cluster is not known" in str(first.begin(begun("u", namespace="")))
            assert "not asked" in str(way(client, Mode.NODE).begin(begun("u")))
            away = way(client, Mode.API_FIRST, lambda: "no answer for 20 s")
            assert away.begin(begun("u")) == (
                f"the API server is away (no answer for 20 s): {ITSELF}"
            )
            first.disconnect()
            assert first.begin(begun("u")) == NO_CLUSTER
            assert sum(fake.requests.values()) == 0

    asyncio.run(run())
