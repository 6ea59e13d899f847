"""What a Recommendation's status says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from koord_scheduler.recommend.history import History, Request
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.objects.device import Condition
from koordlet.protocol.objects.recommendation import (
    RecommendationStatus,
    RecommendedContainer,
    RecommendedPod,
)
from koordlet.protocol.objects.times import instant
from koordlet.protocol.quantity import bytes_text, cpu_text, parse_quantity
from koordlet.protocol.resources import CPU, MEMORY

READY = "Ready"
NO_PODS = "NoPods"
TOO_LITTLE = "TooLittleHistory"
RECOMMENDED = "Recommended"
INVALID = "InvalidTarget"
KEEPS_WITHIN = 0.05
"""Requests that differ by less stay as they were told."""
STALE_S = 3600.0
"""The status is written anew after this time, whether anything changed or not."""


class Finding(NamedTuple):
    """``problem``: why the target means nothing; empty where it does. ``pods``: how many there
    are. ``note`` is for the reader of the message."""

    history: History
    problem: str
    pods: int
    note: str = ""


def settled(told: Mapping[str, Request], found: Mapping[str, Request]) -> dict[str, Request]:
    """What is to be told now: small changes of what was told are none."""
    return {
        name: old if (old := told.get(name)) is not None and _is_near(old, new) else new
        for name, new in found.items()
    }


def _is_near(old: Request, new: Request) -> bool:
    return all(
        abs(b - a) <= KEEPS_WITHIN * a
        for a, b in ((old.cpu_milli, new.cpu_milli), (old.memory_bytes, new.memory_bytes))
    )


def status_of(
    finding: Finding, requests: Mapping[str, Request], old: Condition | None, now_s: float
) -> RecommendationStatus:
    """``old``: the condition that stands, whose time of transition goes on."""
    reason, message = _reason(finding, requests)
    status = "True" if reason == RECOMMENDED else "False"
    since = old.last_transition_time if old is not None and old.status == status else ""
    condition = Condition(READY, status, reason, message, since or instant(now_s))
    containers = tuple(
        RecommendedContainer(
            name, {CPU: cpu_text(each.cpu_milli), MEMORY: bytes_text(each.memory_bytes)}
        )
        for name, each in sorted(requests.items())
    )
    pod = RecommendedPod(containers) if containers else None
    return RecommendationStatus(instant(now_s), (condition,), pod)


def _reason(finding: Finding, requests: Mapping[str, Request]) -> tuple[str, str]:
    history = finding.history
    if finding.problem:
        return INVALID, finding.problem
    if requests:
        return RECOMMENDED, _tested(history) + finding.note
    if not finding.pods:
        return NO_PODS, "no pod of this target is on a node" + finding.note
    policy = history.policy
    return TOO_LITTLE, (
        f"{_samples(history)} samples of {finding.pods} pods; needed are {policy.least_samples} "
        f"of a container, over {policy.least_history_s / 3600:g} hours" + finding.note
    )


def _tested(history: History) -> str:
    since = instant(history.since_s)
    begin = f"{_samples(history)} samples since {since}"
    tried = sum(each.tried for each in history.containers.values())
    if not tried:
        return begin
    cpu = sum(each.cpu_missed for each in history.containers.values()) / tried
    memory = sum(each.memory_missed for each in history.containers.values()) / tried
    return (
        f"{begin}; of {tried} that came after a recommendation, {cpu:.1%} used more CPU and "
        f"{memory:.1%} more memory than it"
    )


def _samples(history: History) -> int:
    return sum(each.samples for each in history.containers.values())


def requests_of(status: RecommendationStatus | None) -> dict[str, Request]:
    """What a status tells, of containers that have both."""
    found = {}
    for each in status.pod_status.container_statuses if status and status.pod_status else ():
        try:
            cpu = parse_quantity(each.resources[CPU]).milli
            memory = parse_quantity(each.resources[MEMORY]).value
        except (KeyError, ProtocolError):
            continue
        if cpu > 0 and memory > 0:
            found[each.container_name] = Request(cpu, memory)
    return found
