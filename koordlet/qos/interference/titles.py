"""How messages call victims, culprits and what is lacking."""

from __future__ import annotations

from koordlet.decision.names import shown
from koordlet.decision.snapshot import Snapshot
from koordlet.qos.interference.windows import Who

_WAITS_FOR = {
    "cpu": "waits for a CPU",
    "io": "waits for a disk",
    "memory": "waits for memory",
    "cpi": "needs more cycles for each instruction",
}


def waits_for(resource: str) -> str:
    return _WAITS_FOR.get(resource, f"waits for {resource}")


def title(snapshot: Snapshot, who: Who) -> str:
    if who.kind == "pod":
        titles = (pod.title for pod in snapshot.pods if pod.uid == who.name)
        return next(titles, f"pod {shown(who.name)}")
    if who.kind == "rest":
        return "many pods together"
    return f"{who.kind} {shown(who.name)}".strip()
