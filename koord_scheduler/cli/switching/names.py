"""Names of the objects that a switch moves between."""

from __future__ import annotations

from koord_scheduler.daemon.controller import DESCHEDULER, LEASES, MANAGER, SCHEDULER

NAMESPACE = "koordinator-system"
AGENT = "agent"
THEIR_LABEL = "koord-app"
"""Label by which every workload of the reference selects its pods, however it was installed."""
APPS = {
    "koordlet": AGENT,
    "koord-manager": MANAGER,
    "koord-scheduler": SCHEDULER,
    "koord-descheduler": DESCHEDULER,
}
"""Value of `THEIR_LABEL` to the role, in the order of a switch: nodes first."""
OURS = {
    AGENT: "koordlet-agent",
    MANAGER: "koordlet-manager",
    SCHEDULER: "koordlet-scheduler",
    DESCHEDULER: "koordlet-descheduler",
}
"""Names of our workloads beside theirs: a selector cannot be changed, so neither can be the other.
"""
OUR_LABEL = "app.kubernetes.io/name"
PARKED, PARKED_VALUE = "node.koordinator.sh/agent", "koordinator"
"""Label of nodes whose agent is theirs, while nodes change over one by one."""
APPLIED = "switch.koordinator.sh/applied"
"""Annotation of each object that a switch made: a digest of what was applied."""
RECORD = "koordlet-switch"
"""ConfigMap with what their objects were like before."""
SERVICE = "koordinator-webhook-service"
CERTIFICATES = "koordinator-webhook-certs"
MANAGER_FIELDS = "koordlet-switch"
"""Field manager of everything that a switch applies."""

__all__ = ["DESCHEDULER", "LEASES", "MANAGER", "SCHEDULER"]
