"""What the upstream plugins share: whose pods they look at, and a plugin made of one function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from koord_scheduler.balance.round import Round
from koord_scheduler.balance.selecting import (
    Namespaces,
    check_namespaces,
    check_selector,
    namespace_allowed,
)
from koord_scheduler.balance.world import Resident
from koord_scheduler.model.cluster.arguments import Args, read_args
from koord_scheduler.model.cluster.nodes import Node
from koordlet.protocol.selector import LabelSelector, matches


class PodArgs(Args, frozen=True):
    """Of plugins that look at pods one by one."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None


A = TypeVar("A", bound=Args)


@dataclass(frozen=True)
class Simple(Generic[A]):
    """A plugin that remembers nothing."""

    name: str
    args: A
    function: Callable[[A, Round], None]

    def run(self, round_: Round) -> None:
        self.function(self.args, round_)


def made(
    name: str, shape: type[A], args: Mapping[str, Any], function: Callable[[A, Round], None]
) -> Simple[A]:
    """Raises ArgumentError."""
    found = read_args(name, shape, args)
    for field in ("namespaces", "evictable_namespaces"):
        check_namespaces(name, field, getattr(found, field, None))
    check_selector(name, "labelSelector", getattr(found, "label_selector", None))
    return Simple(name, found, function)


def selected(args: PodArgs, resident: Resident) -> bool:
    return namespace_allowed(args.namespaces, resident.namespace) and (
        args.label_selector is None or matches(args.label_selector, resident.pod.labels)
    )


def evictable(round_: Round, args: PodArgs, node: Node) -> list[Resident]:
    """Pods of a node, finished ones too, that may go; those that matter least first."""
    found = [
        each
        for each in round_.world.on(node.name)
        if selected(args, each) and round_.may_evict(each)
    ]
    return sorted(found, key=rank)


def rank(resident: Resident) -> tuple[int, int, float, str]:
    """As upstream: priority, then Kubernetes' QoS, then age (the oldest first)."""
    qos = {"BestEffort": 0, "Burstable": 1}.get(resident.pod.cls.kube_qos, 2)
    return resident.pod.cls.priority, qos, resident.pod.created_s, resident.pod.key
