"""What NRI tells about pods and containers, in the words of the decisions
(docs/reference/hooks.md 3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koordlet.decision import given
from koordlet.decision.facts import ContainerFacts, PodFacts, asked_for_pod
from koordlet.decision.given import Given
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.kubepods import classify
from koordlet.nri import fields

UID_LABEL = "io.kubernetes.pod.uid"
_SCHEMES = frozenset({"containerd", "cri-o"})
"""Names of runtimes that are the scheme of their container ids as well."""
_SLICE = ".slice"
_DEFAULT_SLICE = "system.slice"
"""Where runc puts a scope for which no slice is named."""


def pod_uid(pod: Any) -> str:
    """Empty when the runtime does not tell."""
    uid: str = pod.uid or pod.labels.get(UID_LABEL, "")
    return uid


def pod_facts(pod: Any, runtime: str, containers: tuple[ContainerFacts, ...] = ()) -> PodFacts:
    """``pod``: ``PodSandbox``. Its own container, the sandbox, comes before ``containers``.

    Labels and annotations are those of the sandbox's creation, told again each time: when they
    were told first is for whoever remembers (``as_of`` stays open).
    """
    cgroup = parent_cgroup(pod.linux.cgroup_parent)
    namespaces = pod.linux.namespaces
    return PodFacts(
        uid=pod_uid(pod),
        cgroup=cgroup,
        kube_qos=classify(cgroup) if cgroup is not None else None,
        name=pod.name or None,
        namespace=pod.namespace or None,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        requested=requested_of_pod(pod.linux.pod_resources, pod.linux.pod_overhead),
        # A pod on the host's network is the one without a namespace of that type.
        host_network=all(each.type != "network" for each in namespaces) if namespaces else None,
        ips=tuple(pod.ips) or None,
        runtime_handler=pod.runtime_handler,
        containers=(_sandbox(pod, runtime), *containers) if pod.id else containers,
    )


def requested_of_pod(resources: Any, overhead: Any) -> Mapping[Resource, Value] | None:
    """``resources``, ``overhead``: ``LinuxResources``."""
    return asked_for_pod(fields.requested_of(resources), fields.requested_of(overhead))


def container_facts(
    container: Any,
    runtime: str,
    requested: Mapping[Resource, Value] | None,
    *,
    created: bool = True,
) -> ContainerFacts:
    """``created``: it has what it was created with."""
    return ContainerFacts(
        id=container_id(container.id, runtime),
        cgroup=container_cgroup(container.linux.cgroups_path),
        name=container.name or None,
        is_sandbox=False,
        requested=requested,
        given=_given(container) if created else None,
    )


def _given(container: Any) -> Given:
    return Given(
        given.variables(container.env),
        given.devices((each.path, each.major, each.minor) for each in container.linux.devices),
        given.mounts((each.source, each.destination) for each in container.mounts),
    )


def container_id(bare: str, runtime: str) -> str:
    """``runtime``: as the runtime calls itself."""
    return f"{runtime}://{bare}" if runtime in _SCHEMES else bare


def parent_cgroup(text: str) -> str | None:
    """kubelet's full path, or the last slice alone, as CRI-O may pass it. None: not told, or no
    cgroup that a pod could have."""
    if "/" not in text and text.endswith(_SLICE):
        return expand_slice(text)
    return _relative(text)


def container_cgroup(text: str) -> str | None:
    """A path, or runc's ``<slice>:<prefix>:<name>`` for a scope of systemd."""
    parts = text.split(":")
    if len(parts) != 3:
        return _relative(text)
    slice_name, prefix, name = parts
    parent = expand_slice(slice_name or _DEFAULT_SLICE)
    scope = (
        name if name.endswith(_SLICE) else f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
    )
    return f"{parent}/{scope}" if parent and name and "/" not in scope else None


def expand_slice(name: str) -> str | None:
    """``a-b.slice`` -> ``a.slice/a-b.slice`` (systemd.slice(5)); None for what is no slice's name,
    and for the root slice."""
    stem = name.removesuffix(_SLICE)
    parts = stem.split("-")
    if stem == name or "/" in name or not all(parts):
        return None
    return "/".join("-".join(parts[: depth + 1]) + _SLICE for depth in range(len(parts)))


def _relative(path: str) -> str | None:
    """Without slashes at its ends; None for the root, and for a path that could leave it."""
    parts = path.strip("/").split("/")
    return "/".join(parts) if all(part not in ("", ".", "..") for part in parts) else None


def _sandbox(pod: Any, runtime: str) -> ContainerFacts:
    return ContainerFacts(
        id=container_id(pod.id, runtime),
        cgroup=container_cgroup(pod.linux.cgroups_path),
        is_sandbox=True,
    )
