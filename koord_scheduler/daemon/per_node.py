"""What the controllers that keep one object right for each node have alike."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import msgspec
import structlog

from koord_scheduler.daemon.controller import Context
from koord_scheduler.kube.queue import Queue
from koord_scheduler.kube.shapes import NODES, Node, tree
from koord_scheduler.kube.writes import NotLeadingError, TooManyWritesError
from koord_scheduler.model.wire import Tree
from koord_scheduler.overcommit.merge_patch import dropped
from koordlet.kube.errors import RefusedError
from koordlet.kube.events import Subject
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Change
from koordlet.kube.objects import Object

T = TypeVar("T", bound=Object)

WORKERS = 8
_NOT_LEADING_S = 1.0
_COMPLAINT_S = 30.0
_MOST_REASONS = 32
_log = structlog.get_logger()


class Reconciles:
    """The queue of node names of one controller, and how its work went.

    ``metric`` is the reference's name of its counter, with labels status and reason.
    """

    def __init__(
        self,
        context: Context,
        name: str,
        metric: str,
        work: Callable[[str], Awaitable[float | None]],
    ) -> None:
        self.name = name
        self.queue = Queue(self._one, workers=WORKERS, on_error=self._failed, retry=_retry_s)
        self._work = work
        self._counts = context.metrics.counter(
            f"slo_controller_{metric}", f"Work of the controller {name}.", "status", "reason"
        )
        self._complained_s = float("-inf")
        self._silent = 0

    async def _one(self, node: str) -> float | None:
        again_s = await self._work(node)
        self._counts[("succeeded", "")] += 1
        return again_s

    def _failed(self, node: str, error: Exception) -> None:
        reason = _reason(error)
        if len(self._counts) >= _MOST_REASONS:
            reason = "Other"
        self._counts[("failed", reason)] += 1
        now_s = time.monotonic()
        if now_s - self._complained_s < _COMPLAINT_S:
            self._silent += 1
            return
        _log.warning(
            "reconcile failed",
            controller=self.name,
            node=node,
            error=str(error),
            others=self._silent,
        )
        self._complained_s, self._silent = now_s, 0


class Remarks:
    """What is wrong with nodes, told as events at the node: when it begins or changes, not with
    every report."""

    def __init__(self, context: Context, reason: str) -> None:
        self._context, self._reason = context, reason
        self._told: dict[str, tuple[str, ...]] = {}

    def tell(self, node: Node, problems: tuple[str, ...]) -> None:
        name = node.metadata.name
        if self._told.get(name, ()) == problems:
            return
        self.forget(name)
        if problems:
            self._told[name] = problems
        subject = Subject("v1", "Node", "", name, node.metadata.uid)
        for problem in problems:
            self._context.events.tell(subject, "Warning", self._reason, problem)

    def forget(self, name: str) -> None:
        self._told.pop(name, None)


def _reason(error: Exception) -> str:
    if isinstance(error, RefusedError) and error.reason:
        return error.reason
    return type(error).__name__.removesuffix("Error")


def _retry_s(error: Exception) -> float | None:
    if isinstance(error, TooManyWritesError):
        return error.wait_s
    return _NOT_LEADING_S if isinstance(error, NotLeadingError) else None


def node_differs(change: Change[Node]) -> bool:
    """Whether anything but the version of the object did."""
    old, new = change.old, change.new
    return old is None or new is None or old.facts != new.facts


class ObjectPerNode(Generic[T]):
    """Objects of ``kind``, one for each node and with its name: NodeMetrics, NodeSLOs.

    ``work`` is called with the name of each node and of each such object, and with all names again
    when the configuration changes.
    """

    def __init__(
        self,
        context: Context,
        kind: Kind[T],
        name: str,
        spec_of: Callable[[T], msgspec.Raw],
        work: Callable[[str], Awaitable[float | None]],
    ) -> None:
        context.configured.watch()
        self.nodes = context.watches.of(NODES)
        self.objects = context.watches.of(kind)
        self.reconciles = Reconciles(context, name, f"{name}_reconcile_count", work)
        self.parsed = context.metrics.counter(
            f"slo_controller_{name}_spec_parse_count",
            f"Specs of {kind.name}s made from the configuration.",
            "status",
            "reason",
        )
        self._context, self._kind, self._spec_of = context, kind, spec_of
        self._dropped: set[str] = set()
        """Paths of the spec that were told to be missing in the definition."""

    async def run(self) -> None:
        """Run until it is cancelled."""
        ends = [
            self.nodes.listen(self._on_nodes),
            self.objects.listen(self._on_objects),
            self._context.configured.listen(self._add_all),
        ]
        self._add_all()
        try:
            await self.reconciles.queue.run()
        finally:
            for end in ends:
                end()

    async def create(self, name: str, spec: Tree) -> None:
        kind = self._kind
        body = {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "metadata": {"name": name},
            "spec": spec,
        }
        try:
            self._check(spec, await self._context.writes.create(kind, body, about=name))
        except RefusedError as error:
            if not error.exists:  # made by somebody else, and the watch has not told yet
                raise

    async def patch(self, name: str, spec: Tree, metadata: Tree | None = None) -> None:
        """``spec``: a merge patch of it."""
        body: Tree = {"metadata": metadata or {}, "spec": spec}
        stored = await self._context.writes.patch(self._kind, name, body, about=name)
        self._check(spec, stored)

    async def delete_without_node(self, item: T) -> None:
        """Asks the server itself whether the node is gone: what goes with a node is not deleted
        because a watch says less than there is. Raises KubeError where it cannot be asked."""
        meta = item.metadata
        try:
            await self._context.client.get(NODES, meta.name)
            return
        except RefusedError as error:
            if not error.missing:
                raise
        try:
            await self._context.writes.delete(self._kind, meta.name, uid=meta.uid, about=meta.name)
        except RefusedError as error:
            if not error.missing:
                raise

    def _check(self, sent: Tree, stored: T) -> None:
        """Tell, once for each, which fields of the spec the server has dropped."""
        found = set(dropped(sent, tree(self._spec_of(stored)) or {})) - self._dropped
        if not found:
            return
        self._dropped |= found
        name, kind = f"{self._kind.plural}.{self._kind.group}", self._kind.name
        fields = ", ".join(f"spec.{path}" for path in sorted(self._dropped))
        text = (
            f"The definition of {kind} that is installed does not have {fields}: the API server "
            "dropped them, and no node gets them. Apply deploy/crds; helm upgrades no definitions."
        )
        subject = Subject("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name, "")
        self._context.events.tell(subject, "Warning", "FieldsDropped", text, latest=True)
        _log.warning("fields were dropped", kind=kind, fields=fields)

    def _add_all(self) -> None:
        names = {key.name for key in (*self.nodes.objects, *self.objects.objects)}
        self.reconciles.queue.add_all(sorted(names))

    def _on_nodes(self, changes: tuple[Change[Node], ...]) -> None:
        self.reconciles.queue.add_all(c.key.name for c in changes if node_differs(c))

    def _on_objects(self, changes: tuple[Change[T], ...]) -> None:
        """What koordlet reports there is no concern of these controllers."""
        self.reconciles.queue.add_all(
            change.key.name
            for change in changes
            if change.old is None
            or change.new is None
            or self._spec_of(change.old) != self._spec_of(change.new)
        )
