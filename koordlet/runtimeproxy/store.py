"""The pods and containers the proxy knows, in the words of the hook API
(docs/reference/hooks.md 4.7)."""

from __future__ import annotations

from dataclasses import dataclass, field

from koordlet.wire.pb import hook_pb2 as hook


class UnknownError(Exception):
    """The store does not know this pod or container."""

    def __init__(self, kind: str, id_: str) -> None:
        super().__init__(f"{kind} {id_}")
        self.kind = kind
        self.id = id_


@dataclass(slots=True)
class Pod:
    """``stopped``: its hooks have been told, and kubelet stops it again and again."""

    facts: hook.PodSandboxHookRequest
    stopped: bool = False


@dataclass(slots=True)
class Container:
    """``facts`` without the fields of the pod; its resources are what kubelet asked for, before
    any hook, so that a hook never sees its own result as the wish of kubelet."""

    pod_id: str
    facts: hook.ContainerResourceHookRequest
    stopped: bool = False


@dataclass
class Store:
    """By sandbox id and by container id."""

    pods: dict[str, Pod] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)

    def pod(self, id_: str) -> Pod:
        """Raises UnknownError."""
        try:
            return self.pods[id_]
        except KeyError:
            raise UnknownError("pod", id_) from None

    def container(self, id_: str) -> Container:
        """Raises UnknownError."""
        try:
            return self.containers[id_]
        except KeyError:
            raise UnknownError("container", id_) from None

    def drop_pod(self, id_: str) -> None:
        """With its containers: a runtime removes them too."""
        self.pods.pop(id_, None)
        for container_id in [c for c, found in self.containers.items() if found.pod_id == id_]:
            del self.containers[container_id]

    def of_container(self, container: Container) -> hook.ContainerResourceHookRequest:
        """The hook request for it, with the fields of its pod. Raises UnknownError."""
        found = hook.ContainerResourceHookRequest()
        found.CopyFrom(container.facts)
        add_pod(found, self.pod(container.pod_id).facts)
        return found


def add_pod(
    request: hook.ContainerResourceHookRequest, pod: hook.PodSandboxHookRequest
) -> hook.ContainerResourceHookRequest:
    request.pod_meta.CopyFrom(pod.pod_meta)
    request.pod_labels.MergeFrom(pod.labels)
    request.pod_annotations.MergeFrom(pod.annotations)
    request.pod_cgroup_parent = pod.cgroup_parent
    if pod.HasField("resources"):
        request.pod_resources.CopyFrom(pod.resources)
    return request
