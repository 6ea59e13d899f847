"""What declares gangs and the network between nodes, into the books of the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog

from koord_scheduler.daemon.scheduler.scheduler import Scheduler
from koord_scheduler.kube.gang_shapes import (
    CORE_POD_GROUPS,
    NETWORK_TOPOLOGIES,
    NETWORK_TOPOLOGY,
    POD_GROUPS,
    ClusterNetworkTopology,
)
from koord_scheduler.kube.gangs import gang_of_core, gang_of_group
from koord_scheduler.kube.watches import Watches
from koord_scheduler.plan.hints import Event
from koord_scheduler.share.gang.declared import CoschedulingArgs, Gang, Source
from koordlet.kube.mirror import Change

_log = structlog.get_logger()


def follow_gangs(watches: Watches, scheduler: Scheduler) -> None:
    """Before the watches begin. A kind that the API server does not have declares nothing."""
    book = scheduler.parts.gangs
    if book is None:
        return

    def following(
        read: Callable[[Any, CoschedulingArgs], Gang], source: Source
    ) -> Callable[[tuple[Change[Any], ...]], None]:
        def take(changes: tuple[Change[Any], ...]) -> None:
            groups: dict[str, None] = {}
            for change in changes:
                name = "/".join(change.key)
                before = book.gang(name)
                if change.new is None:
                    group = book.remove_gang(name, source)
                else:
                    group = book.set_gang(read(change.new, book.args))
                if book.gang(name) != before:  # else its status alone changed
                    groups[group] = None
            if groups:
                scheduler.changes.groups_changed(groups)
                scheduler.changes.happened(Event.GANG)

        return take

    watches.of(POD_GROUPS, optional=True).listen(following(gang_of_group, Source.POD_GROUP))
    core = watches.of(CORE_POD_GROUPS, optional=True)
    core.listen(following(gang_of_core, Source.CORE))

    def told(_: object) -> None:
        forget()
        _log.info("native gangs", of=core.mirror.kind.api_version)

    forget = core.listen(told)

    def on_network(changes: tuple[Change[ClusterNetworkTopology], ...]) -> None:
        for change in changes:
            if change.key.name == NETWORK_TOPOLOGY:
                scheduler.network.spec = change.new.spec if change.new is not None else None
                scheduler.changes.happened(Event.TOPOLOGY)

    watches.of(NETWORK_TOPOLOGIES, optional=True).listen(on_network)
