"""Figures of quotas on the fake API server (docs/reference/central.md 4.10)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

from koord_scheduler.daemon.access import QUOTA_STATUS
from koord_scheduler.daemon.controller import Context, Controller, Part
from koord_scheduler.daemon.process import Companion
from koord_scheduler.daemon.quota_status import QuotaStatus, revoke_overuse
from koord_scheduler.kube.quota_feed import follow_quotas
from koord_scheduler.kube.quota_shapes import QUOTAS as READ
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.share.quota.quotas import Quotas
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.quota import DEFAULT, PREFIX, ROOT, SYSTEM
from tests.companion.running import cluster, companion, tree
from tests.companion.running import make as create
from tests.companion.share.quota.build import World, amounts, quota
from tests.fakekube import FakeKube, Fault
from tests.kube.worlds import World as Server
from tests.kube.worlds import until

QUOTAS = Kind("scheduling.sigs.k8s.io", "v1alpha1", "ElasticQuota", "elasticquotas", True, Object)
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", False, Object)
GROUP = "koordinator-system"
PART = Part("quotastatus", "scheduler", "for tests", f"{__name__}:_controller", QUOTA_STATUS)
_worlds: list[World] = []


class _Both(Controller):
    def __init__(self, context: Context, quotas: Quotas) -> None:
        self._context, self._quotas = context, quotas
        self._status = QuotaStatus(context, quotas)

    async def run(self) -> None:
        end = follow_quotas(self._context.watches.of(READ, optional=True), self._quotas)
        try:
            await self._status.run()
        finally:
            end()


def _controller(context: Context) -> Controller:
    return _Both(context, _worlds[-1].quotas)


@contextlib.asynccontextmanager
async def _running(world: World) -> AsyncIterator[tuple[Server, FakeKube, Companion]]:
    _worlds.append(world)
    try:
        async with cluster() as (server, fake):
            with contextlib.suppress(RefusedError):  # a real server has it already
                await create(server, NAMESPACES, {"metadata": {"name": GROUP}})
            async with companion(server, PART) as made:
                yield server, fake, made
    finally:
        _worlds.pop()


async def _quota(server: Server, name: str, least: Any, most: Any) -> None:
    body = {"metadata": {"name": name}, "spec": {"min": least, "max": most}}
    await create(server, QUOTAS, body, server.namespace)


def _says(fake: FakeKube, server: Server, name: str, figure: str) -> Any:
    found = tree(fake, "elasticquotas", name, server.namespace).get("metadata", {})
    text = found.get("annotations", {}).get(PREFIX + figure)
    return json.loads(text) if text else None


def test_a_quota_says_what_it_may_use_and_follows_its_pods() -> None:
    async def story() -> None:
        world = World(amounts(100, 1000))
        async with _running(world) as (server, fake, made):
            await _quota(server, "a", {"cpu": "10"}, {"cpu": "40"})
            await until(lambda: _says(fake, server, "a", "runtime") == {"cpu": "0"})
            waiting = world.request("a", amounts(50))
            await until(lambda: _says(fake, server, "a", "runtime") == {"cpu": "40"})
            assert _says(fake, server, "a", "request") == {"cpu": "50"}
            world.run(waiting)
            used = {"used": {"cpu": "50"}}
            await until(
                lambda: tree(fake, "elasticquotas", "a", server.namespace).get("status") == used
            )
            # What others write over the figures is put right.
            change = {
                "metadata": {"annotations": {f"{PREFIX}runtime": "{}", "mine": "1"}},
                "status": {"used": {"cpu": "1", "gone": "1"}},
            }
            await server.client.patch(QUOTAS, "a", change, server.namespace)
            await until(
                lambda: (
                    _says(fake, server, "a", "runtime") == {"cpu": "40"}
                    and tree(fake, "elasticquotas", "a", server.namespace)["status"] == used
                )
            )
            notes = tree(fake, "elasticquotas", "a", server.namespace)["metadata"]["annotations"]
            assert notes["mine"] == "1"
            page = made.context.metrics.page()
            labels = f'name="a",resource="cpu",tree="",is_parent="false",parent="{ROOT}"'
            assert f'scheduler_elastic_quota_status{{{labels},field="used"}} 50000' in page
            assert f'scheduler_elastic_quota_spec{{{labels},field="max"}} 40000' in page

    asyncio.run(story())


def test_the_built_in_quotas_are_made() -> None:
    async def story() -> None:
        async with _running(World(amounts(1))) as (_, fake, _made):
            names = (ROOT, SYSTEM, DEFAULT)
            await until(lambda: all(tree(fake, "elasticquotas", each, GROUP) for each in names))
            root = tree(fake, "elasticquotas", ROOT, GROUP)["metadata"]["labels"]
            assert root[f"{PREFIX}is-parent"] == "true"
            assert root[f"{PREFIX}allow-lent-resource"] == "false" and root[f"{PREFIX}parent"] == ""
            system = tree(fake, "elasticquotas", SYSTEM, GROUP)
            assert system["spec"]["max"] == {"cpu": str(2**63 // 5), "memory": str(2**63 // 5)}

    asyncio.run(story())


def test_a_steady_state_is_not_written_and_a_refusal_is_tried_again() -> None:
    async def story() -> None:
        world = World(amounts(100))
        async with _running(world) as (server, fake, made):
            path = f"{QUOTAS.path(server.namespace)}/a"
            fake.faults.add(Fault(lambda what: what == f"PATCH {path}", status=503))
            await _quota(server, "a", {}, {"cpu": "40"})
            await until(lambda: _says(fake, server, "a", "runtime") == {"cpu": "0"})
            watched = made.context.watches.of(READ, optional=True)
            await until(
                lambda: any(
                    f"{PREFIX}runtime" in each.metadata.annotations
                    for key, each in watched.objects.items()
                    if key.name == "a"
                )
            )
            await asyncio.sleep(1.5)
            before = sum(made.context.writes.tally.counts.values())
            await asyncio.sleep(2.5)  # two rounds
            assert sum(made.context.writes.tally.counts.values()) == before

    asyncio.run(story())


def test_a_quota_that_is_refused_does_not_hold_up_the_others() -> None:
    async def story() -> None:
        world = World(amounts(100))
        async with _running(world) as (server, fake, _):
            path = f"{QUOTAS.path(server.namespace)}/a"
            refused = Fault(lambda what: what == f"PATCH {path}", times=10**9, status=422)
            fake.faults.add(refused)
            await _quota(server, "a", {}, {"cpu": "40"})
            await until(lambda: refused.met > 0)
            await _quota(server, "b", {}, {"cpu": "40"})
            await until(lambda: _says(fake, server, "b", "runtime") == {"cpu": "0"})

    asyncio.run(story())


def test_what_was_lent_is_asked_back() -> None:
    async def story() -> None:
        world = World(
            amounts(20),
            quota("a", amounts(10), amounts(20)),
            quota("b", amounts(10), amounts(20)),
            monitor_all_quotas=True,
            revoke_pod_interval="1ms",
        )
        running = [world.request("a", amounts(10), f"p{at}") for at in range(2)]
        for at, each in enumerate(running):
            world.run(each, at)
        world.request("b", amounts(10))
        now_s = 0.0
        asked: list[tuple[str, str]] = []

        def clock() -> float:
            nonlocal now_s
            now_s += 50.0
            return now_s

        async def evict(made: Pod, why: str) -> None:
            asked.append((made.uid, why))
            world.quotas.forget(made.key)
            world.cluster.remove(made.key)

        task = asyncio.create_task(revoke_overuse(world.quotas, evict, clock))
        await until(lambda: bool(asked))
        at_s = now_s
        await until(lambda: now_s > at_s + 1000)
        task.cancel()
        assert asked == [("p1", "quota a uses cpu 20 and may use cpu 10 now")]

    asyncio.run(story())


def test_revocation_that_is_off_ends_at_once() -> None:
    async def nobody(_made: Pod, _why: str) -> None:
        raise AssertionError

    asyncio.run(asyncio.wait_for(revoke_overuse(Quotas(), nobody, lambda: 0.0), 60))
