"""What a controller of the companion is, and what it gets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from koord_scheduler.balance.ledger import Ledger
from koord_scheduler.daemon.configured import Configured
from koord_scheduler.kube.watches import Watches
from koord_scheduler.kube.writes import Writes
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.services.http import Page, Route
from koord_scheduler.services.metrics import Metrics
from koordlet.kube.access import Need
from koordlet.kube.client import Client
from koordlet.kube.events import Events

MANAGER, SCHEDULER, DESCHEDULER = "manager", "scheduler", "descheduler"
LEASES = {
    MANAGER: "koordinator-manager",
    SCHEDULER: "koord-scheduler",
    DESCHEDULER: "koord-descheduler",
}


@dataclass(frozen=True)
class Options:
    """What stands on the command line. Defaults are the reference's
    (docs/reference/central.md 1.1)."""

    controllers: tuple[str, ...] = ("*",)
    config_namespace: str = "koordinator-system"
    config_name: str = "slo-controller-config"
    elect: bool = True
    lease_namespace: str = "koordinator-system"
    metrics_address: str = ":8080"
    health_address: str = ":8000"
    requests_per_s: float = 30.0
    requests_burst: int = 50
    bindings_per_s: float = 2000.0
    """Of the role scheduler, in place of ``requests_per_s``."""
    bindings_burst: int = 4000
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Options that one part alone reads, by their name on the command line."""

    def lease_of(self, role: str) -> str:
        """The reference's names of leases."""
        return LEASES[role]


@dataclass
class Placing:
    """``next_node``: where a pod would go if it went from its node now; None: nowhere. Of the
    scheduler while it leads in this process, on the event loop. Raises LookupError for a pod that
    it did not place."""

    next_node: Callable[[Pod], str | None] | None = None


@dataclass(frozen=True)
class Context:
    """One for all controllers of a process.

    ``client`` reads; what changes something goes through ``writes``, which is fenced. While a
    controller is made it asks ``watches`` for mirrors, and calls ``configured.watch`` where it
    needs the ConfigMap. ``wall`` is Unix time.
    """

    options: Options
    client: Client
    watches: Watches
    writes: Writes
    events: Events
    metrics: Metrics
    configured: Configured
    leads: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    pages: dict[str, Page] = field(default_factory=dict)
    """Pages of the metrics server by path; a controller may add its own while it is made."""
    routes: list[Route] = field(default_factory=list)
    """What else it serves."""
    ledger: Ledger = field(default_factory=lambda: Ledger(lock=threading.RLock()))
    """Every eviction of every role is asked for and written down there."""
    placing: Placing = field(default_factory=Placing)
    unready: dict[str, str] = field(default_factory=dict)
    """What each part that others call still waits for; the process is ready when nothing is left.
    """


class Controller(Protocol):
    """Made before the watches begin. ``run`` is called after all are synced, is cancelled when
    another process leads, and may be called again. It keeps nothing that the API server does not
    have too."""

    async def run(self) -> None: ...


@dataclass(frozen=True)
class Part:
    """A controller as it is declared. ``make`` is ``module:function`` of ``f(context) ->
    Controller``, imported where the part is switched on. ``leads``: it runs only in the process
    that leads; a server that all replicas offer does not. ``needs``: what RBAC must allow."""

    name: str
    role: str
    help: str
    make: str
    needs: tuple[Need, ...] = ()
    leads: bool = True
    by_default: bool = True
