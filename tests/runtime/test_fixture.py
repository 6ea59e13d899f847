"""The fixture itself: a real containerd runs pods as kubelet asks, and nothing remains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource
from koordlet.protocol.qos import KubeQoS
from tests.runtime import machine
from tests.runtime.containerd import Containerd
from tests.runtime.kubelet import ContainerSpec, Kubelet, PodSpec
from tests.runtime.machine import CGROUPS

pytestmark = pytest.mark.runtime

MIB = 1 << 20
LIMITED = ContainerSpec(
    cpu_request_milli=500, cpu_limit_milli=1500, memory_limit_bytes=64 * MIB, env={"COLOUR": "blue"}
)
# QoS class -> container; shares, quota (us), memory limit (bytes) of pod and container.
CLASSES = {
    KubeQoS.GUARANTEED: (
        ContainerSpec(
            cpu_request_milli=1000, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB, cpuset="0"
        ),
        (1024, 100_000, 64 * MIB),
    ),
    KubeQoS.BURSTABLE: (LIMITED, (512, 150_000, 64 * MIB)),
    KubeQoS.BEST_EFFORT: (ContainerSpec(), (2, -1, None)),
}


@pytest.mark.parametrize("qos", CLASSES, ids=str)
def test_a_pod_gets_what_kubelet_asks_for(kubelet: Kubelet, qos: KubeQoS) -> None:
    container, (shares, quota_us, memory_bytes) = CLASSES[qos]
    pod = kubelet.run_pod(PodSpec(f"smoke-{qos.lower()}", qos, containers=(container,)))
    for cgroup in (pod.spec.cgroup, pod.cgroup()):
        assert CGROUPS.read(cgroup, Resource.CPU_SHARES) == shares
        assert CGROUPS.read(cgroup, Resource.CPU_QUOTA_US) == quota_us
        if memory_bytes is not None:
            assert CGROUPS.read(cgroup, Resource.MEMORY_LIMIT) == memory_bytes
    if container.cpuset:
        assert CGROUPS.read(pod.cgroup(), Resource.CPUSET_CPUS) == container.cpuset
    assert kubelet.runtime.execute(pod.containers["main"], "echo", "hello") == "hello\n"
    environment = kubelet.runtime.environment(pod.containers["main"])
    assert container.env.items() <= environment.items()


def test_nothing_remains_of_a_removed_pod(kubelet: Kubelet) -> None:
    spec = PodSpec("gone", KubeQoS.BURSTABLE, containers=(LIMITED, ContainerSpec("side")))
    pod = kubelet.run_pod(spec)
    assert set(pod.containers) == {"main", "side"}
    assert machine.shims()
    assert machine.processes()
    kubelet.remove_pod(spec)
    assert kubelet.runtime.sandboxes() == []
    assert kubelet.runtime.containers() == []
    assert machine.pod_cgroups() == []
    assert machine.processes() == set()
    machine.until(lambda: not machine.shims(), "the shim ends")


def test_pods_survive_a_restart_of_containerd(containerd: Containerd, kubelet: Kubelet) -> None:
    pod = kubelet.run_pod(PodSpec("steady", KubeQoS.BURSTABLE))
    before, processes = containerd.process.pid, machine.processes()
    containerd.restart()
    assert containerd.process.pid != before
    assert machine.processes() == processes
    again = kubelet.run_pod(pod.spec)
    assert again == pod
    assert kubelet.runtime.execute(pod.containers["main"], "echo", "hello") == "hello\n"


_SESSION = """
import os, signal, sys
from koordlet.protocol.qos import KubeQoS
from tests.runtime import machine
from tests.runtime.containerd import Containerd
from tests.runtime.cri import Runtime
from tests.runtime.kubelet import Kubelet, PodSpec
with machine.alone():
    if sys.argv[1:]:
        containerd = Containerd(sys.argv[1])
        containerd.start()
        containerd.import_images()
        Kubelet(Runtime(containerd.address)).run_pod(PodSpec("orphan", KubeQoS.BEST_EFFORT))
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_session_cleans_up_after_a_killed_one(
    containerd: Containerd, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"koordlet-test-{os.getpid()}-killed"
    monkeypatch.setenv("KOORDLET_TEST_RUNTIME", name)
    sockets = Path("/run/containerd/s")
    before = set(sockets.glob("*"))
    command = [sys.executable, "-c", _SESSION]
    killed = subprocess.run([*command, containerd.version], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert _traces(name)
    assert set(sockets.glob("*")) > before
    subprocess.run(command, check=True, timeout=60)
    assert _traces(name) == []
    assert set(sockets.glob("*")) == before
    Path(f"/run/{name}.lock").unlink()


def _traces(name: str) -> list[object]:
    """Of a session: folder, cgroups, mounts, processes."""
    found: list[object] = [p for p in (Path("/run", name),) if p.exists()]
    found += [d for d in (root / name for root in machine.hierarchies()) if d.exists()]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if name in line]
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if f"/run/{name}/" in file.read_text(errors="replace"):
                found.append(file.read_text(errors="replace"))
    return found
