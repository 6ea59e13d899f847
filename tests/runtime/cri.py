"""CRI as kubelet speaks it, to a runtime or to a proxy in front of one
(docs/reference/wire.md 3)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import grpc

from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb.cri_pb2_grpc import RuntimeServiceStub

_CALL_TIMEOUT_S = 20.0
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
)


@dataclass(frozen=True)
class Sandbox:
    id: str
    uid: str
    attempt: int
    ready: bool


@dataclass(frozen=True)
class Container:
    id: str
    sandbox: str
    name: str
    attempt: int
    running: bool


class Runtime:
    """``socket``: path of the unix socket. Every method raises grpc.RpcError."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._channel = grpc.insecure_channel(f"unix://{socket}", options=_OPTIONS)
        self._stub = RuntimeServiceStub(self._channel)

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the calls in flight too."""
        self._channel.close()

    def version(self) -> str:
        return self._call("Version", cri.VersionRequest()).runtime_version

    def sandboxes(self) -> list[Sandbox]:
        items = self._call("ListPodSandbox", cri.ListPodSandboxRequest()).items
        return [
            Sandbox(i.id, i.metadata.uid, i.metadata.attempt, i.state == cri.SANDBOX_READY)
            for i in items
        ]

    def containers(self) -> list[Container]:
        items = self._call("ListContainers", cri.ListContainersRequest()).containers
        return [
            Container(
                i.id, i.pod_sandbox_id, i.metadata.name, i.metadata.attempt,
                i.state == cri.CONTAINER_RUNNING,
            )
            for i in items
        ]  # fmt: skip

    def run_sandbox(self, config: cri.PodSandboxConfig) -> str:
        return self._call("RunPodSandbox", cri.RunPodSandboxRequest(config=config)).pod_sandbox_id

    def create(
        self, sandbox: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config
        )
        return self._call("CreateContainer", request).container_id

    def start(self, container: str) -> None:
        self._call("StartContainer", cri.StartContainerRequest(container_id=container))

    def update(self, container: str, resources: cri.LinuxContainerResources) -> None:
        request = cri.UpdateContainerResourcesRequest(container_id=container, linux=resources)
        self._call("UpdateContainerResources", request)

    def execute(self, container: str, *command: str) -> str:
        """Standard output. Raises RuntimeError when the command fails."""
        answer = self._call(
            "ExecSync", cri.ExecSyncRequest(container_id=container, cmd=command, timeout=10)
        )
        if answer.exit_code != 0:
            raise RuntimeError(f"{command} exits {answer.exit_code}: {answer.stderr.decode()}")
        return answer.stdout.decode()

    def spec(self, container: str) -> dict[str, Any]:
        """What the OCI runtime was given, by containerd's verbose status."""
        request = cri.ContainerStatusRequest(container_id=container, verbose=True)
        info = self._call("ContainerStatus", request).info["info"]
        spec: dict[str, Any] = json.loads(info)["runtimeSpec"]
        return spec

    def is_running(self, container: str) -> bool:
        request = cri.ContainerStatusRequest(container_id=container)
        status = self._call("ContainerStatus", request).status
        return bool(status.state == cri.CONTAINER_RUNNING)

    def environment(self, container: str) -> Mapping[str, str]:
        """The variables of a process in the container."""
        lines = self.execute(container, "env").splitlines()
        return dict(line.split("=", 1) for line in lines)

    def remove_sandbox(self, sandbox: str) -> None:
        """Stops it, and removes first its containers, then it, in this order, as kubelet does.

        With containers left in it, RemovePodSandbox of containerd 2.1 takes a lock that it holds
        already, and never returns when an NRI plugin registers just then.
        """
        self._call("StopPodSandbox", cri.StopPodSandboxRequest(pod_sandbox_id=sandbox))
        for container in self.containers():
            if container.sandbox == sandbox:
                request = cri.RemoveContainerRequest(container_id=container.id)
                self._call("RemoveContainer", request)
        self._call("RemovePodSandbox", cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox))

    def _call(self, method: str, request: object) -> Any:
        return getattr(self._stub, method)(request, timeout=_CALL_TIMEOUT_S)
