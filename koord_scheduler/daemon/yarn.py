"""Lets YARN use the batch resources of nodes that run a NodeManager, and tells Kubernetes what it
took (docs/reference/protocol.md 2.7). `docs/yarn.md` says how to set it up."""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from koord_scheduler.daemon.controller import Context, Controller
from koord_scheduler.kube.shapes import NODES, Node
from koord_scheduler.kube.writes import NotLeadingError, TooManyWritesError
from koord_scheduler.kube.yarn_shapes import (
    BATCH_PODS,
    NODE_HEADS,
    NODE_MANAGER_PODS,
    BatchPod,
    NodeManagerPod,
)
from koord_scheduler.model.amounts import Amounts
from koord_scheduler.overcommit.third_party import ALLOCATIONS
from koord_scheduler.services.metrics import Family, Values
from koord_scheduler.sinks import yarn_shares as shares
from koord_scheduler.sinks.yarn_client import (
    NO_ACCESS,
    Access,
    ResourceManager,
    YarnError,
    YarnNode,
)
from koord_scheduler.sinks.yarn_shares import NodeManager, Share
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.events import Subject
from koordlet.kube.lease import DEADLINE_S
from koordlet.kube.mirror import Change
from koordlet.protocol.errors import ProtocolError

EVERY_S = 20.0
"""How often YARN is compared with what it should say; changes of nodes come sooner."""
SETTLE_S = 5.0
"""At most one round in this time, however often nodes change."""
GONE_S = 600.0
"""A NodeManager that is away for this long is gone with its containers, as YARN itself says.
Before, it may be that only the ResourceManager began anew, and the containers go on."""
MISSED_S = 60.0
"""A NodeManager that is away for this long is told of at its node: one that only begins anew is
back sooner."""
_log = structlog.get_logger()


@dataclass(frozen=True)
class Setup:
    """From the command line. ``managers``: URLs by name of the cluster. ``namespace``: that of the
    pods of NodeManagers; in another, anybody could say that his pod is one."""

    managers: Mapping[str, tuple[str, ...]]
    access: Access = NO_ACCESS
    namespace: str = "hadoop-yarn"
    over_commit_timeout_ms: int = -1


class _Idle:
    async def run(self) -> None:
        await asyncio.Event().wait()


def make(context: Context) -> Controller:
    """It does nothing, and watches nothing, where no ResourceManager is named."""
    setup: Setup | None = context.options.extra.get("yarn")
    return Yarn(context, setup) if setup is not None and setup.managers else _Idle()


