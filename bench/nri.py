"""What a container's creation pays for asking the NRI plugin, as the runtime sees it.

    python -m bench nri

The plugin runs in a process of its own and answers what a container of a batch pod gets; deciding
that is not part of it. The runtime's side is a blocking socket, and waits for one answer before it
asks for the next, as runtimes do.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial

from bench.figures import Figure, quantile
from bench.nri_runtime import Runtime, container, pods
from koordlet.decision.answer import Combined, Wanted
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import EnvVar, Stage
from koordlet.decision.why import Why
from koordlet.demo.process import die_with_parent
from koordlet.nri.options import Options
from koordlet.nri.plugin import Plugin
from koordlet.wire.pb import nri_pb2 as nri

_PODS = 300
_WHY = Why("bench", "as a batch pod gets it")
_SETTINGS = (
    (Resource.CPU_SHARES, 77),
    (Resource.CPU_QUOTA_US, 50_000),
    (Resource.MEMORY_LIMIT, 1 << 30),
    (Resource.CPUSET_CPUS, "0-15,32-47"),
    (Resource.CPU_BVT_WARP_NS, -1),
)
_ANSWER = Combined(
    tuple(Wanted("bench", resource, value, _WHY) for resource, value in _SETTINGS),
    env=(EnvVar("NVIDIA_VISIBLE_DEVICES", "0,1", _WHY),),
)


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    calls = 200 if smoke else 5000
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-") as directory:
        path = f"{directory}/nri.sock"
        runtime = Runtime(path)
        command = [sys.executable, "-m", "bench.nri", path]
        with subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,  # log lines, which are for people who look at a daemon
            preexec_fn=partial(die_with_parent, os.getpid()),
        ) as plugin:
            try:
                say(f"{calls} containers of {_PODS} pods")
                took_ms = _measure(runtime, calls)
            finally:
                plugin.terminate()
                runtime.close()
    return [
        Figure("NRI CreateContainer, answer known, p50", quantile(took_ms, 0.5), "ms"),
        Figure("NRI CreateContainer, answer known, p99", quantile(took_ms, 0.99), "ms", 5),
    ]


def _measure(runtime: Runtime, calls: int) -> list[float]:
    known = pods(_PODS, lambda number: f"/kubepods/besteffort/poduid-{number}")
    runtime.admit(known, [container(pod) for pod in known])
    requests = [
        nri.CreateContainerRequest(pod=pod, container=container(pod))
        for pod in known[: min(calls, _PODS)]
    ]
    took = []
    for number in range(calls):
        request = requests[number % len(requests)]
        answer, took_ms = runtime.call("CreateContainer", request, nri.CreateContainerResponse)
        assert answer.adjust.linux.resources.cpu.shares.value == 77
        took.append(took_ms)
    return took


class _Known:
    """``Ask`` and ``Reported`` of a daemon that knows every answer."""

    def pod(self, origin: str, stage: Stage, pod: PodFacts) -> Combined:
        return Combined()

    def container(
        self, origin: str, stage: Stage, pod: PodFacts, container: ContainerFacts
    ) -> Combined:
        return _ANSWER

    def replace(self, pods: Iterable[PodFacts]) -> None:
        for _ in pods:
            pass

    def remove_pod(self, uid: str) -> None:
        pass

    def remove_container(self, uid: str, container_id: str) -> None:
        pass


if __name__ == "__main__":
    world = _Known()
    plugin = Plugin(world, world, Options(socket=sys.argv[1]), held=lambda held: None)
    asyncio.run(plugin.run())
