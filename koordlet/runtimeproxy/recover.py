"""What the proxy forgot or never saw, asked of the runtime (docs/reference/hooks.md 4.7)."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec
import structlog
from google.protobuf.message import DecodeError

from koordlet.protocol.document import UNREADABLE
from koordlet.runtimeproxy.backend import Backend
from koordlet.runtimeproxy.facts import copy_resources
from koordlet.runtimeproxy.grpc_message import MAX_MESSAGE_BYTES
from koordlet.runtimeproxy.methods import SERVICE
from koordlet.runtimeproxy.store import Container, Pod, Store
from koordlet.runtimeproxy.unary import CallError, Unary
from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook

_CALL_S: Final = 10.0
_AT_A_TIME: Final = 8
_RESOURCE_FIELDS: Final = (
    "cpu_period",
    "cpu_quota",
    "cpu_shares",
    "memory_limit_in_bytes",
    "memory_swap_limit_in_bytes",
    "oom_score_adj",
)


class RecoverError(Exception):
    """The runtime did not tell; the text says what and why."""


class Recovery:
    """Envs of containers cannot be had again; everything else a hook is told can."""

    def __init__(self, backend: Backend, store: Store) -> None:
        self._backend = backend
        self._store = store
        self._unary = Unary(backend.path, MAX_MESSAGE_BYTES)
        self._task: asyncio.Task[None] | None = None
        self._limit = asyncio.Semaphore(_AT_A_TIME)
        self._log = structlog.get_logger()
        backend.on_back.append(self._start)

    def _start(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._rebuild_or_say())

    async def _rebuild_or_say(self) -> None:
        try:
            await self.rebuild()
        except RecoverError as error:
            self._log.warning("store_not_rebuilt", error=str(error))

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
        self._unary.close()

    async def rebuild(self) -> None:
        """What the runtime has and the store has not is added, what it has no longer is dropped.
        What calls put there meanwhile stays. Raises RecoverError."""
        store = self._store
        known_pods, known_containers = set(store.pods), set(store.containers)
        pods = await self._call("ListPodSandbox", cri.ListPodSandboxRequest())
        containers = await self._call("ListContainers", cri.ListContainersRequest())
        for gone in known_pods - {pod.id for pod in pods.items}:
            store.drop_pod(gone)
        for gone in known_containers - {each.id for each in containers.containers}:
            store.containers.pop(gone, None)
        missing = [pod.id for pod in pods.items if pod.id not in store.pods]
        await asyncio.gather(*map(self._pod_or_nothing, missing))
        left = [each for each in containers.containers if each.id not in store.containers]
        await asyncio.gather(*map(self._container_or_nothing, left))
        self._log.info("store_rebuilt", pods=len(store.pods), containers=len(store.containers))

    async def pod(self, id_: str) -> None:
        """Into the store. Raises RecoverError."""
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=id_, verbose=True)
        found = await self._call("PodSandboxStatus", request)
        self._store.pods.setdefault(id_, _pod(found))

    async def container(self, id_: str) -> None:
        """Into the store, with its pod. Raises RecoverError."""
        listed = await self._call(
            "ListContainers", cri.ListContainersRequest(filter=cri.ContainerFilter(id=id_))
        )
        if not listed.containers:
            raise RecoverError(f"container {id_}: the runtime does not know it")
        await self._container(listed.containers[0])
        if listed.containers[0].pod_sandbox_id not in self._store.pods:
            await self.pod(listed.containers[0].pod_sandbox_id)

    async def _container(self, listed: cri.Container) -> None:
        request = cri.ContainerStatusRequest(container_id=listed.id)
        found = await self._call("ContainerStatus", request)
        self._store.containers.setdefault(listed.id, _container(listed, found.status))

    async def _pod_or_nothing(self, id_: str) -> None:
        """One that went in between, or whose status is odd, must not keep out the others."""
        async with self._limit:
            try:
                await self.pod(id_)
            except RecoverError as error:
                self._log.info("pod_not_recovered", error=str(error))

    async def _container_or_nothing(self, listed: cri.Container) -> None:
        async with self._limit:
            try:
                await self._container(listed)
            except RecoverError as error:
                self._log.info("container_not_recovered", error=str(error))

    async def _call(self, method: str, request: Any) -> Any:
        try:
            answer = await self._unary.call(SERVICE + method, request.SerializeToString(), _CALL_S)
            return getattr(cri, f"{method}Response").FromString(answer)
        except (CallError, DecodeError) as error:
            raise RecoverError(f"{method}: {error}") from error


def _pod(found: cri.PodSandboxStatusResponse) -> Pod:
    status = found.status
    facts = hook.PodSandboxHookRequest(
        runtime_handler=status.runtime_handler,
        labels=status.labels,
        annotations=status.annotations,
    )
    meta = status.metadata
    facts.pod_meta.name, facts.pod_meta.uid = meta.name, meta.uid
    facts.pod_meta.namespace, facts.pod_meta.attempt = meta.namespace, meta.attempt
    linux = _config(found.info.get("info", "")).get("linux")
    if isinstance(linux, dict):
        facts.cgroup_parent = str(linux.get("cgroup_parent", ""))
        for name in ("overhead", "resources"):
            stored = linux.get(name)
            if isinstance(stored, dict):
                for key in _RESOURCE_FIELDS:
                    if isinstance(stored.get(key), int):
                        setattr(getattr(facts, name), key, stored[key])
    return Pod(facts, stopped=status.state == cri.SANDBOX_NOTREADY)


def _config(info: str) -> dict[str, Any]:
    """containerd tells the PodSandboxConfig it was given in its verbose status, as JSON."""
    try:
        config = msgspec.json.decode(info or "{}").get("config")
    except (*UNREADABLE, AttributeError):
        return {}
    return config if isinstance(config, dict) else {}


def _container(listed: cri.Container, status: cri.ContainerStatus) -> Container:
    facts = hook.ContainerResourceHookRequest(container_annotations=listed.annotations)
    facts.container_meta.name = listed.metadata.name
    facts.container_meta.attempt = listed.metadata.attempt
    facts.container_meta.id = listed.id
    if status.resources.HasField("linux"):
        copy_resources(facts.container_resources, status.resources.linux)
    stopped = listed.state == cri.CONTAINER_EXITED
    return Container(listed.pod_sandbox_id, facts, stopped)
