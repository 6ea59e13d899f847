"""Objects that cannot be read, and servers that answer anything: each costs what it must and no
more."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator

import msgspec
import pytest

from koordlet.kube import mirror, paging
from koordlet.kube.answers import MOST_BYTES
from koordlet.kube.client import Client
from koordlet.kube.errors import NoAnswerError, RefusedError, TooLargeError, UnusableError
from koordlet.kube.mirror import Mirror
from koordlet.kube.paging import items
from koordlet.kube.trouble import STALLED_S, TOO_DEEP
from tests.fakekube import broken
from tests.fakekube.broken import Break, deep, events, pages
from tests.kube.kinds import CONFIG_MAPS, ConfigMap
from tests.kube.test_mirror import Watched, watching
from tests.kube.worlds import fake_world, until

CONFIG = "ConfigMap"


def config(name: str, value: str, version: int) -> str:
    return deep(name, CONFIG, 1, version, data={"v": value})


def once(breaks: Break) -> Break:
    """The first request alone; watches then stay open and silent."""
    left = [breaks]

    async def first(request: broken.web.Request) -> broken.web.StreamResponse | None:
        return await (left.pop() if left else broken.silent)(request)

    return first


class _Nothing(msgspec.Struct):
    pass


def _too_deep(levels: int) -> bool:
    """Whether this Python goes so deep to pass over what nobody reads: 1,000 levels at most up to
    3.12, 10,000 in 3.13, as many as the stack has room for since."""
    try:
        msgspec.json.decode(b'{"a":' + b"[" * levels + b"]" * levels + b"}", type=_Nothing)
    except RecursionError:
        return True
    return False


@pytest.mark.parametrize("levels", [900, 1500, 9000, 100_000])
def test_a_deep_object_stops_nobody_and_is_told_once(levels: int) -> None:
    """In a list and in a watch, and itself is read as well."""

    def page(number: int, _limit: int) -> list[str]:
        return [config("a", "1", 1), deep("b", CONFIG, levels, data={"v": "1"})]

    def lines() -> Iterator[str]:
        yield deep("c", CONFIG, levels, 2, data={"v": "2"})
        yield config("d", "2", 3)
        yield deep("c", CONFIG, levels, 4, data={"v": "4"})

    async def run() -> None:
        async with fake_world() as (world, fake):
            in_list, in_watch = pages(CONFIG, page, last=0), once(events(CONFIG, lines))

            async def breaks(request: broken.web.Request) -> broken.web.StreamResponse | None:
                return await (in_watch if broken.is_watch(request) else in_list)(request)

            fake.faults.breaks = breaks
            w = Watched(world)
            async with w.running():
                await w.shows(a="1", b="1", c="4", d="2")
                assert w.mirror._version == "4"
                deep_ones = ["default/b", "default/c"] if _too_deep(levels) else []
                assert [*w.mirror.trouble.objects] == deep_ones
                assert w.faults == [f"{name}: {TOO_DEEP}" for name in deep_ones]
                assert w.mirror.lists == 1

    asyncio.run(run())


def test_an_event_that_cannot_be_read_moves_the_version_on() -> None:
    bad = json.dumps({"kind": CONFIG, "metadata": {"name": "a", "resourceVersion": "7",
                      "labels": {"n": 1}}})  # fmt: skip

    async def run() -> None:
        async with fake_world() as (world, fake):
            w = Watched(world)
            async with w.running():
                fake.faults.breaks = once(events(CONFIG, lambda: iter([bad])))
                fake.faults.cut_watches()
                await until(lambda: w.mirror._version == "7")
                assert "a" in w.mirror.trouble.objects
                assert w.mirror.trouble.count == 1

    asyncio.run(run())


@pytest.mark.parametrize(
    "line", ['{"kind":"Pod","metadata":{"resourceVersion":"9"}}', '{"a":' * 5000, '{"kind":7}']
)
def test_an_event_that_says_no_version_makes_it_list_anew(line: str) -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            fake.faults.breaks = once(events(CONFIG, lambda: iter([line])))
            fake.faults.cut_watches()
            await until(lambda: bool(w.mirror.error))
            fake.faults.breaks = None
            await world.put("a", "1")
            await w.shows(a="1")
            assert w.mirror.lists == 2

    asyncio.run(run())


def test_another_answer_is_no_empty_list() -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            await world.put("a", "1")
            await w.shows(a="1")
            fake.faults.breaks = broken.another
            w.mirror._version = ""
            fake.faults.cut_watches()
            await until(lambda: "is no ConfigMapList" in w.mirror.error)
            assert w.data == {"a": "1"}
            for asked in (
                world.client.get(CONFIG_MAPS, "a", world.namespace),
                world.client.patch(CONFIG_MAPS, "a", {}, world.namespace),
                world.client.create(CONFIG_MAPS, {}, world.namespace),
            ):
                with pytest.raises(UnusableError, match="is no ConfigMap"):
                    await asked

    asyncio.run(run())


def test_a_server_that_hangs_is_asked_again_soon() -> None:
    """Also where it never answers what it was asked meanwhile."""

    async def run() -> None:
        async with fake_world() as (world, fake):
            w = Watched(world, most_wait_s=2.0, draw=lambda: 1.0)
            async with w.running():
                fake.faults.breaks = broken.silent
                fake.faults.cut_watches()
                await until(lambda: "no answer in time" in w.mirror.error)
                before = fake.requests.total()
                await until(lambda: fake.requests.total() >= before + 2)
                fake.faults.breaks = None
                async with asyncio.timeout(5.0):
                    await until(lambda: not w.mirror.error)

    asyncio.run(run())


def test_texts_of_errors_are_cut_and_the_wait_is_bounded() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.breaks = broken.wordy
            with pytest.raises(RefusedError) as wordy:
                await world.client.page(CONFIG_MAPS)
            assert wordy.value.status == 500
            assert len(str(wordy.value)) < 700
            fake.faults.breaks = broken.patient
            with pytest.raises(RefusedError) as patient:
                await world.client.page(CONFIG_MAPS)
            assert patient.value.retry_after_s == 60.0

    asyncio.run(run())


def test_a_page_that_is_too_large_is_asked_for_in_parts() -> None:
    """200 objects of 100 KiB are legal, and more than is taken at a time."""
    asked: list[int] = []

    def page(number: int, limit: int) -> Iterator[str]:
        asked.append(limit)
        return (config(f"c{number}-{each}", "x" * 100_000, 1) for each in range(limit))

    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.breaks = pages(CONFIG, page, last=3)
            world.client.holdings.most_bytes = 1 << 30
            w = Watched(world, page=200)
            async with w.running():
                assert asked == [200, 50, 50, 50, 50]
                assert len(w.mirror.objects) == 200
            fake.faults.breaks = pages(CONFIG, lambda *_: [config("a", "x" * MOST_BYTES, 1)])
            with pytest.raises(TooLargeError):
                async for _ in items(world.client, CONFIG_MAPS):
                    pass

    asyncio.run(run())


@pytest.mark.parametrize(
    ("token", "objects"), [("", 0), ("7", 1), (["1", "2", "3"], 1), (["1", "2"], 0)]
)
def test_a_list_ends(token: str | list[str], objects: int) -> None:
    """Where a page brings nothing, or the server says to go on from where it was before."""

    def page(number: int, _limit: int) -> list[str]:
        return [config(f"c{number}", "1", 1)] * objects

    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.breaks = pages(CONFIG, page, token=token)
            with pytest.raises(UnusableError, match="does not end"):
                async for _ in items(world.client, CONFIG_MAPS):
                    pass
            assert fake.requests.total() < 20

    asyncio.run(run())


def test_a_list_that_has_more_than_its_first_page_promised_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paging, "_SPARE_OBJECTS", 3)

    def page(number: int, _limit: int) -> list[str]:
        return [config(f"c{number}", "1", 1)]

    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.breaks = pages(CONFIG, page, remaining=9)
            found = 0
            with pytest.raises(UnusableError, match="does not end"):
                async for _ in items(world.client, CONFIG_MAPS):
                    found += 1
            assert found == 2 * 10 + 3 + 1
            fake.faults.breaks = pages(CONFIG, page, last=19, remaining=9)
            assert len([raw async for raw in items(world.client, CONFIG_MAPS)]) == 20

    asyncio.run(run())


def test_a_list_much_longer_than_what_is_known_is_taken_by_and_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One without end would take as much memory as the process has."""
    monkeypatch.setattr(mirror, "MOST_MORE_OBJECTS", 3)
    most: list[int] = []

    def page(number: int, _limit: int) -> list[str]:
        most.append(number + 1)
        return [config(f"c{number}", "1", 1)]

    async def run() -> None:
        async with fake_world() as (world, fake):
            await world.put("c0", "1")
            w = Watched(world, most_wait_s=0.01)
            async with w.running():
                await w.shows(c0="1")
                fake.faults.breaks = pages(CONFIG, page, last=29)
                fake.store.version += 1
                fake.store.compact()
                fake.faults.cut_watches()
                await until(lambda: len(w.mirror.objects) == 30)
                # 2 x 1 + 3 objects at first, then twice as many and so on.
                assert [a for a, b in itertools.pairwise(most) if b == 1] == [6, 11, 21]

    asyncio.run(run())


