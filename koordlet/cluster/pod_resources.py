"""Which CPUs kubelet gave to containers for themselves, from its pod-resources socket
(docs/reference/wire.md
4.2), where its own file of them cannot be read. Imports grpc: imported then alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import grpc

from koordlet.cluster.kubelet_config import KubeletError
from koordlet.protocol.cpuset import CPUSet
from koordlet.wire.pb.pod_resources_pb2 import ListPodResourcesRequest
from koordlet.wire.pb.pod_resources_pb2_grpc import PodResourcesListerStub

CALL_S = 5.0
MAX_MESSAGE_BYTES = 16 << 20
"""As in kubelet."""


class Held(NamedTuple):
    """By the containers of a pod together."""

    namespace: str
    name: str
    cpus: CPUSet


async def held(socket: str) -> tuple[Held, ...]:
    """Raises KubeletError."""
    options = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options=options) as channel:
        try:
            answer = await PodResourcesListerStub(channel).List(
                ListPodResourcesRequest(), timeout=CALL_S
            )
        except grpc.aio.AioRpcError as error:
            raise KubeletError(f"{socket}: {error.code().name}: {error.details()}") from None
    return tuple(found for pod in answer.pod_resources if (found := _held(pod)).cpus)


def _held(pod: Any) -> Held:
    cpus = frozenset(int(cpu) for container in pod.containers for cpu in container.cpu_ids)
    return Held(pod.namespace, pod.name, cpus)
