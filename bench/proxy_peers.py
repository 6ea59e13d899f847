"""Peers of the CRI proxy in its bench: a runtime, a hook server of somebody else, and koordlet's.

Each is a process of its own (``python -m bench.proxy_peers runtime|hooks|koordlet SOCKET``) and
answers at once, so that the figures are the proxy's.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import grpc

from koordlet.decision.answer import Combined, Wanted
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Stage
from koordlet.decision.why import Why
from koordlet.hookserver.server import HookServer
from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook

CONTAINERS = 300
_MANY_CONTAINERS = 26_000  # 15 MiB
_UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
_WHY = Why("bench.shares", "the bench wants it")


def requests(pod_id: str = "a" * 64, container_id: str = "b" * 64) -> Mapping[str, bytes]:
    """As large as kubelet's usual ones."""
    pod = cri.RunPodSandboxRequest()
    pod.config.labels.update({f"io.kubernetes.label-{n}": "value" for n in range(4)})
    pod.config.annotations.update({f"annotation-{n}": "x" * 40 for n in range(5)})
    pod.config.metadata.name, pod.config.metadata.uid = "bench", _UID
    pod.config.linux.cgroup_parent = f"/kubepods/besteffort/pod{_UID}"
    create = cri.CreateContainerRequest(pod_sandbox_id=pod_id)
    create.sandbox_config.CopyFrom(pod.config)
    config = create.config
    config.annotations.update({f"annotation-{n}": "x" * 40 for n in range(10)})
    config.metadata.name = "main"
    for number in range(30):
        config.envs.add(key=f"SERVICE_HOST_{number}", value=b"10.0.0.1")
        config.mounts.add(container_path=f"/mnt/{number}", host_path="/var/lib/kubelet/volume")
    config.linux.resources.cpu_shares = 1024
    update = cri.UpdateContainerResourcesRequest(container_id=container_id)
    update.linux.cpu_quota = 50_000
    found = {
        "Version": cri.VersionRequest(),
        "ListContainers": cri.ListContainersRequest(),
        # A list that the bench's runtime answers with as much as CRI allows.
        "ListContainerStats": cri.ListContainerStatsRequest(),
        "RunPodSandbox": pod,
        "CreateContainer": create,
        "UpdateContainerResources": update,
    }
    return {name: message.SerializeToString() for name, message in found.items()}


class _Answers(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs alone
    """``answer``: of (name of the method, request)."""

    def __init__(self, answer: Callable[[str, bytes], bytes]) -> None:
        self._answer = answer

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = details.method.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(lambda request, _: self._answer(method, request))


def _listed(count: int) -> bytes:
    found = cri.ListContainersResponse()
    for number in range(count):
        container = found.containers.add(id=f"{number:064x}", pod_sandbox_id="f" * 64)
        for each in range(4):
            container.labels[f"io.kubernetes.label-{each}"] = f"value-{number}"
        for each in range(5):
            container.annotations[f"annotation-{each}"] = "x" * 40
    text: bytes = found.SerializeToString()
    return text


def _runtime() -> Callable[[str, bytes], bytes]:
    version = cri.VersionResponse(runtime_name="bench", runtime_api_version="v1")
    answers = {
        "Version": version.SerializeToString(),
        "ListContainers": _listed(CONTAINERS),
        "ListContainerStats": _listed(_MANY_CONTAINERS),
        "RunPodSandbox": cri.RunPodSandboxResponse(pod_sandbox_id="a" * 64).SerializeToString(),
        "CreateContainer": cri.CreateContainerResponse(container_id="b" * 64).SerializeToString(),
    }
    return lambda method, request: answers.get(method, b"")


def _hook(method: str, request: bytes) -> bytes:
    if "PodSandbox" in method:
        pod = hook.PodSandboxHookRequest.FromString(request)
        answer = hook.PodSandboxHookResponse(labels=pod.labels, annotations=pod.annotations)
    else:
        asked = hook.ContainerResourceHookRequest.FromString(request)
        answer = hook.ContainerResourceHookResponse(
            container_annotations=asked.container_annotations,
            container_resources=asked.container_resources,
            container_envs=asked.container_envs,
        )
        answer.container_resources.cpu_shares = 2
    message: bytes = answer.SerializeToString()
    return message


class _Ask:
    """A daemon whose hooks want the same."""

    _shares = Combined(settings=(Wanted("bench", Resource.CPU_SHARES, 2, _WHY),))

    def pod(self, origin: str, stage: Stage, pod: PodFacts) -> Combined:
        return Combined()

    def container(
        self, origin: str, stage: Stage, pod: PodFacts, container: ContainerFacts
    ) -> Combined:
        return self._shares


async def _koordlet(path: str) -> None:
    await HookServer(_Ask(), path).start()
    await asyncio.Event().wait()


def main(arguments: Sequence[str]) -> None:
    role, path = arguments
    if role == "koordlet":
        asyncio.run(_koordlet(path))
        return
    handler = _Answers(_runtime() if role == "runtime" else _hook)
    options = [("grpc.max_send_message_length", 32 << 20)]
    server = grpc.server(ThreadPoolExecutor(4), handlers=[handler], options=options)
    server.add_insecure_port(f"unix://{path}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1:])
