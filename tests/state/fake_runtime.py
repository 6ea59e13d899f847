"""A container runtime on a socket that does what the test tells it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import grpc

from koordlet.wire.pb import cri_pb2 as pb
from koordlet.wire.pb.cri_pb2_grpc import (
    RuntimeServiceServicer,
    add_RuntimeServiceServicer_to_server,
)

UID = "6553a60b-2b97-442a-b6da-a5704d81dd98"
POD = f"kubepods/besteffort/pod{UID}"
CREATED_NS = 1_000_000_000


def sandbox(identity: str = "s1", uid: str = UID, **fields: Any) -> Any:
    values = {
        "id": identity,
        "metadata": pb.PodSandboxMetadata(name="web-0", uid=uid, namespace="shop"),
        "state": pb.SANDBOX_READY,
        "created_at": CREATED_NS,
        "labels": {"koordinator.sh/qosClass": "BE"},
        "annotations": {"a": "1"},
        "runtime_handler": "runc",
    }
    return pb.PodSandbox(**(values | fields))


def container(identity: str = "c1", sandbox_id: str = "s1", **fields: Any) -> Any:
    values = {
        "id": identity,
        "pod_sandbox_id": sandbox_id,
        "metadata": pb.ContainerMetadata(name="main"),
        "state": pb.CONTAINER_RUNNING,
    }
    return pb.Container(**(values | fields))


def status(info: object = None, network: int | None = None, ip: str = "10.0.0.5") -> Any:
    """``info`` None: containerd's for the pod ``POD``."""
    if info is None:
        info = {"pid": 7, "config": {"linux": {"cgroup_parent": f"/{POD}"}}, "runtimeSpec": {}}
    text = info if isinstance(info, str) else json.dumps(info)
    response = pb.PodSandboxStatusResponse(info={"info": text})
    response.status.network.ip = ip
    response.status.network.additional_ips.add(ip="fd00::5")
    if network is not None:
        response.status.linux.namespaces.options.network = network
    return response


class FakeRuntime(RuntimeServiceServicer):  # type: ignore[misc]
    """``fail``: method -> status code to answer with; ``hang``: methods that never answer."""

    def __init__(self, socket: str, name: str = "containerd", version: str = "v2.1.9") -> None:
        self.socket = socket
        self.name, self.version = name, version
        self.sandboxes = [sandbox()]
        self.containers = [container()]
        self.statuses: dict[str, Any] = {}
        self.specs: dict[str, Any] = {}
        """Container id -> its OCI spec."""
        self.fail: dict[str, grpc.StatusCode] = {}
        self.hang: set[str] = set()
        self.calls: Counter[str] = Counter()
        self.streams: list[asyncio.Queue[Any]] = []
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        add_RuntimeServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.socket}")
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)
            self._server = None

    def event(self) -> None:
        for queue in self.streams:
            queue.put_nowait(pb.ContainerEventResponse(container_id="c1"))

    async def Version(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._enter("Version", context)
        return pb.VersionResponse(runtime_name=self.name, runtime_version=self.version)

    async def ListPodSandbox(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._enter("ListPodSandbox", context)
        return pb.ListPodSandboxResponse(items=self.sandboxes)

    async def ListContainers(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._enter("ListContainers", context)
        return pb.ListContainersResponse(containers=self.containers)

    async def PodSandboxStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._enter("PodSandboxStatus", context)
        assert request.verbose
        return self.statuses.get(request.pod_sandbox_id) or status()

    async def ContainerStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        await self._enter("ContainerStatus", context)
        assert request.verbose
        spec = self.specs.get(request.container_id)
        info = {"info": json.dumps({"pid": 7, "runtimeSpec": spec})} if spec is not None else {}
        return pb.ContainerStatusResponse(info=info)

    async def GetContainerEvents(  # noqa: N802
        self, request: Any, context: Any
    ) -> AsyncIterator[Any]:
        await self._enter("GetContainerEvents", context)
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self.streams.append(queue)
        while (event := await queue.get()) is not None:
            yield event

    async def _enter(self, method: str, context: Any) -> None:
        self.calls[method] += 1
        if method in self.hang:
            await asyncio.Event().wait()
        if method in self.fail:
            await context.abort(self.fail[method], "as told")
