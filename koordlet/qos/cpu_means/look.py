"""One second of what latency-sensitive and best-effort work got, from the snapshot."""

from __future__ import annotations

import msgspec

from koordlet.decision.metrics import CPU_WAIT
from koordlet.decision.snapshot import Snapshot
from koordlet.qos.cpu_usage import total, usage_by_subject

_NEWEST_S = 1.6
"""Waits are read each second during a trial; an older sample is of another arm."""
_EPSILON_MS = 1.0
"""Waits below a millisecond a second are alike."""


class Look(msgspec.Struct, frozen=True):
    """Waits of all latency-sensitive tasks for a CPU, milliseconds a second, and behind whom; CPU
    in cores."""

    own_ms: float
    be_ms: float
    others_ms: float
    ls_cores: float
    be_cores: float

    @property
    def waited_ms(self) -> float:
        return self.own_ms + self.be_ms + self.others_ms

    @property
    def cost(self) -> float:
        """Waits for each core that best effort gets."""
        return (self.waited_ms + _EPSILON_MS) / max(self.be_cores, 0.01)


def look(snapshot: Snapshot, newest_s: float = _NEWEST_S) -> Look | None:
    """Read it; None where waits were not measured in the last ``newest_s``."""
    best_effort = {("pod", pod.uid) for pod in snapshot.pods if pod.is_best_effort}
    best_effort |= {
        ("application", app.name) for app in snapshot.applications if app.is_best_effort
    }
    own_ms = be_ms = others_ms = 0.0
    measured = False
    for kind, metric, whole in (
        ("pod", CPU_WAIT.pod, CPU_WAIT.pod_total),
        ("application", CPU_WAIT.application, CPU_WAIT.app_total),
    ):
        totals = snapshot.metrics.newest(whole, window_s=newest_s)
        measured = measured or any((kind, name) not in best_effort for (name,) in totals)
        cells = snapshot.metrics.newest(metric, window_s=newest_s)
        for (name, culprit, culprit_kind), waited in cells.items():
            if (kind, name) in best_effort:
                continue
            if culprit_kind == "self":
                own_ms += waited.value
            elif (culprit_kind, culprit) in best_effort:
                be_ms += waited.value
            else:
                others_ms += waited.value
    if not measured:
        return None
    subjects = usage_by_subject(snapshot)
    return Look(
        own_ms,
        be_ms,
        others_ms,
        total(each for each in subjects if not each.is_best_effort).cores,
        total(each for each in subjects if each.is_best_effort).cores,
    )
