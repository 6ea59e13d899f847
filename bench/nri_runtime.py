"""A container runtime as an NRI plugin sees one, on a blocking socket: it measures the answers."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from typing import Any

from koordlet.nri import frame, mux
from koordlet.nri.session import PLUGIN_CONNECTION, PLUGIN_SERVICE
from koordlet.wire.pb import nri_pb2 as nri
from koordlet.wire.pb import ttrpc_pb2 as ttrpc

_TIMEOUT_S = 20.0


class Runtime:
    """Listens; ``admit`` takes the first plugin that comes. Raises TimeoutError and EOFError."""

    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(_TIMEOUT_S)
        self._listener.bind(path)
        self._listener.listen()
        self._plugin: socket.socket | None = None
        self._mux = mux.Decoder()
        self._streams: dict[int, frame.Decoder] = {}
        self._arrived: list[tuple[int, frame.Frame]] = []
        self._next_stream = 1

    def admit(self, pods: list[nri.PodSandbox], containers: list[nri.Container]) -> None:
        """Registered, configured, synchronized with these."""
        self._plugin, _ = self._listener.accept()
        self._plugin.settimeout(_TIMEOUT_S)
        connection, registration = self._frame()
        self._send(connection, registration.stream, frame.RESPONSE, ttrpc.Response())
        configure = nri.ConfigureRequest(runtime_name="containerd", runtime_version="bench")
        self.call("Configure", configure, nri.ConfigureResponse)
        everything = nri.SynchronizeRequest(pods=pods, containers=containers)
        self.call("Synchronize", everything, nri.SynchronizeResponse)

    def call(self, method: str, request: Any, answer: Any) -> tuple[Any, float]:
        """The answer, and the milliseconds from the first byte out to the last one in."""
        envelope = ttrpc.Request(
            service=PLUGIN_SERVICE, method=method, payload=request.SerializeToString()
        )
        stream, self._next_stream = self._next_stream, self._next_stream + 2
        begin = time.perf_counter()
        self._send(PLUGIN_CONNECTION, stream, frame.REQUEST, envelope)
        _, got = self._frame()
        took_ms = (time.perf_counter() - begin) * 1000
        assert got.payload is not None and got.stream == stream
        response = ttrpc.Response.FromString(got.payload)
        if response.status.code:
            raise ValueError(f"{method}: {response.status.message}")
        return answer.FromString(response.payload), took_ms

    def close(self) -> None:
        for each in (self._plugin, self._listener):
            if each is not None:
                each.close()

    def _send(self, connection: int, stream: int, kind: int, envelope: Any) -> None:
        assert self._plugin is not None
        message = frame.encode(stream, kind, envelope.SerializeToString())
        self._plugin.sendall(mux.frames(connection, message))

    def _frame(self) -> tuple[int, frame.Frame]:
        assert self._plugin is not None
        while not self._arrived:
            data = self._plugin.recv(1 << 16)
            if not data:
                raise EOFError("the plugin closed the connection")
            for connection, part in self._mux.feed(data):
                decoder = self._streams.setdefault(connection, frame.Decoder())
                self._arrived += [(connection, each) for each in decoder.feed(part)]
        return self._arrived.pop(0)


def pods(count: int, cgroup_of: Callable[[int], str]) -> list[nri.PodSandbox]:
    """As containerd tells them, with labels and annotations of a usual number."""
    return [
        nri.PodSandbox(
            id=os.urandom(32).hex(),
            name=f"pod-{number}",
            uid=f"uid-{number}",
            namespace="default",
            labels={f"label-{n}": "value" for n in range(8)},
            annotations={f"annotation-{n}": "value" * 8 for n in range(8)},
            linux=nri.LinuxPodSandbox(
                cgroup_parent=cgroup_of(number), namespaces=[nri.LinuxNamespace(type="network")]
            ),
        )
        for number in range(count)
    ]


def container(pod: nri.PodSandbox) -> nri.Container:
    """One that is to be created; a spec of OCI has this many variables and mounts."""
    identity = os.urandom(32).hex()
    cpu = nri.LinuxCPU(shares=nri.OptionalUInt64(value=102), quota=nri.OptionalInt64(value=20000))
    return nri.Container(
        id=identity,
        pod_sandbox_id=pod.id,
        name="main",
        env=[f"SERVICE_{n}_HOST=10.0.0.{n}" for n in range(60)],
        args=["/bin/server", "--flag"],
        mounts=[
            nri.Mount(destination=f"/mnt/{n}", source=f"/var/lib/{n}", type="bind")
            for n in range(12)
        ],
        linux=nri.LinuxContainer(
            cgroups_path=f"{pod.linux.cgroup_parent}/{identity}",
            resources=nri.LinuxResources(cpu=cpu),
        ),
    )
