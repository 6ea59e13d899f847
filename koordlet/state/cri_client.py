"""Calls to a container runtime. Imports grpc: imported when the runtime's socket is there."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Iterable
from typing import Any, Self

import grpc

from koordlet.decision.given import Given
from koordlet.state.cri_facts import Details, details_of, given_of
from koordlet.wire.pb import cri_pb2 as pb
from koordlet.wire.pb.cri_pb2_grpc import RuntimeServiceStub

CALL_S = 5.0
"""The most one call may take."""
MAX_MESSAGE_BYTES = 16 * 1024 * 1024  # as between kubelet and a runtime

_GRACE = "io.kubernetes.pod.terminationGracePeriod"
_DEFAULT_GRACE_S = 30
_GONE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


class CallError(Exception):
    """A call failed; the text says which and how."""


class Client:
    """The calls of one connection. Every method raises CallError; ``details``, ``given`` and
    ``events`` only where the connection is lost."""

    def __init__(self, socket: str) -> None:
        self._channel = grpc.aio.insecure_channel(
            f"unix:{socket}", options=[("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)]
        )
        self._stub = RuntimeServiceStub(self._channel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def version(self) -> tuple[str, str]:
        """Name and version of the runtime."""
        found = await self._call("Version", pb.VersionRequest(version="v1"))
        return found.runtime_name, found.runtime_version

    async def sandboxes(self) -> Iterable[Any]:
        return _items(await self._call("ListPodSandbox", pb.ListPodSandboxRequest()), "items")

    async def containers(self) -> Iterable[Any]:
        return _items(await self._call("ListContainers", pb.ListContainersRequest()), "containers")

    async def details(self, sandbox_id: str) -> Details | None:
        """None where the runtime cannot tell, for example because the sandbox went."""
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id, verbose=True)
        try:
            return details_of(await self._stub.PodSandboxStatus(request, timeout=CALL_S))
        except grpc.aio.AioRpcError as error:
            if error.code() in _GONE:
                raise _error("PodSandboxStatus", error) from None
            return None

    async def given(self, container_id: str) -> Given | None:
        """What the container was created with; None where the runtime cannot tell."""
        request = pb.ContainerStatusRequest(container_id=container_id, verbose=True)
        try:
            return given_of(await self._stub.ContainerStatus(request, timeout=CALL_S))
        except grpc.aio.AioRpcError as error:
            if error.code() in _GONE:
                raise _error("ContainerStatus", error) from None
            return None

    async def events(self) -> AsyncIterator[None]:
        """One for each event; ends at once where the runtime has none."""
        try:
            async for _ in self._stub.GetContainerEvents(pb.GetEventsRequest()):
                yield None
        except grpc.aio.AioRpcError as error:
            if error.code() in _GONE:
                raise _error("GetContainerEvents", error) from None

    async def stop_pod(self, uid: str, grace_s: float) -> None:
        """Stop the containers of a pod, then its sandboxes. Each container has the grace that its
        pod gives it, at most ``grace_s``. Returns when they have ended."""
        sandboxes = {
            each.id for each in await self.sandboxes() if uid in (each.metadata.uid, each.id)
        }
        if not sandboxes:
            raise CallError(f"ListPodSandbox: no sandbox of pod {uid}")
        running = [
            each
            for each in await self.containers()
            if each.pod_sandbox_id in sandboxes
            and each.state == pb.ContainerState.CONTAINER_RUNNING
        ]
        requests = [
            pb.StopContainerRequest(container_id=each.id, timeout=_grace_s(each, grace_s))
            for each in running
        ]
        stopping = (
            self._call("StopContainer", request, CALL_S + request.timeout) for request in requests
        )
        await asyncio.gather(*stopping)
        for sandbox in sorted(sandboxes):
            request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox)
            await self._call("StopPodSandbox", request, CALL_S)

    async def _call(self, method: str, request: Any, timeout_s: float = CALL_S) -> Any:
        try:
            return await getattr(self._stub, method)(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _error(method, error) from None


def _grace_s(container: Any, longest_s: float) -> int:
    """Whole seconds, as kubelet notes them with each container it makes."""
    text = container.annotations.get(_GRACE, "")
    own_s = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else _DEFAULT_GRACE_S
    return min(own_s, math.ceil(longest_s))


def _items(response: Any, field: str) -> Iterable[Any]:
    found: Iterable[Any] = getattr(response, field)
    return found


def _error(method: str, error: grpc.aio.AioRpcError) -> CallError:
    return CallError(f"{method}: {error.code().name}: {error.details()}")
