"""The intercepted methods of CRI: one table (docs/reference/hooks.md 4.2, 4.3, 4.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from koordlet.decision.strategy import Stage
from koordlet.runtimeproxy import facts, merge
from koordlet.runtimeproxy.store import Container, Pod, Store, add_pod
from koordlet.wire.pb import cri_pb2 as cri

SERVICE: Final = "/runtime.v1.RuntimeService/"

CRI: Final = frozenset(
    f"/{service.full_name}/{method.name}"
    for service in cri.DESCRIPTOR.services_by_name.values()
    for method in service.methods
)
"""Paths of all methods, of images too."""

# Messages are Any: what protobuf generates has no types.
Message = Any


def _no_wish(request: Message) -> None:
    return None


@dataclass(frozen=True)
class Method:
    """``about``: the hook request, from the CRI request and the store; raises UnknownError. None
    when the hooks need not hear of this call (again). ``wish``: the resources in a request, which
    hooks may change. ``merge``: the hook's answer into the request; whether anything changed.
    ``keep``: after success: store, the wish before the merge, what was sent, the response."""

    request: Message
    response: Message
    about: Callable[[Message, Store], Message | None]
    keep: Callable[[Store, Message, Message, Message], None]
    pre: Stage | None = None
    post: Stage | None = None
    wish: Callable[[Message], Message] = _no_wish
    merge: Callable[[Message, Message, Message], bool] = merge.nothing


def _about_new_pod(request: Message, store: Store) -> Message:
    return facts.pod_of(request)


def _about_pod(request: Message, store: Store) -> Message | None:
    pod = store.pod(request.pod_sandbox_id)
    return None if pod.stopped else facts.copy(pod.facts)


def _about_pod_update(request: Message, store: Store) -> Message:
    found = facts.copy(store.pod(request.pod_sandbox_id).facts)
    if request.HasField("resources"):
        facts.copy_resources(found.resources, request.resources)
    return found


def _about_new_container(request: Message, store: Store) -> Message:
    found = facts.container_of(request.config)
    add_pod(found, store.pod(request.pod_sandbox_id).facts)
    # What kubelet says now counts more than what a restarted proxy could learn.
    if request.sandbox_config.linux.cgroup_parent:
        found.pod_cgroup_parent = request.sandbox_config.linux.cgroup_parent
    return found


def _about_container(request: Message, store: Store) -> Message | None:
    container = store.container(request.container_id)
    return None if container.stopped else store.of_container(container)


def _about_update(request: Message, store: Store) -> Message:
    found = store.of_container(store.container(request.container_id))
    facts.merge_update(found.container_resources, request.linux)
    found.container_annotations.MergeFrom(request.annotations)
    return found


def _about_nothing(request: Message, store: Store) -> None:
    return None


def _keep_pod(store: Store, wish: Message, sent: Message, response: Message) -> None:
    if response.pod_sandbox_id:
        store.pods[response.pod_sandbox_id] = Pod(facts.pod_of(sent))


def _keep_container(store: Store, wish: Message, sent: Message, response: Message) -> None:
    if response.container_id:
        kept = facts.container_of(sent.config)
        kept.container_meta.id = response.container_id
        facts.copy_resources(kept.container_resources, wish)
        store.containers[response.container_id] = Container(sent.pod_sandbox_id, kept)


def _keep_update(store: Store, wish: Message, sent: Message, response: Message) -> None:
    container = store.containers.get(sent.container_id)
    if container is not None:
        facts.merge_update(container.facts.container_resources, wish)
        container.facts.container_annotations.MergeFrom(sent.annotations)


def _keep_pod_update(store: Store, wish: Message, sent: Message, response: Message) -> None:
    pod = store.pods.get(sent.pod_sandbox_id)
    if pod is not None:
        for name in ("overhead", "resources"):
            if sent.HasField(name):
                facts.copy_resources(getattr(pod.facts, name), getattr(sent, name))


def _keep_stopped_pod(store: Store, wish: Message, sent: Message, response: Message) -> None:
    pod = store.pods.get(sent.pod_sandbox_id)
    if pod is not None:
        pod.stopped = True


def _keep_stopped(store: Store, wish: Message, sent: Message, response: Message) -> None:
    container = store.containers.get(sent.container_id)
    if container is not None:
        container.stopped = True


def _drop_pod(store: Store, wish: Message, sent: Message, response: Message) -> None:
    store.drop_pod(sent.pod_sandbox_id)


def _drop_container(store: Store, wish: Message, sent: Message, response: Message) -> None:
    store.containers.pop(sent.container_id, None)


def _keep_nothing(store: Store, wish: Message, sent: Message, response: Message) -> None:
    return None


METHODS: Mapping[str, Method] = {
    SERVICE + name: method
    for name, method in {
        "RunPodSandbox": Method(
            cri.RunPodSandboxRequest,
            cri.RunPodSandboxResponse,
            _about_new_pod,
            _keep_pod,
            pre=Stage.RUN_POD_SANDBOX,
            merge=merge.into_pod,
        ),
        "StopPodSandbox": Method(
            cri.StopPodSandboxRequest,
            cri.StopPodSandboxResponse,
            _about_pod,
            _keep_stopped_pod,
            post=Stage.STOP_POD_SANDBOX,
        ),
        "RemovePodSandbox": Method(
            cri.RemovePodSandboxRequest, cri.RemovePodSandboxResponse, _about_nothing, _drop_pod
        ),
        "UpdatePodSandboxResources": Method(
            cri.UpdatePodSandboxResourcesRequest,
            cri.UpdatePodSandboxResourcesResponse,
            _about_pod_update,
            _keep_pod_update,
            pre=Stage.UPDATE_POD,
        ),
        "CreateContainer": Method(
            cri.CreateContainerRequest,
            cri.CreateContainerResponse,
            _about_new_container,
            _keep_container,
            pre=Stage.CREATE_CONTAINER,
            wish=lambda request: request.config.linux.resources,
            merge=merge.into_create,
        ),
        "StartContainer": Method(
            cri.StartContainerRequest,
            cri.StartContainerResponse,
            _about_container,
            _keep_nothing,
            pre=Stage.PRE_START_CONTAINER,
            post=Stage.POST_START_CONTAINER,
        ),
        "StopContainer": Method(
            cri.StopContainerRequest,
            cri.StopContainerResponse,
            _about_container,
            _keep_stopped,
            post=Stage.STOP_CONTAINER,
        ),
        "UpdateContainerResources": Method(
            cri.UpdateContainerResourcesRequest,
            cri.UpdateContainerResourcesResponse,
            _about_update,
            _keep_update,
            pre=Stage.UPDATE_CONTAINER,
            wish=lambda request: request.linux,
            merge=merge.into_update,
        ),
        "RemoveContainer": Method(
            cri.RemoveContainerRequest,
            cri.RemoveContainerResponse,
            _about_nothing,
            _drop_container,
        ),
    }.items()
}
