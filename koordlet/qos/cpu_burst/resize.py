"""Lowers a burst budget before a runtime writes a smaller quota.

The kernel refuses a quota below the budget (Linux ``sched-bwc.rst``), and kubelet's attempt would
fail with it. No later decision is in time for that, so this is part of the answer to the runtime.
"""

from __future__ import annotations

from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import InForce, Pod
from koordlet.decision.why import Why

_BURST = Resource.CPU_BURST_US


def make_room(owner: str, in_force: InForce, pod: Pod, cgroup: str, quota_us: int) -> Plan | None:
    """What to add to the plan of ``owner`` before ``cgroup``, a container of ``pod``, gets a quota
    of ``quota_us``; None where no budget of ours is in the way. The pod's own quota follows the
    containers', so its budget becomes what theirs are together."""
    before_us = _ours(in_force, cgroup)
    if quota_us <= 0 or before_us <= quota_us:
        return None
    text = (
        f"{pod.title}: a container is about to get a quota of {quota_us} us, so budgets fall first"
    )
    why = Why("cpu-burst.resize", text)
    settings = [Setting(cgroup, _BURST, quota_us, why)]
    others = [each.cgroup for each in pod.containers if each.cgroup != cgroup]
    together_us = quota_us + sum(_ours(in_force, each) for each in others)
    if _ours(in_force, pod.cgroup) > together_us:
        settings.append(Setting(pod.cgroup, _BURST, together_us, why))
    return Plan(owner, tuple(settings), amends=True)


def _ours(in_force: InForce, cgroup: str) -> int:
    value = in_force.value(cgroup, _BURST)
    return value if isinstance(value, int) and in_force.is_ours(cgroup, _BURST) else 0
