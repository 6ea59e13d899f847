"""The process: watches, lease, controllers, health; crash-only.

What a controller knows stands in the API server, so ending at any instant loses nothing, and a
controller that fails with what nobody expected ends the process: whoever runs it starts it anew.
What one object can cause is another matter: it costs that object alone (`kube/queue.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import operator
import signal
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import structlog

from koord_scheduler.daemon.configured import Configured
from koord_scheduler.daemon.controller import (
    MANAGER,
    SCHEDULER,
    Context,
    Controller,
    Options,
    Part,
)
from koord_scheduler.kube.watches import Watched, Watches
from koord_scheduler.kube.writes import Writes
from koord_scheduler.services.http import Answer, parse_address, serving
from koord_scheduler.services.metrics import Family, Labels, Metrics, Values
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.events import Events
from koordlet.kube.lease import DEADLINE_S, Leadership
from koordlet.serving.garbage import collect_seldom

AGENT = "koord-scheduler"
_MOST_NAMED = 20
_MOST_LARGE_BYTES = 32 << 20
"""Most bytes of large objects of a cluster (`Holdings`)."""
_LONG_S = 15.0
"""A controller that waits so long for what it watches says for what."""
_log = structlog.get_logger()


class Role:
    """Each role has a lease of its own, so that several processes may share them out."""

    def __init__(self, name: str, lease: str, elect: bool, client: Client) -> None:
        self.name, self.lease = name, lease
        self.events = Events(client, AGENT, may_write=self.leads)
        self.leadership: Leadership | None = None
        self.leading, self.changed = asyncio.Event(), asyncio.Event()
        self.writes: Writes | None = None
        self._elect = elect

    def leads(self) -> bool:
        return self.leadership.held() if self.leadership is not None else not self._elect


class Companion:
    """``run`` until it is cancelled. The ports are those that were had, for ``:0``.
    ``on_synced`` is called whenever a controller has everything that it watches."""

    def __init__(
        self,
        cluster: Cluster,
        options: Options,
        parts: Sequence[Part],
        on_synced: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self._on_synced = on_synced
        self.metrics_port = self.health_port = 0
        self.client = Client(
            cluster,
            agent=AGENT,
            per_second=options.requests_per_s,
            burst=options.requests_burst,
            # A write must have ended before another process may lead.
            deadline_s=DEADLINE_S,
            most_large_bytes=_MOST_LARGE_BYTES,
        )
        # Without parts it still is somebody who can lead.
        names = dict.fromkeys(part.role for part in parts) or {MANAGER: None}
        self._binding = Client(
            cluster,
            agent=AGENT,
            per_second=options.bindings_per_s,
            burst=options.bindings_burst,
            deadline_s=DEADLINE_S,
        )
        self.roles = {
            name: Role(name, options.lease_of(name), options.elect, self.client) for name in names
        }
        metrics = Metrics()
        watches = Watches(self.client, self._fault)
        events = Events(self.client, AGENT, may_write=self.leads)
        self.context = Context(
            options=options,
            client=self.client,
            watches=watches,
            writes=Writes(self.client, self.leads),
            events=events,
            metrics=metrics,
            configured=Configured(
                watches, events, self.leads, options.config_namespace, options.config_name
            ),
            leads=self.leads,
        )
        self.parts = tuple(parts)
        made: list[tuple[Part, Controller]] = []
        self._watched: dict[str, tuple[Watched[Any], ...]] = {}
        for part in parts:
            made.append((part, _made(part, self._context_of(part))))
            self._watched[part.name] = watches.asked()
        self.controllers: tuple[tuple[Part, Controller], ...] = tuple(made)
        self._declare_metrics(metrics)

    def leads(self, role: str = "") -> bool:
        """In one role, or in any."""
        return any(each.leads() for each in self.roles.values() if role in ("", each.name))

    def _context_of(self, part: Part) -> Context:
        """Every role writes while it leads itself."""
        role = self.roles[part.role]
        # Who binds hundreds of pods a second has a budget of its own.
        client = self._binding if part.role == SCHEDULER else self.client
        if role.writes is None:
            role.writes = Writes(client, role.leads, self.context.writes.tally)
        return replace(
            self.context, client=client, writes=role.writes, events=role.events, leads=role.leads
        )

    async def run(self) -> None:
        options, pages = self.options, self.context.pages
        page = self.context.metrics.page
        pages.setdefault("/metrics", lambda: (200, page()))
        pages.setdefault("/all-metrics", lambda: (200, page()))
        pages.setdefault("/internal-metrics", lambda: (200, page(internal=True)))
        pages.setdefault("/external-metrics", lambda: (200, page(internal=False)))
        health = {"/healthz": self._healthy, "/livez": self._healthy, "/readyz": self._ready}
        async with (
            self.client,
            self._binding,
            serving(
                parse_address(options.metrics_address), pages, self.context.routes
            ) as self.metrics_port,
            serving(parse_address(options.health_address), health) as self.health_port,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(self.context.watches.run(), name="watches")
            for events in (self.context.events, *(role.events for role in self.roles.values())):
                group.create_task(events.run(), name="events")
            group.create_task(self._run_controllers(), name="everywhere")
            identity = f"{socket.gethostname()}_{uuid.uuid4()}"
            for role in self.roles.values():
                on_change = functools.partial(self._on_lead, role)
                if options.elect:
                    role.leadership = Leadership(
                        self.client, options.lease_namespace, role.lease, identity, on_change
                    )
                    group.create_task(role.leadership.run(), name=f"lease {role.lease}")
                else:
                    on_change(True)
                group.create_task(self._while_leading(role), name=f"leader {role.name}")

    def _on_lead(self, role: Role, leads: bool) -> None:
        _log.info("leading" if leads else "no longer leading", role=role.name)
        (role.leading.set if leads else role.leading.clear)()
        role.changed.set()
        if leads:
            self.context.configured.tell()

    async def _while_leading(self, role: Role) -> None:
        while True:
            await role.leading.wait()
            task = asyncio.create_task(self._run_controllers(role.name))
            waiting = asyncio.create_task(_until_lost(role))
            try:
                await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
                if task.done():
                    task.result()
            finally:
                for each in (task, waiting):
                    each.cancel()
                await asyncio.gather(task, waiting, return_exceptions=True)

    async def _run_controllers(self, role: str = "") -> None:
        """Those of a role that leads; without a role, those that run everywhere."""
        async with asyncio.TaskGroup() as group:
            for part, controller in self.controllers:
                if (part.role == role) if part.leads else not role:
                    group.create_task(self._run_one(part, controller), name=part.name)
            await asyncio.Event().wait()

    async def _run_one(self, part: Part, controller: Controller) -> None:
        """When everything that it watches was listed: a kind that the server does not have stops
        those alone that need it."""
        waiting = asyncio.get_running_loop().call_later(_LONG_S, self._say_waiting, part)
        try:
            for each in self._watched[part.name]:
                await each.until_synced()
        finally:
            waiting.cancel()
        self._on_synced()
        await controller.run()

    def _waiting(self) -> Iterable[tuple[str, bool]]:
        for name, watched in self._watched.items():
            yield name, not all(each.synced for each in watched)

    def _say_waiting(self, part: Part) -> None:
        for each in self._watched[part.name]:
            if not each.synced:
                _log.warning(
                    "waits for a list",
                    controller=part.name,
                    kind=str(each.kind),
                    error=each.mirror.error,
                )

    def _healthy(self) -> Answer:
        return 200, "ok\n"

    def _ready(self) -> Answer:
        """Ready while everything that the server has was listed once and is heard of, and whoever
        is called from outside listens; a process that only waits to lead is ready."""
        watches = self.context.watches
        if waits := {**watches.stalled(), **watches.unsynced(), **self.context.unready}:
            return 503, _lines(waits)
        role = "leads" if self.leads() else "waits to lead"
        served = {kind: f"as {version}" for kind, version in watches.versions().items()}
        named = dict(islice(watches.unreadable(), _MOST_NAMED))
        told = {**served, **watches.unsynced(missing=True), **named}
        return 200, f"ok, {role}\n" + _lines(told)

    def _fault(self, text: str) -> None:
        _log.warning("object refused", problem=text)

    def _declare_metrics(self, metrics: Metrics) -> None:
        tally = self.context.writes.tally

        def by_kind(
            read: Callable[[Watched[Any]], float | None],
            join: Callable[[float, float], float],
        ) -> Callable[[], Values]:
            """Several watches of a kind, with selectors, are one line of the page."""

            def values() -> Values:
                found: dict[Labels, float] = {}
                for each in self.context.watches.all():
                    value, key = read(each), (str(each.kind),)
                    if value is not None:
                        found[key] = join(found[key], value) if key in found else value
                return tuple(found.items())

            return values

        def silent_s(each: Watched[Any]) -> float | None:
            heard_s = each.mirror.heard_s
            return None if heard_s is None else time.monotonic() - heard_s

        for family in (
            Family(
                "koord_scheduler_leader",
                "gauge",
                "1 where this process leads.",
                (),
                lambda: [((), float(self.leads()))],
            ),
            Family(
                "koord_scheduler_role_leader",
                "gauge",
                "1 where this process leads, by role.",
                ("role",),
                lambda: [((role.name,), float(role.leads())) for role in self.roles.values()],
            ),
            Family(
                "koord_scheduler_api_writes_total",
                "counter",
                "Requests that change something, by resource and verb.",
                ("resource", "verb"),
                lambda: [(key, float(n)) for key, n in tally.counts.items()],
            ),
            Family(
                "koord_scheduler_api_writes_deferred_total",
                "counter",
                "Writes put off because their node had its share of this minute.",
                (),
                lambda: [((), float(tally.refused))],
            ),
            Family(
                "koord_scheduler_api_writes_per_node_and_minute",
                "gauge",
                "Most writes about one node in the last full minute.",
                (),
                lambda: [((), float(tally.busiest()[1]))],
            ),
            Family(
                "koord_scheduler_watched_objects",
                "gauge",
                "Objects known, by resource.",
                ("resource",),
                by_kind(lambda each: float(len(each.objects)), operator.add),
            ),
            Family(
                "koord_scheduler_watch_listed",
                "gauge",
                "1 where all objects were listed once, 0 where not yet, by resource.",
                ("resource",),
                by_kind(lambda each: float(each.synced), min),
            ),
            Family(
                "koord_scheduler_controller_waiting",
                "gauge",
                "1 where a controller cannot begin, because something was not listed yet.",
                ("controller",),
                lambda: [((name,), float(waits)) for name, waits in self._waiting()],
            ),
            Family(
                "koord_scheduler_watch_silent_seconds",
                "gauge",
                "Since the API server last said anything, by resource.",
                ("resource",),
                by_kind(silent_s, max),
            ),
            Family(
                "koord_scheduler_objects_refused_total",
                "counter",
                "Objects of the API server that could not be read as they were, by resource.",
                ("resource",),
                by_kind(lambda each: float(each.mirror.trouble.count), operator.add),
            ),
        ):
            metrics.add(family)


async def _until_lost(role: Role) -> None:
    while role.leading.is_set():
        role.changed.clear()
        await role.changed.wait()


def _lines(reasons: Mapping[str, str]) -> str:
    return "".join(f"{what}: {why}\n" for what, why in sorted(reasons.items()))


def _made(part: Part, context: Context) -> Controller:
    module, _, function = part.make.partition(":")
    made: Any = getattr(importlib.import_module(module), function)(context)
    return made  # type: ignore[no-any-return]


async def run(cluster: Cluster, options: Options, parts: Sequence[Part]) -> None:
    """Until SIGTERM or SIGINT; the lease is then given back."""
    companion = Companion(cluster, options, parts, collect_seldom)
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await companion.run()
    except asyncio.CancelledError:
        if not stopped:
            raise
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError):
                loop.remove_signal_handler(number)
