"""Events about pods.

They are told at the workload where there is one: an event for each of its pods would be as many
writes as bindings.
"""

from __future__ import annotations

from koord_scheduler.kube import reservation_shapes
from koord_scheduler.model.cluster.pods import Pod
from koordlet.kube.events import Events, Subject


def success(events: Events, pod: Pod) -> None:
    """Nothing for a pod without a workload: its node says it already."""
    if pod.holds or pod.owner.name:
        events.tell(_subject(pod), "Normal", "Scheduled", "Pods got a node")


def failure(events: Events, pod: Pod, message: str) -> None:
    events.tell(_subject(pod), "Warning", "FailedScheduling", message)


def _subject(pod: Pod) -> Subject:
    namespace, _, name = pod.key.partition("/")
    owner = pod.owner
    if pod.holds:
        group = reservation_shapes.RESERVATIONS.api_version
        return Subject(group, "Reservation", "", pod.holds, pod.uid)
    if owner.name:
        return Subject(owner.api_version, owner.kind, namespace, owner.name, owner.uid)
    return Subject("v1", "Pod", namespace, name, pod.uid)
