"""Writes the status of the node's NodeMetric
(docs/reference/metrics.md 5). The manager makes the object;
until it is there nothing is reported."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from typing import Any

import structlog

from koordlet.cluster.member import Member
from koordlet.cluster.reporting.kinds import NODE_METRICS, NodeMetricObject
from koordlet.cluster.reporting.lent import Lent
from koordlet.cluster.reporting.node_metric import (
    Who,
    level_of,
    policy_of,
    status_steps,
)
from koordlet.cluster.reporting.trigger import BURST, PER_SECOND, Level, Pace, Trigger
from koordlet.kube.backoff import Backoff
from koordlet.kube.client import Client
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.mirror import Change, Key, Mirror
from koordlet.protocol.decode import decode_partly
from koordlet.protocol.objects.node_metric import NodeMetricSpec, NodeMetricStatus
from koordlet.state.snapshot import TsdbView

log = structlog.get_logger()

LOOK_S = 2.0
"""Between two looks at what usage does: one costs some 0.1 ms."""
SPREAD_S = 2.0
"""The first report comes at random in this time, so that a thousand nodes that start together do
not report together."""
MOST_WAIT_S = 5.0
"""After a failed write."""
TRIES = 3
"""Of one report, where somebody else wrote the object meanwhile."""
NEWER_S = 1.0
"""Between two of them: for the watch to tell of it."""
PROBLEM = "NodeMetric"


class MetricReporter:
    """``status``, ``why``: of the last report. ``written``: how many there were. ``reported_s``:
    monotonic. ``unheard``: why the server does not tell of the object; empty while it does."""

    __name__ = "NodeMetric"

    def __init__(self, lent: Lent) -> None:
        self.written = 0
        self.why = self.unheard = ""
        self.reported_s: float | None = None
        self.status: NodeMetricStatus | None = None
        self._lent = lent
        self._host = lent.around.host
        now_s = self._host.monotonic()
        pace = Pace(PER_SECOND, BURST, now_s)
        self._trigger = Trigger(pace, lent.step_percent, reported_s=now_s)
        self._backoff = Backoff(random.random, first_s=0.5, most_s=MOST_WAIT_S)
        self._spec: dict[str, Any] | None = None
        self.policy = policy_of(NodeMetricSpec())
        self._version = ""
        """Of the object as we wrote it last, until the mirror has it."""
        self._is_missing = False

    async def __call__(self, member: Member) -> None:
        """Run until it is cancelled."""
        assert member.client is not None
        name = member.options.node
        mirror = member.by_name(member.client, NODE_METRICS, self._changed)
        async with asyncio.TaskGroup() as group:
            group.create_task(mirror.run())
            await asyncio.sleep(SPREAD_S * random.random())
            while True:
                wait_s = await self._step(member.client, mirror, name)
                await asyncio.sleep(wait_s)

    def _changed(self, changes: tuple[Change[NodeMetricObject], ...]) -> None:
        self._version = ""

    async def _step(self, client: Client, mirror: Mirror[NodeMetricObject], name: str) -> float:
        """How long to wait for the next one."""
        there = mirror.objects.get(Key("", name))
        self.unheard = mirror.error
        if mirror.error:  # what follows would only fail, after ten seconds
            return LOOK_S
        if there is None:
            if mirror.synced:
                self._say(f"there is no NodeMetric {name}: is the manager there?")
                self._is_missing = True
            return LOOK_S
        if self._is_missing:
            self._is_missing = False
            self._lent.around.problems.pop(PROBLEM, None)
        self._take(there)
        now_s = self._host.monotonic()
        view = TsdbView(self._lent.around.store, int(self._host.time() * 1000))
        node = self._lent.around.node()
        level = level_of(view, self.policy)
        capacity = Level(node.capacity_milli, node.memory_bytes)
        why = self._trigger.due(now_s, self.policy.interval_s, level, capacity)
        if not why:
            return LOOK_S
        try:
            status = await self._status(view)
            await self._write(client, mirror, there, status)
        except (KubeError, CredentialsError) as error:
            self._say(str(error))
            return self._backoff.next_s()
        self._lent.around.problems.pop(PROBLEM, None)
        self._backoff.reset()
        self._trigger.done(now_s, level)
        self.why, self.written = why, self.written + 1
        self.status, self.reported_s = status, now_s
        return LOOK_S

    def _say(self, why: str) -> None:
        problems = self._lent.around.problems
        if problems.get(PROBLEM) != why:
            log.warning("NodeMetric is not reported", why=why)
        problems[PROBLEM] = why

    def _take(self, there: NodeMetricObject) -> None:
        if there.spec == self._spec:
            return
        spec, problems = decode_partly(NodeMetricSpec, there.spec, strict=False)
        self._spec, self.policy = there.spec, policy_of(spec)
        log.log(
            logging.WARNING if problems else logging.INFO,
            "NodeMetric policy",
            window_s=self.policy.window_s,
            interval_s=self.policy.interval_s,
            memory=self.policy.memory,
            refused=[f"{each.path}: {each.reason}" for each in problems],
        )

    async def _status(self, view: TsdbView) -> NodeMetricStatus:
        around = self._lent.around
        who = Who(around.node(), around.state.pods(), around.state.applications())
        steps = status_steps(view, self.policy, who, self._lent.predicted(), self._host.time())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                status: NodeMetricStatus = end.value
                return status
            await asyncio.sleep(0)  # an alarm must not wait for a report

    async def _write(
        self,
        client: Client,
        mirror: Mirror[NodeMetricObject],
        there: NodeMetricObject,
        status: NodeMetricStatus,
    ) -> None:
        """A PUT: a merge patch would keep what this status leaves out."""
        name = there.metadata.name
        version = self._version or there.metadata.resource_version
        for more in reversed(range(TRIES)):
            body = {
                "apiVersion": NODE_METRICS.api_version,
                "kind": NODE_METRICS.name,
                "metadata": {"name": name, "resourceVersion": version},
                "status": status,
            }
            try:
                done = await client.replace(NODE_METRICS, name, body, subresource="status")
            except RefusedError as error:
                if not error.conflict or not more:
                    raise
                version = await self._newer(mirror, name, version)
            else:
                self._version = done.metadata.resource_version
                return

    async def _newer(self, mirror: Mirror[NodeMetricObject], name: str, version: str) -> str:
        """As the watch tells what somebody else wrote, or ``version`` where it does not."""
        self._version = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NEWER_S):
                while True:
                    there = mirror.objects.get(Key("", name))
                    if there is not None and there.metadata.resource_version != version:
                        return there.metadata.resource_version
                    await asyncio.sleep(0.02)
        return version