class Yarn:
    def __init__(self, context: Context, setup: Setup) -> None:
        self._context, self._setup = context, setup
        self._nodes = context.watches.of(NODES)
        self._batch = context.watches.of(BATCH_PODS, labels="koordinator.sh/qosClass=BE")
        self._agents = context.watches.of(
            NODE_MANAGER_PODS,
            namespace=setup.namespace,
            labels=f"{shares.NODE_MANAGER_LABEL}={shares.NODE_MANAGER_VALUE}",
        )
        self._requested: Counter[tuple[str, str]] = Counter()
        self._wake = asyncio.Event()
        self._mine: set[str] = set()
        """Nodes that have a NodeManager, or had one."""
        self._away_s: dict[str, float] = {}
        """Since when their NodeManagers are away."""
        self._over_s: dict[str, float] = {}
        """Since when they were told less than their containers have."""
        self._problems: dict[str, str] = {}
        """By node or cluster; each is told when it begins."""
        self._offered: dict[str, Share] = {}
        self._used: dict[str, Share] = {}
        self._updates = context.metrics.counter(
            "koord_scheduler_yarn_updates_total",
            "What a ResourceManager was told, by outcome.",
            "cluster",
            "outcome",
        )
        for family in _families(self):
            context.metrics.add(family)

    async def run(self) -> None:
        self._problems.clear()
        self._requested.clear()
        for pod in self._batch.objects.values():
            self._count(pod, 1)
        endings = (
            self._batch.listen(self._on_batch_pods),
            self._agents.listen(self._on_agents),
            self._nodes.listen(self._on_nodes),
        )
        try:
            await self._rounds()
        finally:
            for end in endings:
                end()

    def _on_batch_pods(self, changes: tuple[Change[BatchPod], ...]) -> None:
        for _, old, new in changes:
            if old is not None:
                self._count(old, -1)
            if new is not None:
                self._count(new, 1)
            if any(each.spec.node_name in self._mine for each in (old, new) if each is not None):
                self._wake.set()

    def _count(self, pod: BatchPod, sign: int) -> None:
        node = pod.spec.node_name
        self._requested[(node, "cpu")] += sign * pod.batch.cpu_milli
        self._requested[(node, "memory")] += sign * pod.batch.memory_bytes
        for key in ((node, "cpu"), (node, "memory")):
            if not self._requested[key]:
                del self._requested[key]

    def _on_agents(self, _changes: tuple[Change[NodeManagerPod], ...]) -> None:
        self._wake.set()

    def _on_nodes(self, changes: tuple[Change[Node], ...]) -> None:
        for change in changes:
            if change.new is None:
                self._forget(change.key.name)
            is_mine = change.key.name in self._mine or _is_named(change.new)
            if is_mine and _matters(change):
                self._wake.set()

    def _forget(self, node: str) -> None:
        for each in (
            self._away_s,
            self._over_s,
            self._problems,
            self._offered,
            self._used,
        ):
            each.pop(node, None)

    async def _rounds(self) -> None:
        """Compares again and again: a ResourceManager and a NodeManager that begin anew know
        nothing of what was told before."""
        async with contextlib.AsyncExitStack() as stack:
            managers: dict[str, ResourceManager] = {}
            while True:
                for cluster, urls in self._setup.managers.items():
                    if cluster in managers:
                        continue
                    manager = ResourceManager(urls, self._setup.access)
                    try:
                        managers[cluster] = await stack.enter_async_context(manager)
                    except YarnError as error:  # a file that may come later; the rest goes on
                        self._tell(f"cluster {cluster}", str(error))
                claims, orphans = self._claims()
                self._mine = {node.metadata.name for node, _ in claims} | {*orphans}
                for name in orphans:
                    await self._one("", None, name, None)
                for cluster, manager in managers.items():
                    await self._round(cluster, manager, self._by_agent(cluster, claims))
                await self._rest()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(EVERY_S * random.uniform(0.9, 1.1)):
                await self._wake.wait()
                await asyncio.sleep(SETTLE_S)
        except TimeoutError:
            pass
        self._wake.clear()

    async def _round(
        self, cluster: str, manager: ResourceManager, wanted: Mapping[NodeManager, Node]
    ) -> None:
        try:
            found = await manager.nodes()
        except YarnError as error:
            # What it took stays as it is: its containers go on without it.
            self._tell(f"cluster {cluster}", str(error))
            return
        self._settle(f"cluster {cluster}")
        for agent, node in wanted.items():
            running = _running(agent, found)
            missing = "" if running is not None else _missing(agent, found)
            await self._one(cluster, manager, node.metadata.name, running, missing)

    def _by_agent(
        self, cluster: str, claims: list[tuple[Node, NodeManager]]
    ) -> dict[NodeManager, Node]:
        """The node of each NodeManager of this cluster. One that two nodes claim is nobody's."""
        found: dict[NodeManager, list[Node]] = {}
        for node, agent in claims:
            if agent.cluster == cluster:
                found.setdefault(agent, []).append(node)
        for agent, nodes in found.items():
            if len(nodes) > 1:
                names = ", ".join(sorted(each.metadata.name for each in nodes)[:5])
                text = f"NodeManager {agent.host}:{agent.port} is claimed by several nodes: {names}"
                for node in nodes:
                    self._tell_node(node, text)
        return {agent: nodes[0] for agent, nodes in found.items() if len(nodes) == 1}

    def _claims(self) -> tuple[list[tuple[Node, NodeManager]], list[str]]:
        """Which node has which NodeManager, and the nodes whose NodeManager nobody names any more.
        What a node says of itself counts before what a pod on it says."""
        pods: dict[str, NodeManagerPod] = {}
        for _, pod in sorted(self._agents.objects.items()):
            if pod.status.phase == "Running" and shares.POD_NODE_ID in pod.metadata.annotations:
                pods.setdefault(pod.spec.node_name, pod)
        claims, orphans = [], []
        for key, node in self._nodes.objects.items():
            annotations = node.metadata.annotations
            keys = (shares.NODE_NODE_ID, shares.NODE_CLUSTER_ID)
            if shares.NODE_NODE_ID not in annotations:
                if key.name not in pods:
                    if shares.taken(annotations.get(ALLOCATIONS, "")) != shares.NOTHING:
                        orphans.append(key.name)
                    continue
                annotations = pods[key.name].metadata.annotations
                keys = (shares.POD_NODE_ID, shares.POD_CLUSTER_ID)
            try:
                agent = shares.node_manager(annotations, *keys)
            except ValueError as error:
                self._tell_node(node, str(error))
                continue
            if agent.cluster not in self._setup.managers:
                text = f"no --yarn-resource-manager is named for cluster {agent.cluster[:64]!r}"
                self._tell_node(node, text)
                continue
            claims.append((node, agent))
        return claims, orphans

    async def _one(
        self,
        cluster: str,
        manager: ResourceManager | None,
        name: str,
        yarn: YarnNode | None,
        missing: str = "",
    ) -> None:
        """``yarn`` None: its NodeManager does not run, as ``missing`` says."""
        node = self._nodes.get(name)
        if node is None:
            return
        now_s = self._context.clock()
        try:
            if yarn is not None and manager is not None:
                self._away_s.pop(name, None)
                await self._offer(cluster, manager, node, yarn)
                await self._told(node, yarn.used)
            elif now_s - self._away_s.setdefault(name, now_s) >= GONE_S:
                self._offered.pop(name, None)
                await self._told(node, shares.NOTHING)
        except YarnError as error:
            self._updates[(cluster, "failed")] += 1
            self._tell_node(node, str(error))
        except ProtocolError as error:
            self._tell_node(node, f"annotation {ALLOCATIONS}: {error}; remove or correct it")
        except (KubeError, CredentialsError, TooManyWritesError, NotLeadingError) as error:
            # The next round tries again.
            _log.debug("node waits", node=name, problem=str(error))
        else:
            if missing and now_s - self._away_s.get(name, now_s) >= MISSED_S:
                self._tell_node(node, missing)
            else:
                self._settle(name)

    async def _offer(
        self, cluster: str, manager: ResourceManager, node: Node, yarn: YarnNode
    ) -> None:
        name = node.metadata.name
        requested = Amounts(self._requested[(name, "cpu")], self._requested[(name, "memory")])
        wanted = shares.offered(node.facts, requested)
        self._offered[name] = wanted
        if shares.fits(yarn.used, yarn.total):
            self._over_s.pop(name, None)
        if not shares.is_due(yarn.total, wanted):
            return
        if not self._context.leads():
            raise NotLeadingError("this process does not lead")
        try:
            # It must have ended before another process may lead.
            async with asyncio.timeout(DEADLINE_S):
                await manager.offer(yarn.id, wanted, self._timeout_ms(name, yarn.used, wanted))
        except TimeoutError:
            raise YarnError(f"node {yarn.id}: no answer in time") from None
        self._updates[(cluster, "ok")] += 1

    def _timeout_ms(self, node: str, used: Share, wanted: Share) -> int:
        """Return how long containers that do not fit may go on. YARN counts from each offer anew
        (Hadoop 3.4.1), so that offers which follow each other would put their end off for ever:
        later ones carry what is left."""
        whole_ms = self._setup.over_commit_timeout_ms
        if whole_ms < 0 or shares.fits(used, wanted):
            return whole_ms
        now_s = self._context.clock()
        over_s = now_s - self._over_s.setdefault(node, now_s)
        return min(max(whole_ms - int(1000 * over_s), 0), whole_ms)

    async def _told(self, node: Node, used: Share) -> None:
        """The node's annotation says what YARN took. It is read anew before it is written, because
        others write to it too."""
        name = node.metadata.name
        self._used[name] = used
        if shares.taken(node.metadata.annotations.get(ALLOCATIONS, "")) == used:
            return
        try:
            head = await self._context.client.get(NODE_HEADS, name)
        except RefusedError as error:
            if error.missing:
                return
            raise
        old = head.metadata.annotations.get(ALLOCATIONS, "")
        text = shares.allocations_text(old, used)
        if (text or "") == old:
            return
        meta: dict[str, Any] = {
            "annotations": {ALLOCATIONS: text},
            "resourceVersion": head.metadata.resource_version,
        }
        await self._context.writes.patch(NODES, name, {"metadata": meta}, about=name)

    def _tell_node(self, node: Node, text: str) -> None:
        name = node.metadata.name
        if self._problems.get(name) != text:
            subject = Subject("v1", "Node", "", name, node.metadata.uid)
            self._context.events.tell(subject, "Warning", "YarnProblem", text)
        self._tell(name, text)

    def _tell(self, what: str, text: str) -> None:
        if self._problems.get(what) != text:
            _log.warning("yarn", about=what, problem=text)
        self._problems[what] = text

    def _settle(self, what: str) -> None:
        if self._problems.pop(what, None) is not None:
            _log.info("yarn is well again", about=what)

    def figures(self, offered: bool, cpu: bool) -> Values:
        """In cores and bytes, by node."""
        for name, share in (self._offered if offered else self._used).items():
            if self._nodes.get(name) is not None:
                yield (name,), float(share.vcores if cpu else share.memory_mib * shares.MIB)


