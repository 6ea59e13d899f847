"""Serves kubelet's pod-resources API with the devices that the scheduler gave to pods
(docs/reference/metrics.md 6.8, wire.md 4.2), for agents that ask there which pod has which device.

What kubelet answers is passed on as it is, so that newer kubelets lose nothing. Imports grpc:
imported where the proxy is switched on.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import grpc
import structlog

from koordlet.decision.snapshot import Pod
from koordlet.protocol import keys
from koordlet.protocol.annotation_types import DeviceAllocation
from koordlet.protocol.errors import AnnotationError
from koordlet.wire.pb import pod_resources_pb2 as pb

log = structlog.get_logger()

SERVICE = "v1.PodResourcesLister"
SOCKET = "kubelet.sock"
MAX_MESSAGE_BYTES = 16 << 20
CALL_S = 5.0
MAX_CALLS = 16
"""At once; each costs a call of kubelet."""
STOP_S = 0.5
RESOURCES = {"gpu": "nvidia.com/gpu", "rdma": "koordinator.sh/rdma"}
"""Type of the allocation -> resource. Of other types nobody has said what they are called: they
are left out."""


def with_devices(answer: bytes, pods: Iterable[Pod]) -> bytes:
    """A ListPodResourcesResponse with the devices of annotations added to the first container of
    each pod. Raises google.protobuf.message.DecodeError."""
    response = pb.ListPodResourcesResponse.FromString(answer)
    given = dict[tuple[str, str], dict[str, list[str]]]()
    for pod in pods:
        devices = _given(pod)
        if devices:
            given[pod.namespace, pod.name] = devices
    if not given:
        return answer
    for each in response.pod_resources:
        found = given.get((each.namespace, each.name))
        if found and each.containers:
            _add(each.containers[0], found)
    changed: bytes = response.SerializeToString()
    return changed


def _given(pod: Pod) -> dict[str, list[str]]:
    """Resource -> ids of devices. An annotation that cannot be read gives nothing; the pod's user
    is told of it elsewhere."""
    try:
        allocated = keys.DEVICE_ALLOCATED.read(pod.annotations) or {}
    except AnnotationError:
        return {}
    found = {}
    for kind, allocations in sorted(allocated.items()):
        ids = [each for allocation in allocations for each in _ids(allocation)]
        if kind in RESOURCES and ids:
            found[RESOURCES[kind]] = ids
    return found


def _ids(allocation: DeviceAllocation) -> list[str]:
    if allocation.extension is not None and allocation.extension.vfs:
        return [each.bus_id for each in allocation.extension.vfs if each.bus_id]
    return [allocation.id] if allocation.id else []


def _add(container: Any, devices: dict[str, list[str]]) -> None:
    for name, ids in devices.items():
        container.devices.add(resource_name=name, device_ids=ids)
    container.devices.sort(key=lambda each: each.resource_name)


class PodResourcesProxy:
    """``pods``: as they are known now. Calls fail as kubelet's do while it is away."""

    def __init__(self, directory: str, upstream: str, pods: Callable[[], tuple[Pod, ...]]) -> None:
        self.path = os.path.join(directory, SOCKET)
        self.served = 0
        self._upstream, self._pods = upstream, pods
        self._server: grpc.aio.Server | None = None
        self._channel: grpc.aio.Channel | None = None

    async def start(self) -> None:
        """Root alone may connect. Raises OSError where the socket cannot be made."""
        directory = os.path.dirname(self.path)
        os.makedirs(directory, mode=0o750, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise FileExistsError(f"{self.path} is no socket; koordlet does not remove it")
            os.unlink(self.path)
        limits = [
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ]
        soon = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 1000)]
        self._channel = grpc.aio.insecure_channel(
            f"unix:{self._upstream}", options=[*limits, *soon]
        )
        self._server = grpc.aio.server(options=limits, maximum_concurrent_rpcs=MAX_CALLS)
        # Bytes in, bytes out: nothing is decoded but what is changed.
        methods = {
            name: grpc.unary_unary_rpc_method_handler(self._handler(name))
            for name in ("List", "Get", "GetAllocatableResources")
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, methods),)
        )
        before = os.umask(0o177)
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            raise OSError(f"{self.path}: {error}") from None
        finally:
            os.umask(before)
        await self._server.start()
        os.chmod(self.path, 0o600)

    async def stop(self) -> None:
        server, channel = self._server, self._channel
        self._server = self._channel = None
        if server is not None:
            await server.stop(STOP_S)
        if channel is not None:
            await channel.close(None)
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _handler(self, method: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def answer(request: bytes, context: Any) -> bytes:
            assert self._channel is not None
            self.served += 1
            call = self._channel.unary_unary(
                f"/{SERVICE}/{method}", request_serializer=None, response_deserializer=None
            )
            try:
                found: bytes = await call(request, timeout=CALL_S)
            except grpc.aio.AioRpcError as error:
                await context.abort(error.code(), f"kubelet: {error.details()}")
                raise
            return with_devices(found, self._pods()) if method == "List" else found

        return answer