def test_no_more_objects_than_the_most_and_all_as_soon_as_there_is_room() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            for number in range(6):
                await world.put(f"m{number}", "1")
            w = Watched(world, page=2, most=5)
            async with w.running():
                await until(lambda: bool(fake.faults.watchers))
                await world.put("m7", "1")
                await until(lambda: w.mirror._version == str(fake.store.version))
                assert [*w.data] == [f"m{number}" for number in range(5)]
                assert any("more than 5" in each for each in w.faults)
                await world.drop("m0")
                fake.faults.cut_watches()
                await w.shows(**{f"m{number}": "1" for number in range(1, 6)})

    asyncio.run(run())


def test_large_objects_of_all_mirrors_together_have_a_bound() -> None:
    """Here: of two mirrors, whose large objects share the room of five."""
    large = "x" * (20 << 10)

    def sizes(w: Watched) -> dict[str, int]:
        return {name: len(text) for name, text in w.data.items()}

    async def run() -> None:
        async with fake_world() as (world, fake):
            world.client.holdings.most_bytes = 5 * (len(large) + 500)
            one, other = Watched(world), Watched(world)
            await world.put("small", "1")
            for number in range(2):
                await world.put(f"l{number}", large)
            async with one.running(), other.running():
                await until(lambda: len(fake.faults.watchers) == 2)
                await world.put("l2", large)
                await world.put("small", "2")
                await until(lambda: one.data.get("small") == other.data.get("small") == "2")
                assert sorted((len(one.data), len(other.data))) == [3, 4]
                assert "l2: no room" in "".join(one.faults + other.faults)
                assert world.client.holdings.bytes > 5 * len(large)
                await world.put("l1", large + "y" * 2000)  # its last good state stays
                await world.drop("l0")
                await until(lambda: "l0" not in one.data and "l0" not in other.data)
                assert sizes(one)["l1"] == sizes(other)["l1"] == len(large)
                fake.faults.cut_watches()
                whole = {"small": 1, "l1": len(large) + 2000, "l2": len(large)}
                await until(lambda: sizes(one) == sizes(other) == whole)
                assert not one.mirror.trouble.objects
            world.client.holdings.most_bytes = 0
            last = Watched(world)
            async with last.running():
                assert [*last.data] == ["small"]

    asyncio.run(run())


