"""How a gang is declared
(docs/reference/central.md 3.2): by its pods, by a PodGroup, or by Kubernetes' own
PodGroup of ``spec.schedulingGroup``. All three become a `Gang`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, check_range, read_args
from koord_scheduler.model.texts import whole_number
from koordlet.protocol import keys
from koordlet.protocol.document import UNREADABLE
from koordlet.protocol.duration import parse_duration
from koordlet.protocol.errors import ProtocolError

NAME = "Coscheduling"
PREFIX = "gang.scheduling.koordinator.sh/"
MIN_AVAILABLE = f"{PREFIX}min-available"
TOTAL_NUMBER = f"{PREFIX}total-number"
MODE = f"{PREFIX}mode"
MATCH_POLICY = f"{PREFIX}match-policy"
MATCH_POLICY_ALIAS = "pod-group.scheduling.sigs.k8s.io/match-policy"
WAITING_TIME = f"{PREFIX}waiting-time"
GROUPS = f"{PREFIX}groups"
TOPOLOGY_SPEC = f"{PREFIX}network-topology-spec"
BIND_GROUP = "internal.scheduling.koordinator.sh/bind-gang-group-id"
BIND_COUNT = "internal.scheduling.koordinator.sh/bind-gang-member-count"
OLD_BIND_GROUP = "scheduling.koordinator.sh/bind-gang-group-id"
OLD_BIND_COUNT = "scheduling.koordinator.sh/bind-gang-member-count"

_MOST_COUNT = 1 << 20
_MOST_GROUPS = 64
_MOST_CHARACTERS = 16_384
_MOST_WAIT_S = 10 * 365 * 86_400.0
_GO_SIGN = ("-", "+")


class Policy(StrEnum):
    """Which members count towards the minimum."""

    ONLY_WAITING = "only-waiting"
    WAITING_AND_RUNNING = "waiting-and-running"
    ONCE_SATISFIED = "once-satisfied"


class Source(StrEnum):
    """``gangFrom`` of the summary; CORE is ours."""

    PODS = "GangFromPodAnnotation"
    POD_GROUP = "GangFromPodGroupCrd"
    CORE = "GangFromCorePodGroup"


class CoschedulingArgs(Args, frozen=True, kw_only=True):
    """``controllerWorkers`` and ``skipCheckScheduleCycle`` are accepted and have no effect."""

    default_timeout: str = "600s"
    controller_workers: int = 1
    enable_preemption: bool = False
    aware_network_topology: bool = False
    default_match_policy: Policy = Policy.ONCE_SATISFIED
    skip_check_schedule_cycle: bool = False

    @property
    def default_timeout_s(self) -> float:
        """600 where the argument is 0."""
        return _wait_s(self.default_timeout, 600.0)


def coscheduling_args(args: Mapping[str, Any]) -> CoschedulingArgs:
    """Raises ArgumentError."""
    found = read_args(NAME, CoschedulingArgs, args)
    check_range(NAME, "controllerWorkers", found.controller_workers, 1, None)
    try:
        parse_duration(found.default_timeout)
    except ProtocolError as error:
        raise ArgumentError(f"{NAME}: defaultTimeout: {error}") from None
    return found


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """``id`` is ``namespace/name``. ``minimum`` 0: the pods need not wait for each other.
    ``groups``: sorted ids of the gangs that are placed together, this one among them.
    ``topology``: text of ``network-topology-spec``, empty without one. ``refused``: why this
    scheduler cannot place it as it asks."""

    id: str
    minimum: int
    total: int
    strict: bool = True
    policy: Policy = Policy.ONCE_SATISFIED
    wait_s: float = 600.0
    groups: tuple[str, ...]
    topology: str = ""
    source: Source = Source.PODS
    created_s: float = 0.0
    refused: str = ""

    @property
    def group(self) -> str:
        return ",".join(self.groups)


def from_pod(
    gang: str,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    created_s: float,
    args: CoschedulingArgs,
) -> Gang | None:
    """What a pod says of its gang; None where it says no usable minimum, or where its label leaves
    that to a PodGroup."""
    if labels.get(keys.POD_GROUP.name):
        return None
    text = labels.get(keys.POD_GROUP_MIN_AVAILABLE.name) or annotations.get(MIN_AVAILABLE, "")
    minimum = _count(text)
    if minimum is None or minimum < 0:
        return None
    return _gang(
        gang,
        minimum,
        {**labels, **annotations},
        created_s,
        args,
        Source.PODS,
        _wait_s(annotations.get(WAITING_TIME, ""), args.default_timeout_s),
    )


def from_pod_group(
    gang: str,
    minimum: int,
    timeout_s: int | None,
    annotations: Mapping[str, str],
    created_s: float,
    args: CoschedulingArgs,
) -> Gang:
    """Of a PodGroup (scheduling.sigs.k8s.io). ``timeout_s``: ``scheduleTimeoutSeconds``."""
    wait_s = float(timeout_s) if timeout_s and timeout_s > 0 else args.default_timeout_s
    least = min(max(minimum, 0), _MOST_COUNT)
    return _gang(
        gang, least, annotations, created_s, args, Source.POD_GROUP, min(wait_s, _MOST_WAIT_S)
    )


def from_core(
    gang: str, minimum: int | None, created_s: float, args: CoschedulingArgs, refused: str = ""
) -> Gang:
    """Of Kubernetes' own PodGroup (scheduling.k8s.io, KEP-4671): a strict gang in which running
    members count. ``minimum`` None: its policy is ``basic``, so that pods wait for nobody."""
    least = min(max(minimum or 0, 0), _MOST_COUNT)
    return Gang(
        id=gang,
        minimum=least,
        total=least,
        policy=Policy.WAITING_AND_RUNNING,
        wait_s=args.default_timeout_s,
        groups=(gang,),
        source=Source.CORE,
        created_s=created_s,
        refused=refused,
    )


def _gang(
    gang: str,
    minimum: int,
    said: Mapping[str, str],
    created_s: float,
    args: CoschedulingArgs,
    source: Source,
    wait_s: float,
) -> Gang:
    total = _count(said.get(TOTAL_NUMBER, "")) or 0
    policy = said.get(MATCH_POLICY) or said.get(MATCH_POLICY_ALIAS, "")
    topology = said.get(TOPOLOGY_SPEC, "")
    return Gang(
        id=gang,
        minimum=minimum,
        total=max(total, minimum),
        strict=said.get(MODE) != "NonStrict",
        policy=Policy(policy) if policy in set(Policy) else args.default_match_policy,
        wait_s=wait_s,
        groups=_groups(gang, said.get(GROUPS, "")),
        topology=topology if len(topology) <= _MOST_CHARACTERS else "",
        source=source,
        created_s=created_s,
    )


def _groups(gang: str, text: str) -> tuple[str, ...]:
    """A gang that its own list leaves out belongs to it all the same: it waits for the others."""
    if not text or len(text) > _MOST_CHARACTERS:
        return (gang,)
    try:
        found = msgspec.json.decode(text.encode(), type=list[str])
    except UNREADABLE:
        return (gang,)
    if len(found) > _MOST_GROUPS:
        return (gang,)
    return tuple(sorted({gang, *filter(None, found)}))


def _count(text: str) -> int | None:
    found = whole_number(text.strip(), 11)
    return None if found is None else min(found, _MOST_COUNT)


def _wait_s(text: str, default_s: float) -> float:
    """0, a negative or a bad duration gives the default."""
    if not text or text.startswith(_GO_SIGN):
        return default_s
    try:
        return min(parse_duration(text), _MOST_WAIT_S) or default_s
    except ProtocolError:
        return default_s
