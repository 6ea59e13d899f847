"""Which GPUs have reported a critical Xid error: the part that a daemon without a GPU has too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded where there is a GPU
    from koordlet.decision.devices import Health
    from koordlet.kernel.devices.nvml import Nvml
    from koordlet.kernel.devices.xid_events import XidWatch

NOT_HEARD = "EventsNotHeard"
"""Code of the health of a GPU whose events do not reach koordlet."""


class GpuHealth:
    """A part of the daemon and not of a collector: marks outlive both a reload and a collector
    that is shed."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._watch: XidWatch | None = None

    def of(self, uuid: str) -> Health | None:
        """None until events are waited for."""
        return self._watch.of(uuid) if self._watch is not None else None

    def follow(self, nvml: Nvml) -> None:
        """From now on; at once, and harmless when repeated."""
        if self._watch is None:
            from koordlet.kernel.devices.xid_events import XidWatch

            self._watch = XidWatch(nvml, self._now)

    def stop(self) -> None:
        """Returns at once; the thread lets go of the driver within ``xid_events.WAIT_MS``. Marks
        are gone: a card can only be reset when no program holds it."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None
