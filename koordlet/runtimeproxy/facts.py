"""Hook requests out of CRI requests (docs/reference/hooks.md 4.6)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook

_TAKEN_IF_POSITIVE = (
    "cpu_period",
    "cpu_shares",
    "memory_swap_limit_in_bytes",
)
_TAKEN_IF_SET = ("cpu_quota", "memory_limit_in_bytes", "cpuset_cpus", "cpuset_mems")


def pod_of(request: cri.RunPodSandboxRequest) -> hook.PodSandboxHookRequest:
    config = request.config
    found = hook.PodSandboxHookRequest(
        runtime_handler=request.runtime_handler, cgroup_parent=config.linux.cgroup_parent
    )
    found.labels.MergeFrom(config.labels)
    found.annotations.MergeFrom(config.annotations)
    meta = config.metadata
    found.pod_meta.name, found.pod_meta.uid = meta.name, meta.uid
    found.pod_meta.namespace, found.pod_meta.attempt = meta.namespace, meta.attempt
    for name in ("overhead", "resources"):
        if config.linux.HasField(name):
            copy_resources(getattr(found, name), getattr(config.linux, name))
    return found


def container_of(config: cri.ContainerConfig) -> hook.ContainerResourceHookRequest:
    """Without the fields of its pod."""
    found = hook.ContainerResourceHookRequest(container_envs=envs_of(config.envs))
    found.container_annotations.MergeFrom(config.annotations)
    found.container_meta.name = config.metadata.name
    found.container_meta.attempt = config.metadata.attempt
    copy_resources(found.container_resources, config.linux.resources)
    return found


def envs_of(envs: Collection[cri.KeyValue]) -> dict[str, str]:
    """As a map: of a name that comes twice the last, as in the process. Values that are no text
    cannot be shown to a hook."""
    try:
        return {env.key: env.value.decode() for env in envs}
    except UnicodeDecodeError:
        pass
    found = {}
    for env in envs:
        try:
            found[env.key] = env.value.decode()
        except UnicodeDecodeError:
            found.pop(env.key, None)
    return found


def copy(message: Any) -> Any:
    found = type(message)()
    found.CopyFrom(message)
    return found


def copy_resources(
    into: hook.LinuxContainerResources, resources: cri.LinuxContainerResources
) -> None:
    """The two messages have the same numbers and types."""
    into.ParseFromString(resources.SerializeToString())
    into.DiscardUnknownFields()
    into.SetInParent()


def merge_update(into: hook.LinuxContainerResources, update: cri.LinuxContainerResources) -> None:
    """What kubelet's update changes in what it asked for before: zero and empty mean "leave"."""
    for name in _TAKEN_IF_POSITIVE:
        if getattr(update, name) > 0:
            setattr(into, name, getattr(update, name))
    for name in _TAKEN_IF_SET:
        if getattr(update, name):
            setattr(into, name, getattr(update, name))
    into.unified.MergeFrom(update.unified)
    into.SetInParent()
