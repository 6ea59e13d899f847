"""What a hook changed, put into the CRI request (docs/reference/hooks.md 4.6).

A field is touched only where the answer differs from what the hook was asked with, so the request
keeps everything else, also what this code does not know. An answer that no runtime could take is
refused as a whole: it is the hook server's fault, and must not become the pod's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, Final

from koordlet.protocol.cpuset import parse_cpulist
from koordlet.wire.pb import cri_pb2 as cri
from koordlet.wire.pb import hook_pb2 as hook

_MAX_ENV_BYTES: Final = 128 << 10  # MAX_ARG_STRLEN: execve(2) refuses a longer string


class BadAnswerError(Exception):
    """The text names the field of the hook response and what is wrong with it."""


def _positive(value: int) -> bool:
    return value > 0


def _not_zero(value: int) -> bool:
    return value != 0


def _always(value: object) -> bool:
    return True


def _cpu_list(value: str) -> bool:
    try:
        parse_cpulist(value)
    except ValueError:
        return False
    return True


# Field of LinuxContainerResources -> (whether an answer counts, whether a runtime can take it).
# The ranges are the kernel's (Documentation/scheduler/sched-bwc.rst, cgroup-v1/cpusets.rst);
# unlimited is -1.
_RESOURCES: Mapping[str, tuple[Callable[[Any], bool], Callable[[Any], bool]]] = {
    "cpu_period": (_positive, lambda us: 1000 <= us <= 1_000_000),
    "cpu_quota": (_not_zero, lambda us: us == -1 or us >= 1000),
    "cpu_shares": (_positive, lambda shares: 2 <= shares <= 262_144),
    "memory_limit_in_bytes": (_not_zero, lambda size: size >= -1),
    "memory_swap_limit_in_bytes": (_positive, _always),
    "oom_score_adj": (_always, lambda score: -1000 <= score <= 1000),
    "cpuset_cpus": (_always, _cpu_list),
    "cpuset_mems": (_always, _cpu_list),
}


def into_pod(
    request: cri.RunPodSandboxRequest,
    asked: hook.PodSandboxHookRequest,
    answer: hook.PodSandboxHookResponse,
) -> bool:
    """Whether anything changed. Raises BadAnswerError; the request may be half changed then."""
    config = request.config
    changed = _union(config.labels, asked.labels, answer.labels)
    changed |= _union(config.annotations, asked.annotations, answer.annotations)
    changed |= _parent(config, asked.cgroup_parent, answer.cgroup_parent, "cgroup_parent")
    return changed


def into_create(
    request: cri.CreateContainerRequest,
    asked: hook.ContainerResourceHookRequest,
    answer: hook.ContainerResourceHookResponse,
) -> bool:
    """As ``into_pod``."""
    config = request.config
    changed = _union(config.annotations, asked.container_annotations, answer.container_annotations)
    changed |= _resources(lambda: config.linux.resources, asked.container_resources, answer)
    changed |= _envs(config.envs, asked.container_envs, answer.container_envs)
    changed |= _parent(
        request.sandbox_config,
        asked.pod_cgroup_parent,
        answer.pod_cgroup_parent,
        "pod_cgroup_parent",
    )
    return changed


def into_update(
    request: cri.UpdateContainerResourcesRequest,
    asked: hook.ContainerResourceHookRequest,
    answer: hook.ContainerResourceHookResponse,
) -> bool:
    """As ``into_pod``."""
    changed = _union(request.annotations, asked.container_annotations, answer.container_annotations)
    changed |= _resources(lambda: request.linux, asked.container_resources, answer)
    return changed


def nothing(request: object, asked: object, answer: object) -> bool:
    return False


def _union(
    into: MutableMapping[str, str], asked: Mapping[str, str], answer: Mapping[str, str]
) -> bool:
    changed = _differing(asked, answer)
    if changed:
        into.update(changed)
    return bool(changed)


def _differing(asked: Mapping[str, str], answer: Mapping[str, str]) -> dict[str, str]:
    # Of a map of protobuf, items() takes twice as long.
    return {key: value for key in answer if asked.get(key) != (value := answer[key])}


def _parent(config: cri.PodSandboxConfig, asked: str, answer: str, field: str) -> bool:
    if not answer or answer == asked or answer == config.linux.cgroup_parent:
        return False
    if "\0" in answer or ".." in answer.split("/"):
        raise BadAnswerError(f"{field}: {answer!r} is no path of a cgroup")
    config.linux.cgroup_parent = answer
    return True


def _resources(
    place: Callable[[], cri.LinuxContainerResources],
    asked: hook.LinuxContainerResources,
    answer: hook.ContainerResourceHookResponse,
) -> bool:
    """``place`` makes the message where it is absent, so it is called for a change alone."""
    given = answer.container_resources
    if not given.ByteSize() or given == asked:  # absent, or empty: it says nothing
        return False
    changed = {}
    for name, (counts, valid) in _RESOURCES.items():
        value = getattr(given, name)
        if value != getattr(asked, name) and counts(value):
            if not valid(value):
                raise BadAnswerError(f"container_resources.{name}: {value!r} is out of range")
            changed[name] = value
    unified = _differing(asked.unified, given.unified)
    for key in unified:
        if not key or "/" in key or "\0" in key:
            raise BadAnswerError(f"container_resources.unified: {key!r} is no file of a cgroup")
    if not changed and not unified:
        return False
    resources = place()
    for name, value in changed.items():
        setattr(resources, name, value)
    if unified:
        resources.unified.update(unified)
    return True


def _envs(envs: Any, asked: Mapping[str, str], answer: Mapping[str, str]) -> bool:
    """Order and doubles stay. A changed variable is rewritten where it counts, at its last
    place; a new one is appended."""
    changed = _differing(asked, answer)
    if not changed:
        return False
    for key, value in changed.items():
        if not key or "=" in key or "\0" in key + value:
            raise BadAnswerError(f"container_envs: {key!r} is no environment variable")
        if len(key.encode()) + len(value.encode()) + 2 > _MAX_ENV_BYTES:
            raise BadAnswerError(f"container_envs: {key!r} is above {_MAX_ENV_BYTES} bytes")
    last = {env.key: env for env in envs}
    for key, value in changed.items():
        if key in last:
            last[key].value = value.encode()
        else:
            envs.add(key=key, value=value.encode())
    return True
