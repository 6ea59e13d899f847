"""Preemptions and the eviction ledger."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from koord_scheduler.balance.ledger import Ledger
from koord_scheduler.daemon.scheduler.preempting import Evictions
from koord_scheduler.kube.writes import NotLeadingError, Writes
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.plan.preemption.pods import Preemption
from koordlet.kube.errors import NoAnswerError, NotSentError, RefusedError
from koordlet.kube.objects import Metadata, Object
from tests.companion.balance.build import NOW_S, pod


class Client:
    """``fails``: what a verb ends with. ``on_patch`` is called in each. ``version``: of the pod,
    which others may write to as well."""

    def __init__(self, **fails: Exception) -> None:
        self.fails, self.sent = fails, list[str]()
        self.on_patch: Any = lambda: None
        self.version = 1

    def there(self) -> Object:
        return Object(metadata=Metadata("old", "default", resource_version=str(self.version)))

    async def get(self, *_: Any, **__: Any) -> Object:
        return self.there()

    async def patch(self, _kind: Any, name: str, body: Any, *_: Any, **__: Any) -> Object:
        await asyncio.sleep(0)
        (condition,) = body["status"]["conditions"]
        if body["metadata"].get("resourceVersion", str(self.version)) != str(self.version):
            raise RefusedError("another version", 409, "Conflict")
        self._does("patch", f"{condition['type']} {condition['status']} {name}")
        self.version += 1
        stored = self.there()
        self.on_patch()
        return stored

    async def delete(self, _kind: Any, name: str, *_: Any, **__: Any) -> None:
        await asyncio.sleep(0)
        self._does("delete", f"delete {name}")

    def _does(self, verb: str, text: str) -> None:
        if verb in self.fails:
            raise self.fails[verb]
        self.sent.append(text)


def victim(name: str, since_s: float) -> Pod:
    return pod(name, "n1", created_s=since_s, scheduled_s=since_s).pod


HIGH = pod("high").pod
FOUND = Preemption(HIGH, "n1", (victim("old", NOW_S - 100),))


def evictions(client: Client, ledger: Ledger, waits: Any = lambda _pod: True) -> Evictions:
    events = SimpleNamespace(tell=lambda *_: None)
    made: Any = client
    writes = Writes(made, lambda: True)
    context: Any = SimpleNamespace(ledger=ledger, writes=writes, events=events, wall=lambda: NOW_S)
    return Evictions(context, waits)


def test_of_two_at_the_same_time_the_second_sees_the_first() -> None:
    client, ledger = Client(), Ledger()
    made = evictions(client, ledger)
    first = Preemption(HIGH, "n1", (victim("old", NOW_S - 100),))
    second = Preemption(HIGH, "n1", (victim("new", NOW_S - 1),))

    async def both() -> None:
        await asyncio.gather(made.preempt(first), made.preempt(second))

    asyncio.run(both())
    assert client.sent == ["DisruptionTarget True old", "delete old"]
    assert (made.count, ledger.refusals["repeat"]) == (1, 1)


@pytest.mark.parametrize(
    ("fails", "kept"),
    [
        ({"patch": RefusedError("no", 403)}, False),
        ({"patch": NoAnswerError("late")}, False),
        ({"delete": RefusedError("gone", 404)}, False),
        ({"delete": RefusedError("busy", 429)}, False),
        ({"delete": NotSentError("down")}, False),
        ({"delete": NotLeadingError("no")}, False),
        ({"delete": RefusedError("timeout", 504)}, True),
        ({"delete": NoAnswerError("late")}, True),
    ],
)
def test_what_did_not_come_about_is_given_back(fails: dict[str, Exception], kept: bool) -> None:
    ledger = Ledger()
    made = evictions(Client(**fails), ledger)
    asyncio.run(made.preempt(FOUND))
    assert bool(ledger.entries(NOW_S)) is kept
    assert made.count == 0 and ledger.noted["scheduler"] == kept


def test_nobody_goes_for_a_pod_that_needs_no_room_any_more() -> None:
    """History 106723: it went between both writes."""
    client, ledger, waiting = Client(), Ledger(), [HIGH]
    client.on_patch = waiting.clear
    made = evictions(client, ledger, lambda each: each in waiting)
    asyncio.run(made.preempt(FOUND))
    assert client.sent == ["DisruptionTarget True old", "DisruptionTarget False old"]
    assert not ledger.entries(NOW_S)
    client.sent.clear()
    asyncio.run(made.preempt(FOUND))
    assert not client.sent


@pytest.mark.parametrize(("others", "is_told"), [(0, True), (1, True), (2, True), (3, False)])
def test_that_it_stays_is_said_of_the_version_that_is_there(others: int, is_told: bool) -> None:
    """History 266: a request that was held up on its way unsaid what was said later. A kubelet
    that writes in between must not keep it from being said."""
    client, ledger, waiting, left = Client(), Ledger(), [HIGH], [None] * others

    def meanwhile() -> None:
        waiting.clear()
        if left:
            left.pop()
            client.version += 1

    async def get(*_: Any) -> Object:
        read = client.there()
        if left:
            meanwhile()
        return read

    client.on_patch, client.get = meanwhile, get  # type: ignore[method-assign]
    asyncio.run(evictions(client, ledger, lambda each: each in waiting).preempt(FOUND))
    expected = ["DisruptionTarget True old"] + ["DisruptionTarget False old"] * is_told
    assert client.sent == expected
    assert not ledger.entries(NOW_S)
