"""Pods as the container runtime knows them, with labels and annotations: CRI
(docs/reference/wire.md 3).

The runtime is asked when it or the cgroup tree says that something changed, and every few seconds
besides. What it reported stays while it does not answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import structlog

from koordlet.decision.facts import PodFacts
from koordlet.decision.given import Given
from koordlet.decision.snapshot import Application, Fault
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.socket_watch import SocketWatch, identity
from koordlet.state.cri_facts import READY, Details, pods_of
from koordlet.state.merge import bare_id
from koordlet.state.pod_table import PodTable

if TYPE_CHECKING:
    from koordlet.state.cri_client import Client

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0
GATHER_S = 0.2
"""After the first sign of a change: others come with it."""
AWAITED_S = 30.0
ABSENT_S = 5.0
_LOOKS_INTO = 16
"""Containers in one round, a call each."""
_STATUS_CALLS = 4
"""At a time, when many sandboxes are new."""

# First versions whose events go to every listener. Before, listeners took them from each other,
# and kubelet's own (EventedPLEG) would miss what we hear.
_EVENTS_SINCE = {"containerd": (2, 0), "cri-o": (1, 28)}

log = structlog.get_logger()


class CriSource:
    """``socket``: the runtime's own. ``interval_s``: between two lists when nothing happens.

    ``state`` says in words how things are, ``error`` what is wrong: empty while the runtime
    answers, and where there is none. It is synced when the runtime was listed, or ``AWAITED_S``
    after the start (``ABSENT_S`` where there is no socket): a dead runtime must not stop those
    who wait for all sources.
    """

    name = "cri"

    def __init__(self, host: Host, layout: Layout, socket: str, *, interval_s: float = 5.0) -> None:
        self._host = host
        self.socket = socket
        self._interval_s = interval_s
        self._table = PodTable(self.name, host, layout, on_move=self._moved, on_change=self._tell)
        self._on_change: Callable[[], None] = _nobody
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._started_s = host.monotonic()
        self._listed = False
        self._absent = False
        self._details: dict[str, Details] = {}
        self._as_of: dict[str, float] = {}
        self._sought: set[str] = set()
        self._given: dict[str, Given | None] = {}
        """From containers that were looked into; None: the runtime does not say."""
        self.state = "not started"
        self.error = ""

    @property
    def synced(self) -> bool:
        awaited_s = ABSENT_S if self._absent else AWAITED_S
        return self._listed or self._host.monotonic() - self._started_s >= awaited_s

    @property
    def tells_labels(self) -> bool:
        return not self._absent

    def start(self, on_change: Callable[[], None]) -> None:
        """Within a running event loop."""
        self._on_change = on_change
        self._started_s = self._host.monotonic()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="cri")

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        self._table.close()

    def rescan(self) -> None:
        self._table.rescan()
        self._table.publish()
        self.refresh()

    def refresh(self) -> None:
        """Something happened on the node: ask the runtime soon."""
        self._news.set()

    def look_into(self, container_ids: Iterable[str]) -> bool:
        """Find out what these containers were created with, soon. False where that is not to be
        expected of the runtime, or was tried for all of them."""
        if self._absent or self.error:
            return False
        new = {bare_id(each) for each in container_ids} - self._given.keys()
        if new - self._sought:
            self._sought |= new
            self.refresh()
        return bool(new)

    def pods(self) -> tuple[PodFacts, ...]:
        return self._table.published()

    def applications(self) -> tuple[Application, ...]:
        return ()

    def faults(self) -> tuple[Fault, ...]:
        if not self.error:
            return self._table.faults()
        text = f"{self.error}; labels and annotations of pods are those last known"
        return (Fault("source cri", self.socket, text), *self._table.faults())

    async def _run(self) -> None:
        delay_s, watch = FIRST_DELAY_S, SocketWatch(self.socket)
        try:
            while True:
                began_s, socket = self._host.monotonic(), identity(self.socket)
                try:
                    await self._session()
                except Exception as error:
                    # Isolation boundary: whatever a runtime answers, the source tries again, unless
                    # it was stopped: a group of tasks that fails forgets its cancellation.
                    if self._task is not asyncio.current_task():
                        return
                    self._lost(_text(error))
                if self._host.monotonic() - began_s > MAX_DELAY_S:
                    delay_s = FIRST_DELAY_S
                fresh = await watch.wait(socket, delay_s * random.uniform(0.8, 1.2))
                # A runtime that has started anew is asked at once.
                delay_s = FIRST_DELAY_S if fresh else min(2 * delay_s, MAX_DELAY_S)
        finally:
            watch.close()

    def _lost(self, error: str) -> None:
        if not self.error:
            log.warning("container runtime does not answer", socket=self.socket, error=error)
        self.error = error
        self.state = f"does not answer: {error}"

    async def _session(self) -> None:
        """Until the connection is lost, or there is none to be had."""
        self._absent = not os.path.exists(self.socket)
        if self._absent:
            if self._listed:
                self._lost("its socket is gone")
            else:
                self.error = ""
            self.state = f"no runtime at {self.socket}"
            return
        # In a thread: importing grpc takes a good part of a second of a busy machine.
        module = await asyncio.to_thread(importlib.import_module, "koordlet.state.cri_client")
        async with module.Client(self.socket) as client:
            name, version = await client.version()
            async with asyncio.TaskGroup() as tasks:
                if _shares_events(name, version):
                    tasks.create_task(self._listen(client))
                tasks.create_task(self._keep_listing(client, name, version))

    async def _listen(self, client: Client) -> None:
        async for _ in client.events():
            self._news.set()

    async def _keep_listing(self, client: Client, name: str, version: str) -> None:
        while True:
            self._news.clear()
            await self._list(client, name)
            if self.error or not self._listed:
                log.info("container runtime answers", runtime=name, version=version)
            self._listed = True
            self.state, self.error = f"connected to {name} {version}", ""
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._news.wait()
            await asyncio.sleep(GATHER_S)

    async def _list(self, client: Client, runtime: str) -> None:
        sandboxes = list(await client.sandboxes())
        containers = list(await client.containers())
        await self._look_into(client, [each.id for each in sandboxes if each.state == READY])
        ids = {each.id for each in sandboxes}
        self._details = {key: each for key, each in self._details.items() if key in ids}
        # Of now in monotonic time; kept, because both clocks differ by a little at each look.
        now_s, time_s = self._host.monotonic(), self._host.time()
        self._as_of = {
            each.id: self._as_of.get(each.id, now_s - max(time_s - each.created_at / 1e9, 0.0))
            for each in sandboxes
        }
        await self._look_into_containers(client, {each.id for each in containers})
        pods = pods_of(sandboxes, containers, self._details, self._as_of, runtime, self._given)
        for uid in self._table.uids() - {pod.uid for pod in pods}:
            self._table.drop(uid)
        for pod in pods:
            self._table.put(pod)
        self._table.publish()

    async def _look_into(self, client: Client, sandbox_ids: list[str]) -> None:
        limit = asyncio.Semaphore(_STATUS_CALLS)

        async def look(sandbox_id: str) -> None:
            async with limit:
                found = await client.details(sandbox_id)
            if found is not None:
                self._details[sandbox_id] = found

        async with asyncio.TaskGroup() as tasks:
            for sandbox_id in sandbox_ids:
                if sandbox_id not in self._details:
                    tasks.create_task(look(sandbox_id))

    async def _look_into_containers(self, client: Client, ids: set[str]) -> None:
        self._sought &= ids
        self._given = {key: each for key, each in self._given.items() if key in ids}
        for container_id in sorted(self._sought)[:_LOOKS_INTO]:
            self._sought.discard(container_id)
            self._given[container_id] = await client.given(container_id)
        if self._sought:
            self._news.set()

    def _moved(self, uids: set[str]) -> None:
        self._table.publish()

    def _tell(self) -> None:
        self._on_change()


def _text(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def _shares_events(name: str, version: str) -> bool:
    since = _EVENTS_SINCE.get(name)
    return since is not None and _numbers(version) >= since


def _numbers(version: str) -> tuple[int, ...]:
    """``v2.1.9-rc.1`` -> (2, 1)."""
    found = version.lstrip("v").split(".")[:2]
    return tuple(int(part) if part.isdigit() else 0 for part in found)


def _nobody() -> None:
    """Before ``start`` nobody wants to know."""
