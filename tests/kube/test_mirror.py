"""A mirror is right about the server's objects, however the watch was interrupted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from koordlet.kube.mirror import Change, Keep, Key, Mirror
from tests.fakekube import FakeKube, Fault
from tests.kube.kinds import CONFIG_MAPS, ConfigMap
from tests.kube.worlds import OpenWorld, World, fake_world, until


class Watched:
    """A mirror of the ConfigMaps of the test's namespace, and all changes that it told."""

    def __init__(self, world: World, **options: Any) -> None:
        self.changes: list[Change[ConfigMap]] = []
        self.faults: list[str] = []
        self.mirror: Mirror[ConfigMap] = Mirror(
            world.client,
            CONFIG_MAPS,
            self.changes.extend,
            namespace=world.namespace,
            on_fault=self.faults.append,
            **options,
        )

    @property
    def data(self) -> dict[str, str]:
        return {k.name: o.data.get("v", "") for k, o in self.mirror.objects.items()}

    async def shows(self, **data: str) -> None:
        await until(lambda: self.data == data)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Watched]:
        task = asyncio.create_task(self.mirror.run())
        try:
            await until(lambda: self.mirror.synced)
            yield self
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


@contextlib.asynccontextmanager
async def watching() -> AsyncIterator[tuple[World, FakeKube, Watched]]:
    async with fake_world() as (world, fake):
        watched = Watched(world)
        async with watched.running():
            await until(lambda: bool(fake.faults.watchers))
            yield world, fake, watched


def test_it_lists_and_then_follows(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world, Watched(world).running() as w:
            await world.put("a", "1")
            await w.shows(a="1")
            await world.put("a", "2")
            await world.put("b", "1")
            await w.shows(a="2", b="1")
            await world.drop("a")
            await w.shows(b="1")
            assert [(c.key.name, c.old is None, c.new is None) for c in w.changes] == [
                ("a", True, False),
                ("a", False, False),
                ("b", True, False),
                ("a", False, True),
            ]

    asyncio.run(run())


def test_a_cut_watch_goes_on_where_it_was() -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            await world.put("a", "1")
            await w.shows(a="1")
            fake.faults.cut_watches()
            await world.put("a", "2")
            await w.shows(a="2")
            assert w.mirror.lists == 1

    asyncio.run(run())


def test_a_version_that_is_gone_makes_it_list_anew() -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            await world.put("a", "1")
            await world.put("b", "1")
            await w.shows(a="1", b="1")
            fake.faults.refuse_watches()
            fake.faults.cut_watches()
            await world.put("a", "2")
            await world.drop("b")
            await world.put("c", "1")
            fake.store.compact()
            fake.faults.pending.clear()
            await w.shows(a="2", c="1")
            assert w.mirror.lists == 2
            assert w.mirror.error == ""

    asyncio.run(run())


def test_a_bookmark_saves_the_list() -> None:
    """Nothing changed here for long, much elsewhere: without it the version would be too old."""

    async def run() -> None:
        async with watching() as (world, fake, w):
            await world.put("a", "1")
            await w.shows(a="1")
            node = fake.resource("nodes")
            fake.store.create(node, "", {"metadata": {"name": "n"}})
            fake.bookmark()
            await until(lambda: w.mirror._version == str(fake.store.version))
            fake.store.compact()
            fake.faults.cut_watches()
            await world.put("a", "2")
            await w.shows(a="2")
            assert w.mirror.lists == 1

    asyncio.run(run())


def test_it_keeps_what_it_knows_while_the_server_is_away() -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            await world.put("a", "1")
            await w.shows(a="1")
            fake.faults.down = True
            fake.faults.cut_watches()
            await until(lambda: bool(w.mirror.error))
            assert w.data == {"a": "1"}
            assert fake.url in w.mirror.error or "watch" in w.mirror.error
            fake.faults.down = False
            await until(lambda: w.mirror.error == "")
            await world.put("a", "2")
            await w.shows(a="2")

    asyncio.run(run())


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_in_pieces(size: int) -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            fake.faults.piece_bytes = size
            for number in range(5):
                await world.put("a", str(number))
            await world.put("b", "ä€" * 50)
            await w.shows(a="4", b="ä€" * 50)

    asyncio.run(run())


def test_pages(open_world: OpenWorld) -> None:
    async def run() -> None:
        async with open_world() as world:
            w = Watched(world, page=3)
            for number in range(10):
                await world.put(f"m{number}", "1")
            async with w.running():
                pass
            assert len(w.mirror.objects) == 10

    asyncio.run(run())


def test_an_object_that_cannot_be_read_keeps_its_last_state() -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            await world.put("a", "1")
            await world.put("b", "1")
            await w.shows(a="1", b="1")
            resource = fake.resource("configmaps")
            fake.store.merge(resource, (world.namespace, "a"), {"data": {"v": 7}})
            await world.put("b", "2")
            await w.shows(a="1", b="2")
            assert w.faults and f"{world.namespace}/a" in w.faults[0]
            assert w.mirror.objects[Key(world.namespace, "a")].data == {"v": "1"}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("versions", "served"), [(("v9", "v8", "v1"), "v1"), (("v1", "v9"), "v1"), (("v9", "v8"), "")]
)
def test_of_several_versions_the_best_that_the_server_has(
    versions: tuple[str, ...], served: str
) -> None:
    async def story() -> None:
        async with fake_world() as (world, _):
            turns: list[tuple[bool, str]] = []

            async def pause(_: float) -> None:
                turns.append((found.missing, found.kind.version))
                await asyncio.sleep(0)

            kind = replace(CONFIG_MAPS, version=versions[0], versions=versions)
            found = Mirror(world.client, kind, lambda _: None, pause=pause)
            task = asyncio.create_task(found.run())
            await until(lambda: found.synced or len(turns) > 3)
            task.cancel()
            assert found.kind.version == served if served else not found.synced
            assert found.missing is not found.synced
            # All versions are asked before each pause, and it never seems to be there meanwhile.
            assert turns == [(True, versions[0])] * len(turns)

    asyncio.run(story())


def test_a_busy_server_is_asked_when_it_says() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.add(Fault(lambda what: what.startswith("GET"), status=429, retry_after_s=1))
            w = Watched(world, draw=lambda: 0.0)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            async with w.running():
                pass
            assert loop.time() - begun >= 1.0

    asyncio.run(run())


def test_a_mirror_that_keeps_nothing_still_knows_what_differs_after_a_list() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            w = Watched(world)
            w.mirror.keep = Keep.NOTHING
            async with w.running():
                await until(lambda: bool(fake.faults.watchers))
                await world.put("a", "1")
                await world.put("b", "1")
                await until(lambda: len(w.changes) == 2)
                fake.faults.refuse_watches()
                fake.faults.cut_watches()
                await world.put("a", "2")
                fake.store.compact()
                fake.faults.pending.clear()
                await until(lambda: w.mirror.lists == 2)
                told = [(c.key.name, c.new.data["v"] if c.new else None) for c in w.changes]
                assert told == [("a", "1"), ("b", "1"), ("a", "2")]
                assert all(isinstance(each, int) for each in w.mirror.objects.values())

    asyncio.run(run())
