"""Pods that are made and changed while koordlet is away: they run all the same, have their values
soon after it is back, and keep them when kubelet changes something else."""

from __future__ import annotations

import signal

import pytest

from koordlet.decision.resource import Resource
from koordlet.wire.pb import cri_pb2 as cri
from tests.runtime import cases
from tests.runtime.cases import CASES, MIB, POOL_CPU, found, wanted
from tests.runtime.containerd import Containerd
from tests.runtime.kubelet import Kubelet
from tests.runtime.machine import CGROUPS, until
from tests.runtime.ways import Way, running

pytestmark = pytest.mark.runtime

_LS = next(case for case in CASES if case.spec.name == "ls")


def test_pods_come_up_without_koordlet_and_get_their_values_when_it_is_back(
    containerd: Containerd, kubelet: Kubelet
) -> None:
    with running(containerd, Way.NRI, node=cases.NODE) as setup:
        setup.koordlet.process.end(signal.SIGKILL)
        pods = [(case, kubelet.run_pod(case.fresh())) for case in CASES]
        assert any(found(pod, case) != wanted(case) for case, pod in pods)
        setup.koordlet.start()
        for case, pod in pods:
            until(
                lambda pod=pod, case=case: found(pod, case) == wanted(case),
                f"{pod.spec.name} has its values",
            )


def test_an_update_by_kubelet_keeps_what_was_reconciled(
    containerd: Containerd, kubelet: Kubelet
) -> None:
    pod = kubelet.run_pod(_LS.fresh())  # nobody is there to be asked
    container = pod.containers["main"]
    assert CGROUPS.read(pod.cgroup(), Resource.CPU_QUOTA_US) == 150_000
    with running(containerd, Way.NRI, node=cases.NODE):
        until(lambda: found(pod, _LS) == wanted(_LS), "it is reconciled")
        kubelet.runtime.update(
            container, cri.LinuxContainerResources(memory_limit_in_bytes=96 * MIB)
        )
        # What the runtime has stored, it writes whenever anything changes.
        stored = kubelet.runtime.spec(container)["linux"]["resources"]
        assert stored["memory"]["limit"] == 96 * MIB
        assert stored["cpu"]["quota"] == 120_000
        assert stored["cpu"]["cpus"] == POOL_CPU
        assert found(pod, _LS) == {
            **wanted(_LS),
            ("container", Resource.MEMORY_LIMIT): 96 * MIB,
        }
    assert CGROUPS.read(pod.cgroup(), Resource.CPU_QUOTA_US) == 150_000, "it is given back"
