"""The source of pods that lists a real containerd: labels, cgroups, events, a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from koordlet.decision.facts import PodFacts
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.qos import KubeQoS
from koordlet.state.cri import CriSource
from tests.runtime.containerd import Containerd
from tests.runtime.kubelet import Kubelet, PodSpec
from tests.runtime.machine import CGROUPS

pytestmark = pytest.mark.runtime

LABELS = {"koordinator.sh/qosClass": "LS"}
ANNOTATIONS = {"koordinator.sh/cpuBurst": "{}"}


class Watched:
    """A source on the running loop, asked on its interval of a minute alone, or by events."""

    def __init__(self, containerd: Containerd) -> None:
        self.source = CriSource(LinuxHost(), CGROUPS.layout, containerd.address, interval_s=60.0)
        self.has_events = not containerd.version.startswith("1.")

    def pod(self, spec: PodSpec) -> PodFacts | None:
        return next((p for p in self.source.pods() if p.uid == spec.uid), None)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                if not self.has_events:
                    self.source.refresh()
                await asyncio.sleep(0.05)


def _run(containerd: Containerd, body: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        watched = Watched(containerd)
        watched.source.start(lambda: None)
        try:
            await watched.until(lambda: watched.source.synced)
            await body(watched)
        finally:
            watched.source.stop()

    asyncio.run(whole())


def test_a_pod_comes_and_goes(containerd: Containerd, kubelet: Kubelet) -> None:
    spec = PodSpec("web", KubeQoS.BURSTABLE, LABELS, ANNOTATIONS)

    async def body(watched: Watched) -> None:
        pod = await asyncio.to_thread(kubelet.run_pod, spec)
        await watched.until(lambda: _placed(watched.pod(spec)) == 2)
        found = watched.pod(spec)
        assert found is not None and found.cgroup == spec.cgroup and found.name == "web"
        assert LABELS.items() <= (found.labels or {}).items()
        assert ANNOTATIONS.items() <= (found.annotations or {}).items()
        assert {(c.id, c.cgroup, c.name, c.is_sandbox) for c in found.containers} == {
            (f"containerd://{pod.sandbox}", f"{spec.cgroup}/{pod.sandbox}", None, True),
            (f"containerd://{pod.containers['main']}", pod.cgroup(), "main", False),
        }
        assert found.host_network is not None and found.phase == "Running"
        await asyncio.to_thread(kubelet.remove_pod, spec)
        await watched.until(lambda: watched.pod(spec) is None)

    _run(containerd, body)


def test_a_restart_of_containerd(containerd: Containerd, kubelet: Kubelet) -> None:
    spec = PodSpec("web", KubeQoS.BEST_EFFORT, LABELS)
    kubelet.run_pod(spec)

    async def body(watched: Watched) -> None:
        before = watched.pod(spec)
        assert before is not None
        await asyncio.to_thread(containerd.process.end)
        await watched.until(lambda: watched.source.error != "")
        assert watched.pod(spec) is before, "what was known stays"
        containerd.start()  # not in a thread: it ends with the thread that started it
        await watched.until(lambda: watched.source.error == "")
        after = watched.pod(spec)
        assert after is not None and after.labels == before.labels
        assert after.containers == before.containers

    _run(containerd, body)
    kubelet.remove_pod(spec)  # its own connection takes a moment to come back


def _placed(pod: PodFacts | None) -> int:
    return sum(c.cgroup is not None for c in pod.containers) if pod is not None else 0
