"""What declares gangs and the network between nodes, into the books of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.kube.scheduling.gang_shapes import (
    CORE_POD_GROUPS,
    NETWORKS,
    POD_GROUPS,
    CorePodGroup,
    NetworkTopology,
    PodGroup,
)
from koord_scheduler.kube.watches import Watches
from koord_scheduler.share.gang.declared import Gang, Source, from_core, from_pod_group
from koordlet.kube.mirror import Change, Key

THE_NETWORK = "default"


def follow_gangs(watches: Watches, scheduler: Scheduler) -> None:
    """Before the watches begin. A kind that the API server does not have declares nothing."""
    book = scheduler.parts.gangs
    if book is None:
        return
    args = book.args

    def from_crd(key: Key, item: PodGroup) -> Gang:
        spec, meta = item.spec, item.metadata
        return from_pod_group(
            "/".join(key),
            spec.min_member,
            spec.schedule_timeout_seconds,
            meta.annotations,
            item.metadata.created_s,
            args,
        )

    def from_kubernetes(key: Key, item: CorePodGroup) -> Gang:
        return from_core("/".join(key), item.minimum, item.metadata.created_s, args)

    def following(
        read: Callable[[Key, Any], Gang], source: Source
    ) -> Callable[[tuple[Change[Any], ...]], None]:
        def take(changes: tuple[Change[Any], ...]) -> None:
            for change in changes:
                if change.new is None:
                    group = book.remove_gang("/".join(change.key), source)
                else:
                    group = book.set_gang(read(change.key, change.new))
                scheduler.group_changed(group)

        return take

    watches.of(POD_GROUPS, optional=True).listen(following(from_crd, Source.POD_GROUP))
    watches.of(CORE_POD_GROUPS, optional=True).listen(following(from_kubernetes, Source.CORE))

    def on_network(changes: tuple[Change[NetworkTopology], ...]) -> None:
        for change in changes:
            if change.key.name == THE_NETWORK:
                scheduler.network.spec = change.new.spec if change.new is not None else None

    watches.of(NETWORKS, optional=True).listen(on_network)
