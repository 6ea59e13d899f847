"""What the service shows of gangs (docs/reference/central.md 9.2): the reference's fields."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from koord_scheduler.share.gang.book import Gangs
from koordlet.protocol.objects.times import instant


def summary(gangs: Gangs, gang: str, waiting: Collection[str] = ()) -> dict[str, Any] | None:
    """None where there is no such gang. ``waiting``: keys of pods that have a node and whose
    binding is not confirmed."""
    if gang not in gangs:
        return None
    found = gangs.gang(gang)
    pods = gangs.pods_of(gang)
    bound = gangs.bound_of(gang)
    waits = {key for key in waiting if key in pods} - bound
    group = gangs.group_of(gang)
    members = gangs.gangs_of(group)
    pending = [pod.key for pod in gangs.pending(group)]
    return {
        "name": gang,
        "waitTime": int(found.wait_s * 1e9) if found else 0,
        "createTime": instant(found.created_s) if found else None,
        "mode": ("Strict" if found.strict else "NonStrict") if found else "",
        "gangMatchPolicy": found.policy.value if found else "",
        "minRequiredNumber": found.minimum if found else 0,
        "totalChildrenNum": found.total if found else 0,
        "gangGroup": list(members),
        "children": sorted(pods),
        "pendingChildren": sorted(set(pods) - bound - waits),
        "waitingForBindChildren": sorted(waits),
        "boundChildren": sorted(bound),
        "onceResourceSatisfied": gangs.satisfied(group),
        "gangGroupInfo": {
            "gangGroupId": group,
            "gangGroup": list(members),
            "onceResourceSatisfied": gangs.satisfied(group),
            "representativePodKey": pending[0] if pending else "",
            "waitingGangIDs": sorted(
                each for each in members if any(key in waiting for key in gangs.pods_of(each))
            ),
            "bindingMemberPods": sorted(waits),
        },
        "gangFrom": found.source.value if found else "",
        "hasGangInit": found is not None,
    }


def summaries(gangs: Gangs, waiting: Collection[str] = ()) -> dict[str, Any]:
    """By id; a map of JSON."""
    return {gang: summary(gangs, gang, waiting) for gang in sorted(gangs.ids())}
