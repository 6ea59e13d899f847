"""The whole proxy in one event loop: runtime with pods, hook server, config directory."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from koordlet.runtimeproxy import listen
from koordlet.runtimeproxy.intercept import SkipLabel
from koordlet.runtimeproxy.process import Options, Proxy
from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook
from tests.runtimeproxy.rig import RUNTIME, Runtime, Seen, channel, serve, until

BUDGET_S = 0.4
ALL_HOOKS = (
    *("PreRunPodSandbox", "PostStopPodSandbox", "PreCreateContainer", "PreStartContainer"),
    *("PostStartContainer", "PreUpdateContainerResources", "PostStopContainer"),
    *("PreUpdatePodSandboxResources", "NoSuchHook"),
)
Think = Callable[[str, Any], Awaitable[Any]]


@dataclass
class Pods:
    """What the runtime has: enough of CRI for the proxy to find its way."""

    pods: dict[str, Any] = field(default_factory=dict)
    containers: dict[str, Any] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))
    fail: set[str] = field(default_factory=set)

    async def answer(self, seen: Seen, context: grpc.aio.ServicerContext) -> list[bytes]:
        method = seen.path.rpartition("/")[2]
        if method in self.fail:
            await context.abort(grpc.StatusCode.INTERNAL, "as told")
        request = getattr(cri, f"{method}Request").FromString(seen.requests[0])
        response = getattr(cri, f"{method}Response")()
        serve_it = getattr(self, f"_{method}", None)
        if serve_it is not None:
            serve_it(request, response)
        return [response.SerializeToString()]

    def _RunPodSandbox(self, request: Any, response: Any) -> None:  # noqa: N802
        response.pod_sandbox_id = f"pod-{next(self.numbers)}"
        self.pods[response.pod_sandbox_id] = request

    def _CreateContainer(self, request: Any, response: Any) -> None:  # noqa: N802
        response.container_id = f"container-{next(self.numbers)}"
        self.containers[response.container_id] = request

    def _ListPodSandbox(self, request: Any, response: Any) -> None:  # noqa: N802
        for id_ in self.pods:
            response.items.add(id=id_)

    def _ListContainers(self, request: Any, response: Any) -> None:  # noqa: N802
        for id_, made in self.containers.items():
            if request.filter.id in ("", id_):
                config = made.config
                response.containers.add(
                    id=id_,
                    pod_sandbox_id=made.pod_sandbox_id,
                    metadata=config.metadata,
                    annotations=config.annotations,
                )

    def _PodSandboxStatus(self, request: Any, response: Any) -> None:  # noqa: N802
        made = self.pods[request.pod_sandbox_id]
        status, config = response.status, made.config
        status.metadata.CopyFrom(config.metadata)
        status.labels.update(config.labels)
        status.annotations.update(config.annotations)
        status.runtime_handler = made.runtime_handler
        linux = {
            "cgroup_parent": config.linux.cgroup_parent,
            "resources": {"cpu_shares": config.linux.resources.cpu_shares},
        }
        response.info["info"] = json.dumps({"pid": 1, "config": {"linux": linux}})

    def _ContainerStatus(self, request: Any, response: Any) -> None:  # noqa: N802
        made = self.containers[request.container_id]
        response.status.resources.linux.CopyFrom(made.config.linux.resources)


async def echo_hook(stage: str, request: Any) -> Any:
    if isinstance(request, hook.PodSandboxHookRequest):
        return hook.PodSandboxHookResponse(
            labels=request.labels,
            annotations=request.annotations,
            cgroup_parent=request.cgroup_parent,
        )
    return hook.ContainerResourceHookResponse(
        container_annotations=request.container_annotations,
        container_resources=request.container_resources,
        pod_cgroup_parent=request.pod_cgroup_parent,
        container_envs=request.container_envs,
    )


@dataclass
class HookServer(grpc.GenericRpcHandler):
    """``think`` gives the response message, or bytes to answer with as they are."""

    think: Think = echo_hook
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        stage = details.method.rpartition("/")[2].removesuffix("Hook")
        assert details.method.startswith("/runtime.v1alpha1.RuntimeHookService/")
        kind = (
            hook.PodSandboxHookRequest
            if "PodSandbox" in stage
            else hook.ContainerResourceHookRequest
        )

        async def serve(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
            message = kind.FromString(request)
            self.asked.append((stage, message))
            answer = await self.think(stage, message)
            return answer if isinstance(answer, bytes) else bytes(answer.SerializeToString())

        return grpc.unary_unary_rpc_method_handler(serve)

    def stages(self) -> list[str]:
        return [stage for stage, _ in self.asked]


@dataclass
class World:
    directory: Path
    runtime: Runtime
    pods: Pods
    hooks: HookServer
    proxy: Proxy
    client: grpc.aio.Channel

    @property
    def hook_socket(self) -> str:
        return str(self.directory / "hook.sock")

    async def configure(self, policy: str = "Ignore", name: str = "koordlet.json") -> None:
        write_config(self.directory, self.hook_socket, policy, name)
        self.proxy.hooks.reload()

    async def call(self, method: str, **fields: Any) -> Any:
        request = getattr(cri, f"{method}Request")(**fields)
        return await self.send(method, request)

    async def send(self, method: str, request: Any) -> Any:
        answer = await self.client.unary_unary(RUNTIME + method)(request.SerializeToString())
        return getattr(cri, f"{method}Response").FromString(answer)

    async def run_pod(self, **labels: str) -> str:
        config = cri.PodSandboxConfig(labels=labels, annotations={"pod": "yes"})
        config.metadata.name, config.metadata.uid = "web", "uid-1"
        config.metadata.namespace = "default"
        config.linux.cgroup_parent = "/kubepods/poduid-1"
        config.linux.resources.cpu_shares = 1024
        return str((await self.call("RunPodSandbox", config=config)).pod_sandbox_id)

    async def create(self, pod: str) -> str:
        config = cri.ContainerConfig(annotations={"container": "yes"})
        config.metadata.name = "main"
        config.envs.add(key="A", value=b"1")
        config.linux.resources.cpu_shares = 512
        config.linux.resources.cpu_quota = 50_000
        answer = await self.call("CreateContainer", pod_sandbox_id=pod, config=config)
        return str(answer.container_id)

    def last(self, method: str) -> Any:
        """What the runtime got."""
        seen = self.runtime.of(method)[-1]
        return getattr(cri, f"{method}Request").FromString(seen.requests[0])

    def counted(self, method: str) -> dict[str, int]:
        return self.proxy.stats.methods[RUNTIME + method].hooks


def write_config(directory: Path, socket: str, policy: str, name: str = "koordlet.json") -> None:
    content = {"remote-endpoint": socket, "failure-policy": policy, "runtime-hooks": ALL_HOOKS}
    path = directory / "hooks.d" / name
    path.with_suffix(".new").write_text(json.dumps(content))
    os.rename(path.with_suffix(".new"), path)


def options(directory: Path) -> Options:
    return Options(
        endpoint=str(directory / "proxy.sock"),
        backend=str(directory / "runtime.sock"),
        skip=SkipLabel("runtimeproxy.koordinator.sh/skip-hookserver", "true"),
        hook_config_dir=str(directory / "hooks.d"),
        hook_budget_s=BUDGET_S,
        status_socket=str(directory / "status.sock"),
    )


@asynccontextmanager
async def world(directory: Path, think: Think = echo_hook) -> AsyncIterator[World]:
    pods, hooks = Pods(), HookServer(think)
    runtime = Runtime(pods.answer)
    servers = [await serve(runtime, str(directory / "runtime.sock"))]
    servers.append(await serve(hooks, str(directory / "hook.sock")))
    chosen = options(directory)
    proxy = Proxy(chosen, listen.bind(chosen.endpoint))
    stop, ready = asyncio.Event(), asyncio.Event()
    running = asyncio.ensure_future(proxy.serve(ready.set, stop))
    client = channel(chosen.endpoint)
    try:
        await ready.wait()
        await until(lambda: not proxy.backend.error)
        found = World(directory, runtime, pods, hooks, proxy, client)
        await found.configure()
        yield found
    finally:
        await client.close()
        stop.set()
        await running
        for server in servers:
            await server.stop(None)
