"""What kubelet says of itself at ``/configz``, and in ``cpu_manager_state``
(docs/reference/metrics.md 6.6).
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from koordlet.cluster.pods import amount
from koordlet.decision.facts import PodFacts
from koordlet.protocol import keys
from koordlet.protocol.annotations import parse_pod
from koordlet.protocol.cpuset import CPUSet, parse_cpulist
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.qos import QoSClass
from koordlet.protocol.resources import CPU

STATIC = "static"


class KubeletError(ValueError):
    """What kubelet says cannot be read; the text says what."""


class KubeletConfig(msgspec.Struct, frozen=True, rename="camel"):
    """The fields in use. Amounts are quantities as text."""

    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: dict[str, str] | None = None
    reserved_system_cpus: str = msgspec.field(default="", name="reservedSystemCPUs")
    kube_reserved: dict[str, str] | None = None
    system_reserved: dict[str, str] | None = None
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"

    @property
    def reserved_milli(self) -> int:
        """CPU that it keeps from pods: of the CPUs listed, else of both amounts together."""
        if cpus := self.reserved_cpus:
            return 1000 * len(cpus)
        both = (self.kube_reserved or {}, self.system_reserved or {})
        return sum(amount(each.get(CPU), CPU) or 0 for each in both)

    @property
    def reserved_cpus(self) -> CPUSet:
        """Those listed; empty where none are, or the list cannot be read."""
        try:
            return parse_cpulist(self.reserved_system_cpus)
        except ValueError:
            return frozenset()


class _Configz(msgspec.Struct, frozen=True):
    kubeletconfig: KubeletConfig


class PodCpus(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs that a pod has as a whole: some of its containers share what others leave of them."""

    cpu_set: str = ""


class CpuState(msgspec.Struct, frozen=True, rename="camel"):
    """``entries``: pod uid -> container -> its CPUs. ``pod_entries``: pod uid -> those of the pod
    as a whole (gate PodLevelResourceManagers, kubelet 1.36 and later). ``data``: the same state
    once more with all its fields, as JSON in a text, since kubelet 1.37: the fields beside it are
    those that older kubelets know."""

    policy_name: str = ""
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str]] | None = None
    pod_entries: dict[str, PodCpus] | None = None
    data: str = ""


class Allocation(NamedTuple):
    """CPUs that kubelet gave to a pod, or to its containers, for themselves. ``pod``: None while
    nobody else knows it."""

    uid: str
    cpus: CPUSet
    pod: PodFacts | None


def read_configz(data: bytes) -> KubeletConfig:
    """Raises KubeletError."""
    try:
        return msgspec.json.decode(data, type=_Configz).kubeletconfig
    except UNREADABLE as error:
        raise KubeletError(f"/configz: {error}") from None


def read_cpu_state(data: bytes) -> CpuState:
    """An empty file is one that kubelet is about to write. Raises KubeletError."""
    if not data.strip():
        return CpuState()
    try:
        state = msgspec.json.decode(data, type=CpuState)
        return msgspec.json.decode(state.data, type=CpuState) if state.data else state
    except UNREADABLE as error:
        raise KubeletError(f"cpu_manager_state: {error}") from None


def allocations(state: CpuState, pods: Iterable[PodFacts]) -> tuple[Allocation, ...]:
    """By uid, without pods whose CPUs Koordinator manages: those labelled LS or BE, and those with
    CPUs in their ``resource-status``. Raises KubeletError."""
    known = {pod.uid: pod for pod in pods}
    texts = {uid: [*containers.values()] for uid, containers in (state.entries or {}).items()}
    for uid, whole in (state.pod_entries or {}).items():
        texts.setdefault(uid, []).append(whole.cpu_set)
    found = []
    for uid, of in sorted(texts.items()):
        pod = known.get(uid)
        if pod is None or not is_managed(pod):
            cpus = frozenset[int]().union(*map(_cpus, of))
            if cpus:
                found.append(Allocation(uid, cpus, pod))
    return tuple(found)


def is_managed(pod: PodFacts) -> bool:
    """Whether Koordinator decides on its CPUs."""
    annotations = pod.annotations or {}
    kept = {name: text for name, text in annotations.items() if name == keys.RESOURCE_STATUS.name}
    read = parse_pod(pod.labels or {}, kept)
    if read.qos in (QoSClass.LS, QoSClass.BE):
        return True
    return read.resource_status is not None and bool(read.resource_status.cpuset)


def _cpus(text: str) -> CPUSet:
    try:
        return parse_cpulist(text)
    except ValueError as error:
        raise KubeletError(f"cpu_manager_state: {text[:80]!r}: {error}") from None
