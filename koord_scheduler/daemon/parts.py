"""All parts of the companion, one line each, in the order in which they start."""

from __future__ import annotations

from collections.abc import Sequence

from koord_scheduler.daemon.access import (
    COLOCATIONPROFILE,
    DESCHEDULER_NEEDS,
    NETWORKTOPOLOGY,
    NODEMETRIC,
    NODERESOURCE,
    NODESLO,
    PODGROUP,
    QUOTA_PROFILE,
    RECOMMENDER,
    SCHEDULER_NEEDS,
    WEBHOOK,
    WEBHOOK_REGISTRATION,
    YARN,
)
from koord_scheduler.daemon.controller import DESCHEDULER, LEASES, MANAGER, SCHEDULER, Part

PARTS: tuple[Part, ...] = (
    Part(
        "nodemetric",
        MANAGER,
        "gives every node a NodeMetric that says what koordlet shall report",
        "koord_scheduler.daemon.nodemetric:make",
        NODEMETRIC,
    ),
    Part(
        "nodeslo",
        MANAGER,
        "gives every node a NodeSLO",
        "koord_scheduler.daemon.nodeslo:make",
        NODESLO,
    ),
    Part(
        "noderesource",
        MANAGER,
        "turns reports of the nodes into batch, mid and device resources",
        "koord_scheduler.daemon.noderesource:make",
        NODERESOURCE,
    ),
    # Off by default: a registration that points at nobody keeps pods from being created.
    Part(
        "webhook",
        MANAGER,
        "admits pods, quotas and nodes over HTTPS: profiles, classes, amplification",
        "koord_scheduler.daemon.admission:make_server",
        WEBHOOK,
        leads=False,
        by_default=False,
    ),
    Part(
        "webhook-registration",
        MANAGER,
        "tells the API server of the webhooks, and renews their certificate",
        "koord_scheduler.daemon.admission:make_keeper",
        WEBHOOK_REGISTRATION,
        by_default=False,
    ),
    Part(
        "colocationprofile",
        MANAGER,
        "gives profiles to pods that exist already and wait for a node",
        "koord_scheduler.daemon.profiles:make",
        COLOCATIONPROFILE,
        by_default=False,
    ),
    Part(
        "quotaprofile",
        MANAGER,
        "the root quota of each ElasticQuotaProfile follows its nodes",
        "koord_scheduler.daemon.quota_profile:make",
        QUOTA_PROFILE,
    ),
    Part(
        "recommender",
        MANAGER,
        "says what the containers of a workload should request, from what they use",
        "koord_scheduler.daemon.recommender:make",
        RECOMMENDER,
    ),
    Part(
        "yarn",
        MANAGER,
        "lets YARN use the batch resources of nodes that run a NodeManager",
        "koord_scheduler.daemon.yarn:make",
        YARN,
    ),
    Part(
        "scheduler",
        SCHEDULER,
        "gives pods their nodes, and says why where there is none",
        "koord_scheduler.daemon.scheduler.part:make",
        SCHEDULER_NEEDS,
    ),
    Part(
        "podgroup",
        SCHEDULER,
        "the status of each PodGroup follows its pods",
        "koord_scheduler.daemon.pod_groups:make",
        PODGROUP,
    ),
    Part(
        "networktopology",
        SCHEDULER,
        "the status of the ClusterNetworkTopology shows the domains that nodes make",
        "koord_scheduler.daemon.network_topology:make",
        NETWORKTOPOLOGY,
    ),
    Part(
        "descheduler",
        DESCHEDULER,
        "moves pods to other nodes: plugins make migration jobs, jobs are carried out",
        "koord_scheduler.daemon.descheduler.part:make",
        DESCHEDULER_NEEDS,
    ),
)
ROLES = tuple(LEASES)


class UnknownPartError(Exception):
    """The text says which name, and which there are."""


def chosen(roles: Sequence[str], names: Sequence[str]) -> tuple[Part, ...]:
    """The parts of ``roles`` that ``names`` switch on: ``*`` for all that are on by default,
    ``NAME`` for one, ``-NAME`` for all but one, as for the reference's ``--controllers``. Raises
    UnknownPartError."""
    for role in roles:
        if role not in ROLES:
            raise UnknownPartError(f"no role is called {role!r}; there are: {', '.join(ROLES)}")
    of_roles = [part for part in PARTS if part.role in roles]
    known = {part.name for part in PARTS}
    for name in names:
        if name != "*" and name.removeprefix("-") not in known:
            all_names = ", ".join(sorted(known))
            raise UnknownPartError(f"no controller is called {name!r}; there are: {all_names}")
    everything = "*" in names
    return tuple(
        part
        for part in of_roles
        if f"-{part.name}" not in names and (part.name in names or (everything and part.by_default))
    )
