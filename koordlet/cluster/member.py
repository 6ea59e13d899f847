"""The node as a member of its cluster: one client, a mirror of each kind it reads, and whoever
reports. Imports aiohttp: imported where a cluster is configured.

While the API server is away everything stays as it was known last, over restarts too
(``known.py``), and the node acts by itself. One mirror looks for the server each few seconds, and
the others follow when it answers: a thousand nodes ask it for little, and not at once.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

import structlog

from koordlet.cluster.around import Around
from koordlet.cluster.beside import KubeletFollower
from koordlet.cluster.definitions import Definitions
from koordlet.cluster.known import Known, save
from koordlet.cluster.kubelet_config import Allocation, KubeletConfig
from koordlet.cluster.node import cluster_node
from koordlet.cluster.options import IN_CLUSTER, Options
from koordlet.cluster.pods import facts_of, uid_of
from koordlet.cluster.shapes import NODE_SLOS, NODES, PODS, Node, NodeSLO, Pod
from koordlet.decision.snapshot import Fault
from koordlet.kube import credentials
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.errors import CredentialsError
from koordlet.kube.following import LOOK_S, follow
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Change, Mirror
from koordlet.kube.objects import Object
from koordlet.state.listed import MOST_PODS

log = structlog.get_logger()

PROBLEM = "cluster"
AGAIN_S = 10.0
"""Between two looks for credentials, and before a part that has failed runs again."""
STEADY_S = 60.0
"""A part that ran for so long has worked: when it fails anew, that is told."""
SAVE_S, HEARD_S = 1.0, 60.0
"""What changed is on disk after this time; when the server was heard last, after the other one."""
MOST_REFUSED = 20
MOST_OF_A_NAME = 10
"""Objects of one name. There is one: more are no answer to what was asked."""

Task = Callable[["Member"], Awaitable[None]]
"""Something that speaks with the cluster until it is cancelled."""
T = TypeVar("T", Node, NodeSLO)
S = TypeVar("S", bound=Object)
AnyMirror = Mirror[Node] | Mirror[NodeSLO] | Mirror[Pod]


class Member:
    """``tasks`` run as soon as there is a client, each for itself: add to them before ``run``.

    ``node`` and ``slo`` are the last known ones, at first those of ``known``. ``client`` is there
    while a task runs. ``deleted``: kinds whose object is gone on the server; the last one counts.
    """

    def __init__(
        self,
        options: Options,
        around: Around,
        tasks: Sequence[Task] = (),
        known: Known | None = None,
    ) -> None:
        self.options = options
        self.around = around
        self.definitions = Definitions()
        self.tasks = [*tasks]
        self.known = known or Known(options.node)
        self.cluster: Cluster | None = None
        self.client: Client | None = None
        self.node: Node | None = self.known.node
        self.slo: NodeSLO | None = self.known.slo
        self.nodes: Mirror[Node] | None = None
        self.slos: Mirror[NodeSLO] | None = None
        self.pods: Mirror[Pod] | None = None
        self.kubelet: KubeletFollower | None = None
        self.deleted: set[str] = set()
        self.topology: Mapping[str, str] = {}
        self._changed = False
        self._saved_s = -math.inf
        self._watched: list[Mirror[Any]] = []
        """All of them, those of who reports included."""
        self._without_uid: dict[str, str] = {}
        self._faults_logged = 0
        self._ends = False

    def mirrors(self) -> tuple[AnyMirror, ...]:
        return tuple(each for each in (self.nodes, self.slos, self.pods) if each is not None)

    @property
    def is_away(self) -> bool:
        """Whether the API server cannot be heard at present."""
        return self.nodes is None or not self.nodes.synced or bool(self.nodes.error)

    def by_name(
        self, client: Client, kind: Kind[S], on_change: Callable[[tuple[Change[S], ...]], None]
    ) -> Mirror[S]:
        """A mirror of the object of the node's name, which follows the one that looks for the
        server."""
        return self._watch(client, kind, on_change, pause=self.follow, most_wait_s=AGAIN_S)

    def _watch(
        self,
        client: Client,
        kind: Kind[S],
        on_change: Callable[[tuple[Change[S], ...]], None],
        *,
        fields: str = "",
        most: int = MOST_OF_A_NAME,
        most_wait_s: float = AGAIN_S,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> Mirror[S]:
        made = Mirror(
            client,
            kind,
            on_change,
            fields=fields or f"metadata.name={self.options.node}",
            most=most,
            most_wait_s=most_wait_s,
            pause=pause,
            clock=self.around.host.monotonic,
            on_fault=partial(self._faulty, kind.name),
        )
        self._watched = [each for each in self._watched if each.kind is not kind] + [made]
        return made

    def _faulty(self, kind: str, text: str) -> None:
        if self._faults_logged < MOST_REFUSED:
            self._faults_logged += 1
            log.warning("an object of the API server cannot be read", kind=kind, why=text)
        self._show_refused()

    def stalled(self) -> tuple[str, ...]:
        """Kinds of which nothing is heard for long, and why."""
        return tuple(f"{m.kind.name}: {m.stalled}" for m in self._watched if m.stalled)

    def unreadable(self) -> dict[str, int]:
        """Kind -> objects that could not be read as they are, since the start."""
        return {each.kind.name: each.trouble.count for each in self._watched}

    def took_topology(self, annotations: Mapping[str, str]) -> None:
        """Annotations of the node's NodeResourceTopology, as they are from now on."""
        if annotations != self.topology:
            self.topology = dict(annotations)
            self.tell_node()

    def tell_node(self) -> None:
        """What is known of the machine from all who know something."""
        config: KubeletConfig | None = None
        held: tuple[Allocation, ...] = ()
        if self.kubelet is not None:
            config, held = self.kubelet.config, self.kubelet.held
        self.around.took_node(cluster_node(self.node, self.topology, config, held))

    async def run(self) -> None:
        """Run until it is cancelled."""
        self.cluster = await self._cluster()
        client = Client(self.cluster, per_second=self.options.per_second, burst=self.options.burst)
        async with client:
            self.client = client
            self._mirror(client)
            self.kubelet = KubeletFollower(self, self.cluster)
            try:
                async with asyncio.TaskGroup() as group:
                    for mirror in self.mirrors():
                        group.create_task(self._kept(str(mirror.kind), mirror.run))
                    group.create_task(self._kept("kubelet", self.kubelet.run))
                    group.create_task(self._kept("objects on disk", self._keep_known))
                    group.create_task(
                        self._kept("definitions", partial(self.definitions.run, self))
                    )
                    for task in self.tasks:
                        name = getattr(task, "__name__", type(task).__name__).strip("_")
                        group.create_task(self._kept(name, partial(task, self)))
                    try:
                        await asyncio.Event().wait()
                    finally:
                        self._ends = True
            finally:
                self.client = None

    async def _cluster(self) -> Cluster:
        """Where the API server is, as soon as that can be known."""
        while True:
            try:
                found = cluster_of(self.options)
            except CredentialsError as error:
                if self.around.problems.get(PROBLEM) != str(error):
                    log.error("no credentials for the cluster", error=str(error))
                self.around.problems[PROBLEM] = str(error)
                await asyncio.sleep(AGAIN_S)
            else:
                self.around.problems.pop(PROBLEM, None)
                return found

    def _mirror(self, client: Client) -> None:
        name = self.options.node
        self.nodes = self._watch(client, NODES, self._nodes_changed, most_wait_s=LOOK_S)
        self.slos = self.by_name(client, NODE_SLOS, self._slos_changed)
        if self.options.pods != "kubelet":
            self.pods = self._watch(
                client,
                PODS,
                self._pods_changed,
                fields=f"spec.nodeName={name},status.phase!=Succeeded,status.phase!=Failed",
                most=MOST_PODS,
                pause=self.follow,
            )

    async def follow(self, seconds: float) -> None:
        """Wait for the mirror that looks for the server, or for ``seconds`` where it has it."""
        nodes = self.nodes
        await follow(
            lambda: nodes is not None and bool(nodes.error), seconds, self.around.host.monotonic
        )

    async def _kept(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """A part that fails is shown, runs again, and stops no other. What it fails of each time is
        logged once."""
        part, logged, clock = f"{PROBLEM}: {name}", "", self.around.host.monotonic
        while True:
            begun_s = clock()
            try:
                await work()
                return
            except Exception as error:  # the isolation boundary: one part, whatever it raised
                if self._ends:  # a group of tasks that fails now has forgotten its cancellation
                    return
                text = _words(error)
                if text != logged or clock() - begun_s >= STEADY_S:
                    log.error("part failed", part=part, exc_info=error)
                self.around.problems[part] = logged = text
            await asyncio.sleep(AGAIN_S)
            self.around.problems.pop(part, None)

    async def _keep_known(self) -> None:
        """The last known objects on disk."""
        clock = self.around.host.monotonic
        while True:
            await asyncio.sleep(SAVE_S)
            self._look_at_mirrors()
            due = not self.is_away and clock() - self._saved_s >= HEARD_S
            if not self._changed and not due:
                continue
            self._changed, self._saved_s = False, clock()
            heard_s = self.around.host.time()
            known = Known(self.options.node, heard_s, self.node, self.slo)
            error = await asyncio.to_thread(save, self.options.state_dir, known)
            self.known = known
            part = f"{PROBLEM}: objects on disk"
            if error:
                self.around.problems[part] = error
                self._saved_s = clock()
            else:
                self.around.problems.pop(part, None)

    def _look_at_mirrors(self) -> None:
        api = self.around.listed["api"]
        if self.pods is not None:
            api.error = self.pods.error
        self._show_refused()

    def _show_refused(self) -> None:
        """Some at a time: authors of pods can make as many as they like."""
        found = {
            f"{each.kind.name.lower()} {name}": why
            for each in self._watched
            for name, why in each.trouble.objects.items()
        }
        found |= {f"pod {name}": why for name, why in self._without_uid.items()}
        self.around.listed["api"].refused = tuple(
            Fault(subject, "", why) for subject, why in islice(found.items(), MOST_REFUSED)
        )

    def _nodes_changed(self, changes: tuple[Change[Node], ...]) -> None:
        node = self._last(self.nodes, changes, self.node)
        if node is not None and node is not self.node:
            self.node = node
            self.tell_node()

    def _slos_changed(self, changes: tuple[Change[NodeSLO], ...]) -> None:
        slo = self._last(self.slos, changes, self.slo)
        if slo is not None and slo is not self.slo:
            self.slo = slo
            self.around.took_slo(slo)

    def _last(
        self, mirror: Mirror[T] | None, changes: Sequence[Change[T]], old: T | None
    ) -> T | None:
        """What counts from now on: the object, and ``old`` where it is gone, by hand or by mistake:
        who acts on it goes on with what it said."""
        if mirror is None:
            return old
        kind = mirror.kind.name
        self._changed |= bool(changes)
        now = next(iter(mirror.objects.values()), None)
        if now is not None:
            self.deleted.discard(kind)
        elif old is not None and kind not in self.deleted:
            self.deleted.add(kind)
            log.warning("deleted; what it said last stays in force", object=kind)
        return now or old

    def _pods_changed(self, changes: tuple[Change[Pod], ...]) -> None:
        api = self.around.listed["api"]
        for change in changes:
            name = str(change.key)
            if change.new is None or uid_of(change.new):
                self._without_uid.pop(name, None)
            elif name not in self._without_uid and len(self._without_uid) < MOST_REFUSED:
                self._without_uid[name] = "its uid is no uid"
                self._faulty(PODS.name, f"{name}: {self._without_uid[name]}")
        self._show_refused()
        if not api.listed and self.pods is not None:
            api.replace(facts_of(pod) for pod in self.pods.objects.values() if uid_of(pod))
        else:
            new = [change.new for change in changes if change.new is not None]
            kept = {uid_of(pod) for pod in new}
            gone = {uid_of(change.old) for change in changes if change.old is not None}
            api.put(facts_of(pod) for pod in new if uid_of(pod))
            api.drop(gone - kept)


def _words(error: Exception) -> str:
    """Of a group, its first one: which tasks a part is made of says nothing to its user."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


def cluster_of(options: Options) -> Cluster:
    """Raises CredentialsError."""
    if options.api != IN_CLUSTER:
        return credentials.from_kubeconfig(options.api, options.context)
    found = credentials.in_cluster()
    if found is None:
        raise CredentialsError(
            'cluster.api = "in-cluster": KUBERNETES_SERVICE_HOST is not set, so this is no pod of '
            "a cluster; name a kubeconfig file"
        )
    return found
