"""CPU quotas in the time of a normal CPU, scaled to the speed of this one
(docs/reference/hooks.md 2.4).

The hook always scales what kubelet asked for, never a quota that is already scaled. Without a ratio
it wants nothing, so the actuator puts kubelet's quotas back (the reference leaves the scaled
ones).

A pod is scaled like its containers, which matters where it has a limit of its own, and where its
containers are in a guest. Not on v1, which refuses a container that has more than its pod: a
container that keeps kubelet's own quota, because no runtime asks koordlet about it, could not start
in a scaled pod. There the quotas of its containers limit the pod. Containers of a guest have no
cgroup on the host.
"""

from __future__ import annotations

from koordlet.decision.cpu_amounts import normalized_quota_us
from koordlet.decision.options import DEFAULTS, Options
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Pod, Snapshot
from koordlet.decision.strategy import Adjustment, Hook, Level, Stage, Subject
from koordlet.decision.why import Input, Why
from koordlet.hooks.batch_resource import governs
from koordlet.hooks.native import native_quota_us
from koordlet.protocol import keys
from koordlet.protocol.qos import QoSClass

NAME = "cpu-normalization"


def _evaluate(subject: Subject, snapshot: Snapshot, _: Options) -> Adjustment:
    pod, ratio = subject.pod, snapshot.node.cpus.normalization_ratio
    if pod is None or ratio is None or ratio <= 1 or not _applies(pod):
        return Adjustment()
    if subject.level is Level.POD and snapshot.node.rules.quotas_nest and not pod.is_in_guest:
        return Adjustment()
    asked_us = native_quota_us(subject, snapshot)
    if asked_us is None:
        return Adjustment()
    value = normalized_quota_us(asked_us, ratio)
    text = f"{asked_us} us, on a CPU that is {ratio} times as fast as a normal one"
    facts = (
        Input(keys.CPU_NORMALIZATION_RATIO.name, ratio),
        Input("quota asked for", asked_us, "us"),
    )
    why = Why("cpu-normalization.scaled", text, facts)
    return Adjustment(((Resource.CPU_QUOTA_US, value, why),))


def _applies(pod: Pod) -> bool:
    """LS, and what has neither a class nor CPUs of its own; not where the quota comes from mid
    resources, which are scaled with it."""
    if pod.raw_qos is not QoSClass.LS and (pod.raw_qos is not None or pod.pinned_cpus):
        return False
    return not governs(pod)


HOOK = Hook(
    name=NAME,
    help="CPU quotas scaled to the speed of this CPU.",
    options=DEFAULTS,
    levels=(Level.POD, Level.CONTAINER),
    function=_evaluate,
    needs=(Resource.CPU_QUOTA_US.value,),
    writes=(Resource.CPU_QUOTA_US,),
    stages=(Stage.RUN_POD_SANDBOX, Stage.CREATE_CONTAINER, Stage.UPDATE_CONTAINER),
    overrides=("batch-resource",),
    without="pods on a faster CPU get more than their limits mean elsewhere",
)