def test_a_watch_that_ends_at_once_is_asked_for_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float] = []
    sleep = asyncio.sleep

    async def pass_by(seconds: float) -> None:
        if seconds >= 0.05:  # of the mirror
            waits.append(seconds)
        await sleep(0.001)

    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.breaks = broken.short_watches
            w = Watched(world, draw=lambda: 1.0)
            monkeypatch.setattr("koordlet.kube.mirror.asyncio.sleep", pass_by)
            async with w.running():
                async with asyncio.timeout(20.0):
                    while len(waits) < 12:
                        await sleep(0.005)
                assert waits[:3] == [0.1, 0.2, 0.4]
                assert waits[-1] == 30.0
                assert w.mirror.lists == 1

    asyncio.run(run())


def test_a_mirror_that_gets_nowhere_says_so() -> None:
    async def run() -> None:
        now_s = 0.0
        async with fake_world() as (world, fake):
            w = Watched(world, clock=lambda: now_s)
            async with w.running():
                await until(lambda: bool(fake.faults.watchers))
                now_s = 1000.0
                assert not w.mirror.stalled
                fake.faults.breaks = broken.short_watches
                fake.faults.cut_watches()
                await until(lambda: w.mirror.watches > 2)
                assert not w.mirror.stalled
                now_s += STALLED_S + 1
                assert "its watches end at once" in w.mirror.stalled
                fake.faults.breaks = None
                await world.put("a", "1")
                await w.shows(a="1")
                assert not w.mirror.stalled

    asyncio.run(run())


def test_a_line_without_end_is_cut() -> None:
    async def run() -> None:
        async with watching() as (world, fake, w):
            fake.faults.breaks = broken.long_lines
            fake.faults.cut_watches()
            await until(lambda: "a line of more than" in w.mirror.error)
            fake.faults.breaks = None
            await world.put("a", "1")
            await w.shows(a="1")

    asyncio.run(run())


@pytest.mark.parametrize("breaks", [broken.brackets, broken.bomb])
def test_what_is_no_list_is_refused(breaks: Break) -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.breaks = breaks
            with pytest.raises(UnusableError):
                await world.client.page(CONFIG_MAPS)

    asyncio.run(run())


def test_watches_keep_to_the_budget_of_requests() -> None:
    async def run() -> None:
        async with (
            fake_world() as (world, fake),
            Client(world.cluster, per_second=1e-6, burst=1, deadline_s=0.2) as client,
        ):
            mirrors = [Mirror[ConfigMap](client, CONFIG_MAPS, lambda _: None) for _ in "ab"]
            tasks = [asyncio.create_task(each.run()) for each in mirrors]
            await asyncio.sleep(0.5)
            told = [what for what in fake.requests if CONFIG_MAPS.plural in what]
            assert sum(fake.requests[what] for what in told) <= 1
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


@pytest.mark.parametrize("what", ["list", "watch"])
def test_headers_have_a_deadline(what: str) -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            fake.faults.breaks = broken.silent
            with pytest.raises(NoAnswerError, match="no answer in time"):
                if what == "list":
                    await world.client.page(CONFIG_MAPS, begins_s=0.05)
                else:
                    stream = world.client.watch(CONFIG_MAPS, query={}, lasts_s=300, begins_s=0.05)
                    async for _ in stream:
                        pass

    asyncio.run(run())
