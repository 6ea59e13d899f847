"""View of the connection to the container runtime."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class NriView(msgspec.Struct, frozen=True, kw_only=True):
    """The one NRI connection. Counts are since the daemon started.

    ``phase``: a ``nri.status.Phase``. ``since``: of the connection, else of its loss. ``pods`` and
    ``containers``: told when it began. ``events``: name -> how many. ``adjusted``: containers
    created with a change; ``updated``: updates of kubelet answered with one; ``pushed``: updates
    that koordlet asked for, which it does while ``pushes``; ``no_push_why``: why it does not,
    while connected; ``refused``: operations failed on purpose. ``next_attempt_s``: seconds until
    it is tried again, None while connected or switched off. The latencies are those of our
    answers, None before the first. ``awaited``: there are pods of kubelet here, so a runtime should
    be connected.
    """

    enabled: bool
    connected: bool = False
    awaited: bool = False
    phase: str = ""
    socket: str = ""
    since: float | None = None
    runtime: str = ""
    version: str = ""
    pods: int = 0
    containers: int = 0
    events: Mapping[str, int] = msgspec.field(default_factory=dict)
    adjusted: int = 0
    updated: int = 0
    pushed: int = 0
    pushes: bool = False
    no_push_why: str = ""
    refused: int = 0
    errors: int = 0
    last_error: str = ""
    reconnects: int = 0
    next_attempt_s: float | None = None
    handler_p50_ms: float | None = None
    handler_p99_ms: float | None = None
