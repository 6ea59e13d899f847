"""Pods that are known by their cgroup alone, for as long as somebody is about to tell their labels.

A new pod is seen in the cgroup tree before the runtime tells what it is, and after a restart of the
daemon so is every pod that was made meanwhile. Its kube class may say LS where its labels say LSR
with CPUs of its own. So what decisions want for its cgroups is left out, and what was set there
stays. Best effort by directory is best effort whatever its labels say, and is held back at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from koordlet.decision.cgroups import inside
from koordlet.decision.plan import Decision, VictimKind
from koordlet.decision.snapshot import Pod
from koordlet.protocol.qos import KubeQoS


def spared(decision: Decision, awaiting: Sequence[Pod]) -> Decision:
    """``decision`` without what depends on the labels of ``awaiting``."""
    if not awaiting:
        return decision
    uids = {pod.uid for pod in awaiting}
    left = [pod.cgroup for pod in awaiting if pod.kube_qos is not KubeQoS.BEST_EFFORT]
    plan = decision.plan

    def left_alone(cgroup: str) -> bool:
        return any(inside(cgroup, each) for each in left)

    plan = msgspec.structs.replace(
        plan,
        settings=tuple(each for each in plan.settings if not left_alone(each.cgroup)),
        evictions=tuple(
            each
            for each in plan.evictions
            if each.victim.kind is not VictimKind.POD or each.victim.name not in uids
        ),
        keep_below=tuple(pod.cgroup for pod in awaiting),
    )
    reclaims = tuple(each for each in decision.reclaims if not left_alone(each.cgroup))
    return msgspec.structs.replace(decision, plan=plan, reclaims=reclaims)
