"""Who the plugin is, where the runtime is, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Options:
    """``index``: two digits; a runtime asks its plugins in this order.

    Seconds: ``backoff_s``, the pause after a failed attempt, doubles with each further one up to
    ``max_backoff_s``, and ends when the socket is made anew; ``register_s`` until the runtime
    answers to the registration; ``synchronize_s`` until it has told all pods, for which it waits
    until none is being made; ``push_s`` until it has made some updates.
    """

    socket: str = "/var/run/nri/nri.sock"
    name: str = "koordlet_nri"
    index: str = "00"
    backoff_s: float = 0.05
    max_backoff_s: float = 30.0
    register_s: float = 5.0
    synchronize_s: float = 60.0
    push_s: float = 10.0
