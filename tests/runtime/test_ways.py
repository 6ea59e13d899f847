"""Pods of each class end with the same values in the kernel, whichever way koordlet learns of
them; what only a creating runtime can give, containers get when the runtime asks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import pytest

from koordlet.decision.resource import Resource
from tests.runtime import cases, machine
from tests.runtime.cases import CASES, Case, found, wanted
from tests.runtime.containerd import Containerd
from tests.runtime.cri import Runtime
from tests.runtime.kubelet import Kubelet
from tests.runtime.ways import Setup, Way, running

pytestmark = pytest.mark.runtime


@pytest.fixture(scope="module", params=Way, ids=str)
def setup(request: pytest.FixtureRequest, session_containerd: Containerd) -> Iterator[Setup]:
    with running(session_containerd, request.param, node=cases.NODE) as setup:
        yield setup


@pytest.fixture
def kubelet(setup: Setup) -> Iterator[Kubelet]:
    with Runtime(setup.address) as runtime:
        kubelet = Kubelet(runtime)
        yield kubelet
        kubelet.remove_all()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.spec.name)
def test_a_pod_has_what_its_class_and_annotations_say(
    setup: Setup, kubelet: Kubelet, case: Case
) -> None:
    pod = kubelet.run_pod(case.fresh())
    container = pod.containers["main"]
    version = setup.containerd.version
    if setup.way is not Way.RECONCILE:
        # Before the first process ran, and not by reconciling a moment later.
        spec = kubelet.runtime.spec(container)
        given = {r: v for r, v in case.container.items() if (setup.way, version, r) not in _LATER}
        assert {resource: _at(spec, _IN_SPEC[resource]) for resource in given} == given
    with suppress(TimeoutError):  # the comparison below shows more
        machine.until(lambda: found(pod, case) == wanted(case), "it is reconciled")
    assert found(pod, case) == wanted(case)
    environment = kubelet.runtime.environment(container)
    assert case.spec.containers[0].env.items() <= environment.items()
    if setup.way is not Way.RECONCILE:
        assert case.env.items() <= environment.items()


# The NRI of containerd 1.7 has no field for it: reconciling sets it.
_LATER = {(Way.NRI, "1.7", Resource.OOM_SCORE_ADJ)}

# Where the OCI runtime specification has what a cgroup of a container gets.
_IN_SPEC = {
    Resource.CPU_SHARES: "linux.resources.cpu.shares",
    Resource.CPU_QUOTA_US: "linux.resources.cpu.quota",
    Resource.CPUSET_CPUS: "linux.resources.cpu.cpus",
    Resource.MEMORY_LIMIT: "linux.resources.memory.limit",
    Resource.OOM_SCORE_ADJ: "process.oomScoreAdj",
}


def _at(document: object, path: str) -> object:
    for key in path.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document
