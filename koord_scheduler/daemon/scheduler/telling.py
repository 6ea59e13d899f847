"""Events about pods, at the pods themselves, as ``kubectl describe pod`` shows them.

Each pod has one of what it waits for, which follows what is told last, and one of where it went.
They are the first writes that wait where the budget of requests is short.
"""

from __future__ import annotations

from collections.abc import Iterable

from koord_scheduler.kube import reservation_shapes
from koord_scheduler.model.cluster.pods import Pod
from koordlet.kube.events import Events, Subject

MOST_OF_A_GROUP = 64
"""Members of a gang that are told at once; every one has it in its condition."""


def success(events: Events, pod: Pod, node: str) -> None:
    events.tell(_subject(pod), "Normal", "Scheduled", f"Has got node {node}", latest=True)


def failure(events: Events, pod: Pod, message: str) -> None:
    events.tell(_subject(pod), "Warning", "FailedScheduling", message, latest=True)


def failures(events: Events, told: Iterable[tuple[Pod, str]]) -> None:
    """Each of a group has its own."""
    for (pod, message), _ in zip(told, range(MOST_OF_A_GROUP), strict=False):
        failure(events, pod, message)


def _subject(pod: Pod) -> Subject:
    if pod.holds:
        group = reservation_shapes.RESERVATIONS.api_version
        return Subject(group, "Reservation", "", pod.holds, pod.uid)
    namespace, _, name = pod.key.partition("/")
    return Subject("v1", "Pod", namespace, name, pod.uid)
