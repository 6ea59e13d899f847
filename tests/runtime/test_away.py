"""Pods that are made and changed while koordlet is away: they run all the same, have their values
soon after it is back, and keep them when kubelet changes something else."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import replace

import pytest

from koordlet.decision.resource import Resource
from koordlet.wire.pb import cri_pb2 as cri
from tests.runtime import cases
from tests.runtime.cases import CASES, MIB, POOL_CPU, found, wanted
from tests.runtime.containerd import Containerd
from tests.runtime.cri import Runtime
from tests.runtime.kubelet import Kubelet, Pod, PodSpec
from tests.runtime.machine import CGROUPS, until
from tests.runtime.ways import Setup, Way, running

pytestmark = pytest.mark.runtime

_LS = next(case for case in CASES if case.spec.name == "ls")
_LSR = next(case for case in CASES if case.spec.name == "lsr")


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


def test_koordlet_registers_again_as_soon_as_containerd_is_back(
    containerd: Containerd, kubelet: Kubelet
) -> None:
    """A pod that is made as soon as CRI answers again may be too early; the next ones are not."""
    with running(containerd, Way.NRI, node=cases.NODE) as setup:
        for number in range(3):
            containerd.restart()
            back_s = time.monotonic()
            until(
                lambda number=number: _reconnects(setup) == number + 1, "the plugin is registered"
            )
            print(f"without registration for {time.monotonic() - back_s:.2f} s, the CLI included")
            pod = kubelet.run_pod(_LS.fresh())
            assert found(pod, _LS) == wanted(_LS), "it has its values when it starts"


def _reconnects(setup: Setup) -> int:
    view = setup.koordlet.ask("status")
    assert isinstance(view, dict)
    nri = view["nri"]
    return nri["reconnects"] if nri["connected"] else -1


@pytest.mark.parametrize("while_away", [True, False], ids=["made-while-away", "made-later"])
def test_a_pod_is_not_taken_for_what_its_cgroup_alone_says(
    containerd: Containerd, kubelet: Kubelet, while_away: bool
) -> None:
    """An LSR pod whose labels come from the runtime's list never has the shared CPUs."""
    with running(containerd, Way.PROXY, lists=True, node=cases.NODE) as setup:
        pods = []
        if while_away:
            setup.koordlet.process.end(signal.SIGKILL)
            pods = [kubelet.run_pod(_LSR.fresh()) for _ in range(3)]
            setup.koordlet.start()
        else:
            pods = [kubelet.run_pod(_LSR.fresh()) for _ in range(3)]  # past the proxy
        for pod in pods:
            until(lambda pod=pod: found(pod, _LSR) == wanted(_LSR), f"{pod.spec.name} has its own")
            view = setup.koordlet.ask("explain", pod.cgroup())
            assert isinstance(view, dict)
            lists = [d["wanted"] for d in view["decisions"] if d["resource"] == "cpuset.cpus"]
            assert set(lists) == {cases.OWN_CPU}, view["decisions"]


@pytest.mark.parametrize("way", [Way.NRI, Way.RECONCILE, Way.PROXY])
def test_what_a_container_missed_is_shown_beside_what_it_should_have(
    containerd: Containerd, kubelet: Kubelet, way: Way
) -> None:
    pod = kubelet.run_pod(_gpu_pod())  # nobody is there to be asked
    with running(containerd, way, lists=way is Way.PROXY, node=cases.NODE) as setup:
        until(lambda: _visible(setup, pod) == ("1,3", "all", True), "what it has is known")
        checks = setup.koordlet.ask("doctor", good=False)
        assert isinstance(checks, dict)
        (line,) = [c for c in checks["checks"] if c["name"].startswith("missed adjustments")]
        assert pod.spec.name in line["name"]
        assert "NVIDIA_VISIBLE_DEVICES is 'all', not '1,3'" in line["why"]
        assert "colour-is-secret" not in setup.koordlet.process.said()
        if way is Way.RECONCILE:
            return
        with Runtime(setup.address) as runtime:
            asked = Kubelet(runtime)
            later = asked.run_pod(_gpu_pod())
            try:
                until(
                    lambda: _visible(setup, later) == ("1,3", "1,3", False),
                    "one that is made while koordlet is asked has it",
                )
            finally:
                asked.remove_all()


def test_a_pod_that_sees_too_many_gpus_is_ended_where_that_is_asked_for(
    containerd: Containerd, kubelet: Kubelet
) -> None:
    pod = kubelet.run_pod(_gpu_pod())
    other = kubelet.run_pod(_LS.fresh())
    body = '[hooks.gpu-env]\non_missing = "evict"\n'
    with running(containerd, Way.NRI, lists=True, node=cases.NODE, body=body) as setup:
        until(lambda: not kubelet.runtime.is_running(pod.containers["main"]), "it has ended")
        assert kubelet.runtime.is_running(other.containers["main"])
        events = json.dumps(setup.koordlet.ask("explain", "gpu-env"))
        assert "it sees GPUs that are not its own" in events


def _gpu_pod() -> PodSpec:
    """Of an image that would show every GPU."""
    spec = next(case for case in CASES if case.spec.name == "gpu").fresh()
    env = {"NVIDIA_VISIBLE_DEVICES": "all", "COLOUR": "colour-is-secret"}
    return replace(spec, containers=tuple(replace(each, env=env) for each in spec.containers))


def _visible(setup: Setup, pod: Pod) -> tuple[str, str, bool] | None:
    """Wanted, has, missed."""
    try:
        view = setup.koordlet.ask("hooks", pod.spec.uid)
    except subprocess.CalledProcessError:  # not known yet
        return None
    assert isinstance(view, dict)
    found = [a for a in view["actions"] if a["name"] == "NVIDIA_VISIBLE_DEVICES"]
    return (found[0]["value"], found[0]["has"], found[0]["missed"]) if found else None
