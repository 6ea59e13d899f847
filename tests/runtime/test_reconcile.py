"""koordlet beside a real runtime that does not know of it."""

from __future__ import annotations

import pytest

from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.protocol.qos import KubeQoS
from tests.runtime.containerd import Containerd
from tests.runtime.kubelet import TREE, Kubelet, PodSpec
from tests.runtime.machine import CGROUPS, until
from tests.runtime.ways import Koordlet, Way, running

pytestmark = pytest.mark.runtime

# Nothing is left for best effort on any machine: it gets its minimum.
_SUPPRESS = """
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
cpuSuppressThresholdPercent = 1
"""


def test_pods_are_found_with_their_containers_and_forgotten(
    containerd: Containerd, kubelet: Kubelet
) -> None:
    early = kubelet.run_pod(PodSpec("early", KubeQoS.BURSTABLE))
    with running(containerd, Way.RECONCILE) as setup:
        late = kubelet.run_pod(PodSpec("late", KubeQoS.BEST_EFFORT))
        for pod in (early, late):
            until(lambda pod=pod: _seen(setup.koordlet, pod.spec), f"{pod.spec.name} is seen")
            seen = _seen(setup.koordlet, pod.spec)
            assert seen["cgroup"] == pod.spec.cgroup
            assert seen["kube_qos"] == pod.spec.kube_qos
        kubelet.remove_pod(early.spec)
        until(lambda: not _seen(setup.koordlet, early.spec), "it is forgotten")
        assert _seen(setup.koordlet, late.spec)


def test_best_effort_is_limited_around_its_containers_and_released(
    containerd: Containerd, kubelet: Kubelet
) -> None:
    pod = kubelet.run_pod(PodSpec("batch", KubeQoS.BEST_EFFORT))
    with running(containerd, Way.RECONCILE, body=_SUPPRESS):
        until(
            lambda: CGROUPS.read(TREE.besteffort, Resource.CPU_QUOTA_US) != UNLIMITED,
            "best effort is limited",
        )
        assert CGROUPS.read(pod.cgroup(), Resource.CPU_QUOTA_US) == UNLIMITED
        # A pod can still be made inside.
        kubelet.run_pod(PodSpec("more", KubeQoS.BEST_EFFORT))
    assert CGROUPS.read(TREE.besteffort, Resource.CPU_QUOTA_US) == UNLIMITED


def _seen(koordlet: Koordlet, spec: PodSpec) -> dict[str, object]:
    pods = koordlet.ask("pods")
    assert isinstance(pods, list)
    return next((pod for pod in pods if pod["uid"] == spec.uid), {})
