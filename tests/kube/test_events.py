"""What users see of a pod or a node, however often it happens."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from koordlet.kube.events import KEPT, Events, Subject
from koordlet.protocol.selector import is_subdomain
from tests.fakekube import FakeKube, Fault
from tests.fakekube.selectors import Selector
from tests.kube.worlds import fake_world, until

EVERY_S = 0.3


def _told(fake: FakeKube) -> list[tuple[str, int]]:
    found = fake.store.all(fake.resource("events"), "", Selector())
    return [(each["message"], each["count"]) for each in found]


def test_the_same_event_is_counted() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            events = Events(world.client, "koordlet", "n1", every_s=EVERY_S)
            pod = Subject("v1", "Pod", world.namespace, "p", "u1")
            task = asyncio.create_task(events.run())
            for _ in range(5):
                events.tell(pod, "Warning", "Evicted", "memory ran out")
            await until(lambda: bool(_told(fake)))
            assert _told(fake) == [("memory ran out", 5)]
            events.tell(pod, "Warning", "Evicted", "memory ran out")
            events.tell(pod, "Normal", "Suppressed", "to 2 CPUs")
            await until(lambda: len(_told(fake)) == 2)
            await until(lambda: ("memory ran out", 6) in _told(fake))
            assert events.error == ""
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    asyncio.run(run())


def test_the_name_of_a_long_pod_is_cut_to_one_that_the_server_takes() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            events = Events(world.client, "koordlet", every_s=0.01)
            task = asyncio.create_task(events.run())
            for end in ("-", "."):
                name = f"{'a' * 199}{end}{'b' * 40}"
                events.tell(Subject("v1", "Pod", world.namespace, name, end), "Normal", "R", end)
            await until(lambda: len(_told(fake)) == 2)
            for each in fake.store.all(fake.resource("events"), "", Selector()):
                assert is_subdomain(each["metadata"]["name"])
            task.cancel()

    asyncio.run(run())


def test_an_event_of_the_latest_says_what_was_told_last() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            events = Events(world.client, "koordlet", every_s=0.01)
            pod = Subject("v1", "Pod", world.namespace, "p", "u1")
            task = asyncio.create_task(events.run())
            for number in range(3):
                text = f"0/{number} nodes"
                events.tell(pod, "Warning", "FailedScheduling", text, latest=True)
                want = [(text, number + 1)]
                await until(lambda want=want: _told(fake) == want)  # type: ignore[misc]
            task.cancel()

    asyncio.run(run())


def test_an_event_that_the_server_forgot_is_made_again() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            events = Events(world.client, "koordlet", every_s=EVERY_S)
            node = Subject("v1", "Node", "", "n1", "u")
            task = asyncio.create_task(events.run())
            events.tell(node, "Normal", "Started", "hello")
            await until(lambda: bool(_told(fake)))
            resource = fake.resource("events")
            (event,) = fake.store.all(resource, "default", Selector())
            fake.store.delete(resource, ("default", event["metadata"]["name"]), {})
            events.tell(node, "Normal", "Started", "hello")
            await until(lambda: _told(fake) == [("hello", 2)])
            task.cancel()

    asyncio.run(run())


def test_an_event_that_was_forgotten_while_it_was_written_gives_way_to_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("koordlet.kube.events.KEPT", 3)

    async def run() -> None:
        async with fake_world() as (world, fake):
            events = Events(world.client, "koordlet", every_s=EVERY_S)
            slow = fake.faults.add(Fault(lambda what: True, before_s=0.2, status=503))
            task = asyncio.create_task(events.run())
            pod = Subject("v1", "Pod", world.namespace, "p", "u1")
            events.tell(pod, "Normal", "R", "told again")
            await until(lambda: slow.met > 0)
            for message in ("0", "1", "2", "told again", "told again"):
                events.tell(pod, "Normal", "R", message)
            await until(lambda: ("told again", 2) in _told(fake))
            task.cancel()

    asyncio.run(run())


def test_a_server_that_is_away_costs_events_at_most() -> None:
    async def run() -> None:
        async with fake_world() as (world, fake):
            events = Events(world.client, "koordlet", every_s=EVERY_S)
            refusal = fake.faults.add(Fault(lambda what: True, 10**9, status=503))
            task = asyncio.create_task(events.run())
            pod = Subject("v1", "Pod", world.namespace, "p", "u1")
            events.tell(pod, "Normal", "R", "kept")
            await until(lambda: "503" in events.error)
            refusal.times = 0
            await until(lambda: _told(fake) == [("kept", 1)])
            task.cancel()
            for number in range(KEPT + 10):
                events.tell(pod, "Normal", "R", str(number))
            assert len(events._known) == KEPT
            assert events.dropped == 10  # and the one that was written before

    asyncio.run(run())