def _families(yarn: Yarn) -> tuple[Family, ...]:
    """Under the names of the reference's operator."""
    return tuple(
        Family(
            f"yarn_node_{resource}{suffix}_resource",
            "gauge",
            f"{what}, in {unit}.",
            ("node",),
            partial(yarn.figures, offered, resource == "cpu"),
        )
        for resource, unit in (("cpu", "cores"), ("memory", "bytes"))
        for suffix, offered, what in (
            ("", True, "What YARN may use of a node"),
            ("_allocated", False, "What containers of YARN have"),
        )
    )


def _running(agent: NodeManager, nodes: list[YarnNode]) -> YarnNode | None:
    """Return None where it does not run, or where several may be meant: only a host is named, or
    its short name where the ResourceManager has full ones, or the other way round."""
    hosts = [(*each.id.rpartition(":")[::2], each) for each in nodes]
    right = [each for each in hosts if not agent.port or each[1] == str(agent.port)]
    same = [each for host, _, each in right if host == agent.host]
    found = same or [each for host, _, each in right if _is_one_host(host, agent.host)]
    return found[0] if len(found) == 1 else None


def _is_one_host(one: str, other: str) -> bool:
    """Return whether one is the short name of the other."""
    short, full = sorted((one, other), key=len)
    return "." not in short and full.startswith(f"{short}.")


def _missing(agent: NodeManager, nodes: list[YarnNode]) -> str:
    """A sentence: it does not run, and which of that name do."""
    name = f"{agent.host}:{agent.port}" if agent.port else agent.host
    label = agent.host.partition(".")[0]
    alike = sorted(each.id for each in nodes if re.match(rf"{re.escape(label)}[.:]", each.id))
    return f"the ResourceManager has no NodeManager {name} that runs" + (
        f"; it has {', '.join(alike[:3])}" if alike else ""
    )


def _is_named(node: Node | None) -> bool:
    return node is not None and shares.NODE_NODE_ID in node.metadata.annotations


def _matters(change: Change[Node]) -> bool:
    old, new = change.old, change.new
    if old is None or new is None:
        return True
    return (
        old.metadata.annotations != new.metadata.annotations
        or old.facts.extended_allocatable != new.facts.extended_allocatable
    )
