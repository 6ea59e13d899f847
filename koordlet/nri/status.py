"""What the plugin tells about itself: for ``koordlet nri status``, ``doctor`` and the metrics."""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass, field
from enum import StrEnum

from koordlet.decision.metrics import BUCKETS_MS

MAX_ERROR = 1000
"""Characters kept of what a peer or a hook says."""


class Phase(StrEnum):
    NO_SOCKET = "no-socket"  # the runtime has NRI off, or does not run
    CONNECTING = "connecting"
    REGISTERING = "registering"
    SYNCHRONIZING = "synchronizing"
    CONNECTED = "connected"
    BACKING_OFF = "backing-off"
    STOPPED = "stopped"


class Generation(StrEnum):
    """How pod events come (docs/reference/wire.md 2.4)."""

    STATE_CHANGE = "state-change"
    DEDICATED = "dedicated"  # one method for each event, NRI 0.12


@dataclass
class Durations:
    """``counts[i]``: at most ``BUCKETS_MS[i]`` and above the one before; the last: above all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_MS) + 1))
    sum_ms: float = 0.0

    def add(self, milliseconds: float) -> None:
        self.counts[bisect_left(BUCKETS_MS, milliseconds)] += 1
        self.sum_ms += milliseconds


@dataclass
class Status:
    """Counts are since the daemon started. Times are unix seconds."""

    socket: str
    phase: Phase = Phase.STOPPED
    since: float | None = None
    """Of the connection; once it is lost, of its loss."""
    runtime_name: str = ""
    runtime_version: str = ""
    nri_version: str = ""
    """As the runtime tells it, since NRI 0.12."""
    generation: Generation | None = None
    request_timeout_s: float = 0.0
    """How long the runtime waits for an answer; 0: it did not tell (2 s is usual)."""
    event_mask: int = 0
    sessions: int = 0
    """That were synchronized; all but the first are reconnects."""
    attempts_failed: int = 0
    next_attempt_at: float | None = None
    pods: int = 0
    """Told by the last synchronization."""
    containers: int = 0
    events: dict[str, int] = field(default_factory=dict)
    """Method or event -> how many came."""
    adjusted: int = 0
    """Containers that were created with a change."""
    updated: int = 0
    """Updates by kubelet that were answered with a change."""
    pushed: int = 0
    """Updates that koordlet asked for by itself."""
    push_failed: int = 0
    refused: int = 0
    """Operations failed on purpose: a hook failed, and the policy is Fail."""
    errors: int = 0
    """Answers that could not be given, on which operations went on without one; connections that
    failed or were lost."""
    last_error: str = ""
    last_error_at: float | None = None
    durations: dict[str, Durations] = field(default_factory=dict)
    """Method -> time from request to answer."""

    def count(self, event: str) -> None:
        self.events[event] = self.events.get(event, 0) + 1

    def failed(self, why: str) -> None:
        self.errors += 1
        self.last_error = why[:MAX_ERROR]
        self.last_error_at = time.time()
