"""What a container runtime's lists tell of pods (docs/reference/wire.md 3). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from koordlet.decision import given
from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.given import Given
from koordlet.protocol.annotations import received
from koordlet.protocol.document import UNREADABLE
from koordlet.state.runtimes import container_cgroup, pod_cgroup

NOTHING: Mapping[str, Given | None] = {}
READY = 0  # PodSandboxState
_EXITED = 2  # ContainerState
_NODE = 2  # NamespaceMode
_PHASES = {READY: "Running"}
_ENDED = "NotReady"
_SCHEMES = frozenset({"containerd", "cri-o", "docker"})


class Details(msgspec.Struct, frozen=True):
    """What ``PodSandboxStatus`` adds to the list about a sandbox; None: nothing."""

    cgroup: str | None = None
    host_network: bool | None = None
    ips: tuple[str, ...] | None = None


class _Linux(msgspec.Struct):
    cgroup_parent: str | None = None


class _Process(msgspec.Struct):
    env: list[str] = []


class _Device(msgspec.Struct):
    path: str = ""
    major: int = 0
    minor: int = 0


class _Mount(msgspec.Struct):
    source: str = ""
    destination: str = ""


class _ContainerLinux(msgspec.Struct):
    devices: list[_Device] | None = None


class _ContainerSpec(msgspec.Struct):
    process: _Process
    linux: _ContainerLinux = msgspec.field(default_factory=_ContainerLinux)
    mounts: list[_Mount] | None = None


class _ContainerInfo(msgspec.Struct):
    """The OCI spec in the verbose answer about a container, of containerd and CRI-O."""

    runtime_spec: _ContainerSpec = msgspec.field(name="runtimeSpec")


class _Config(msgspec.Struct):
    linux: _Linux | None = None


class _Annotations(msgspec.Struct):
    cgroup_parent: str | None = msgspec.field(name="io.kubernetes.cri-o.CgroupParent", default=None)


class _RuntimeSpec(msgspec.Struct):
    annotations: _Annotations | None = None


class _Info(msgspec.Struct):
    """From the verbose answer: containerd has the sandbox's config in it, CRI-O annotations of its
    own in the OCI spec."""

    config: _Config | None = None
    runtime_spec: _RuntimeSpec | None = msgspec.field(name="runtimeSpec", default=None)


_INFO = msgspec.json.Decoder(_Info)
_CONTAINER_INFO = msgspec.json.Decoder(_ContainerInfo)
_MAX_INFO_BYTES = 4 << 20


def details_of(response: Any) -> Details:
    """From a verbose ``PodSandboxStatusResponse``."""
    status = response.status
    network: bool | None = None
    if status.linux.namespaces.HasField("options"):
        network = status.linux.namespaces.options.network == _NODE
    ips = (status.network.ip, *(each.ip for each in status.network.additional_ips))
    return Details(_cgroup(response.info), network, tuple(ip for ip in ips if ip) or None)


def given_of(response: Any) -> Given | None:
    """From a verbose ``ContainerStatusResponse``; None where it does not say."""
    info = response.info.get("info", "")
    if not info or len(info) > _MAX_INFO_BYTES:
        return None
    try:
        spec = _CONTAINER_INFO.decode(info).runtime_spec
    except UNREADABLE:
        return None
    return Given(
        given.variables(spec.process.env),
        given.devices((each.path, each.major, each.minor) for each in spec.linux.devices or ()),
        given.mounts((each.source, each.destination) for each in spec.mounts or ()),
    )


def pods_of(
    sandboxes: Iterable[Any],
    containers: Iterable[Any],
    details: Mapping[str, Details],
    as_of: Mapping[str, float],
    runtime: str,
    givens: Mapping[str, Given | None] = NOTHING,
) -> tuple[PodFacts, ...]:
    """One for each uid: of its newest sandbox that is ready, else of the newest.

    ``details``, ``as_of``: by sandbox id. ``givens``: what is known of containers, by id.
    ``runtime``: as it calls itself. What has exited is left
    out.
    """
    chosen: dict[str, Any] = {}
    for sandbox in sandboxes:
        uid = sandbox.metadata.uid or sandbox.id
        other = chosen.get(uid)
        if other is None or _rank(sandbox) > _rank(other):
            chosen[uid] = sandbox
    members: dict[str, list[Any]] = {}
    for container in containers:
        if container.state != _EXITED:
            members.setdefault(container.pod_sandbox_id, []).append(container)
    return tuple(
        _pod(
            uid,
            sandbox,
            members.get(sandbox.id, ()),
            details.get(sandbox.id, Details()),
            as_of.get(sandbox.id),
            runtime,
            givens,
        )
        for uid, sandbox in chosen.items()
    )


def _rank(sandbox: Any) -> tuple[bool, int]:
    return sandbox.state == READY, sandbox.created_at


def _pod(
    uid: str,
    sandbox: Any,
    members: Sequence[Any],
    details: Details,
    as_of: float | None,
    runtime: str,
    givens: Mapping[str, Given | None],
) -> PodFacts:
    ready = sandbox.state == READY
    facts = [_container(sandbox.id, None, details, runtime)] if ready else []
    # A runtime lists in any order; unchanged facts must stay equal.
    facts += [
        _container(each.id, each.metadata.name, details, runtime, givens.get(each.id))
        for each in sorted(members, key=lambda member: member.id)
    ]
    return PodFacts(
        uid=uid,
        cgroup=details.cgroup,
        name=sandbox.metadata.name or None,
        namespace=sandbox.metadata.namespace or None,
        phase=_PHASES.get(sandbox.state, _ENDED),
        labels=received(sandbox.labels),
        annotations=received(sandbox.annotations),
        host_network=details.host_network,
        ips=details.ips,
        runtime_handler=sandbox.runtime_handler or None,
        as_of=as_of,
        containers=tuple(facts),
    )


def _container(
    identity: str,
    name: str | None,
    details: Details,
    runtime: str,
    found: Given | None = None,
) -> ContainerFacts:
    """``name`` None: the sandbox itself."""
    is_sandbox = name is None
    full = f"{runtime}://{identity}" if runtime in _SCHEMES else identity
    cgroup = None
    if details.cgroup is not None:
        cgroup = container_cgroup(details.cgroup, full, is_sandbox=is_sandbox)
    return ContainerFacts(
        id=full, cgroup=cgroup, name=name or None, is_sandbox=is_sandbox, given=found
    )


def _cgroup(info: Mapping[str, str]) -> str | None:
    """None where the runtime does not say, or what it says is no path: the cgroup tree knows."""
    try:
        found = _INFO.decode(info.get("info", "{}"))
        if found.config is not None and found.config.linux is not None:
            return pod_cgroup(found.config.linux.cgroup_parent or "")
        if found.runtime_spec is not None and found.runtime_spec.annotations is not None:
            return pod_cgroup(found.runtime_spec.annotations.cgroup_parent or "")
    except (*UNREADABLE, ValueError):
        pass
    return None
