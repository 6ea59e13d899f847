"""What containers should have been created with and were not: found, reported, and, where the
configuration says so, ended.

A container that started while no hook could be asked is compared with what it should have, once
somebody tells what it has: NRI when it connects, the container runtime when it is asked, or, as a
last resort, the environment of its first process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
import structlog

from koordlet.admin.missed import MissedView
from koordlet.config.part_tables import options_in
from koordlet.config.schema import Config
from koordlet.decision import given
from koordlet.decision.family import Labels
from koordlet.decision.given import Given
from koordlet.decision.plan import Eviction, Plan, Victim, VictimKind
from koordlet.decision.record import Kind, Record
from koordlet.decision.snapshot import Container, Pod, Snapshot
from koordlet.decision.why import Input, Why
from koordlet.engine.parts import Parts
from koordlet.hooks import gpu
from koordlet.hooks.missed import Creation, Missed, missed
from koordlet.kernel.proc.environ import first_environment
from koordlet.protocol import keys
from koordlet.qos.evict.round import is_known
from koordlet.qos.evict.victims import candidate
from koordlet.report import metrics
from koordlet.state.merge import bare_id

FEATURE = "GPUEnvInject"
PROCESSES_AT_ONCE = 4
"""First processes looked at in one pass; each environment has up to some megabytes."""
TELL_AT_ONCE = 50
"""Records in one pass; the others come with the next ones."""
_PART = "missed adjustments"
_SPARED = "its class, label or annotation says that it may not be evicted"
SHOWN = 200
"""Characters of a value in a text."""

log = structlog.get_logger()

_Key = tuple[str, str, str]
"""Bare container id, kind, name."""


def objection(config: Config, snapshot: Snapshot, victim: Victim) -> str | None:
    """As ``evict_round.objection``, of an eviction for FEATURE."""
    table = options_in(config.hooks, gpu.HOOK)
    if not table.enable or table.on_missing != "evict":
        return "on_missing of the hook gpu-env is not evict any more"
    if not is_known(snapshot, victim):
        return None
    return "" if _lets(snapshot, victim) else _SPARED


def _lets(snapshot: Snapshot, victim: Victim) -> bool:
    """Whether the pod's class, label and annotation let it be ended; of one that has gone, yes."""
    found = candidate(snapshot, victim)
    if found is None:
        return True
    labels = next((pod.labels for pod in snapshot.pods if pod.uid == victim.name), {})
    says_no = labels.get(keys.EVICTION_ENABLED.name) == "false"
    return not says_no and (found.features is None or FEATURE in found.features)


class MissedAdjustment(msgspec.Struct, frozen=True):
    """``since``: unix seconds of when it was found."""

    pod: Pod
    container: Container
    missed: Missed
    since: float

    @property
    def text(self) -> str:
        each = self.missed
        has = "is not there" if each.has is None else f"is {shown(each.has)}"
        name = self.container.name or bare_id(self.container.id)
        needs = "" if each.kind == "env" else "; mounts and devices need NRI"
        more = "; it sees GPUs that are not its own" if each.exceeds else ""
        return (
            f"container {name} of {self.pod.title}: {each.kind} {each.name} {has}, it should be "
            f"{shown(each.wanted)}{more}. It cannot be changed while the container lives: restart "
            f"the pod{needs}"
        )


def missed_views(missed: MissedAdjustments) -> tuple[MissedView, ...]:
    return tuple(
        MissedView(
            pod=f"{each.pod.namespace}/{each.pod.name or each.pod.uid}",
            container=each.container.name or bare_id(each.container.id),
            kind=each.missed.kind,
            name=each.missed.name,
            wanted=each.missed.wanted,
            has=each.missed.has,
            exceeds=each.missed.exceeds,
        )
        for each in missed.found()
    )


def shown(value: str) -> str:
    return repr(value if len(value) <= SHOWN else f"{value[:SHOWN]}...")


class MissedAdjustments:
    """``take`` after each pass of the hooks. ``asked``: whether a runtime asks hooks now, so that
    a pod that is ended and made anew gets what it should have."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.asked: Callable[[], bool] = _by_nobody
        self._found: dict[_Key, MissedAdjustment] = {}
        self._untold: dict[_Key, None] = {}
        self._read: dict[str, Given] = {}
        """By bare id: what first processes said."""
        self._ended: set[str] = set()
        """Uids of pods that were ended for this."""
        self._spared: dict[str, str] = {}
        """Uid of a pod -> why it was not, as last reported."""

    def found(self) -> tuple[MissedAdjustment, ...]:
        return tuple(self._found.values())

    def given(self, container: Container) -> Given | None:
        return container.given or self._read.get(bare_id(container.id))

    def missed(self, container: Container, kind: str, name: str) -> bool:
        return (bare_id(container.id), kind, name) in self._found

    def take(
        self,
        creations: Mapping[str, Creation],
        plans: list[Plan],
        snapshot: Snapshot,
        config: Config,
    ) -> list[Plan]:
        """``plans`` of the hooks, in which a pod is ended that sees GPUs that are not its own,
        where the configuration says so: one at a time, each once. ``creations``: by id, what
        containers should have."""
        problems = self._parts.problems
        try:
            self._follow(creations, snapshot)
            found = self._ending(plans, snapshot, config)
        except Exception as error:  # the isolation boundary: hooks go on without this
            if _PART not in problems:
                log.exception("missed adjustments cannot be looked for")
            problems[_PART] = f"{type(error).__name__}: {error}"
            return plans
        problems.pop(_PART, None)
        return found

    def _follow(self, creations: Mapping[str, Creation], snapshot: Snapshot) -> None:
        """In observe mode nobody gets any of it on purpose, and nothing counts as missed."""
        observing = self._parts.observing
        concerned = list(_concerned(creations, snapshot)) if not observing else []
        self._look([container for _, container in concerned if self.given(container) is None])
        ids = {bare_id(container.id) for _, container in concerned}
        self._read = {key: each for key, each in self._read.items() if key in ids}
        before, self._found = self._found, {}
        for pod, container in concerned:
            has = self.given(container)
            for each in missed(creations[container.id], has) if has is not None else ():
                key = (bare_id(container.id), each.kind, each.name)
                old = before.get(key)
                since = old.since if old is not None else snapshot.time
                self._found[key] = MissedAdjustment(pod, container, each, since)
                if old is None:
                    self._untold[key] = None
        self._tell(snapshot)
        counts = Counter((each.missed.hook, each.missed.kind) for each in self._found.values())
        gauges: dict[Labels, float] = {key: float(n) for key, n in counts.items()}
        self._parts.metrics.replace(metrics.MISSED_ADJUSTMENTS, gauges)

    def _ending(self, plans: list[Plan], snapshot: Snapshot, config: Config) -> list[Plan]:
        uids = {pod.uid for pod in snapshot.pods} if self._ended or self._spared else set()
        self._ended &= uids
        self._spared = {uid: why for uid, why in self._spared.items() if uid in uids}
        found = list(plans)
        if options_in(config.hooks, gpu.HOOK).on_missing != "evict":
            return found
        for place, plan in enumerate(found):
            if plan.owner == gpu.NAME and (eviction := self._next(snapshot)) is not None:
                found[place] = msgspec.structs.replace(plan, evictions=(eviction,))
        return found

    def _next(self, snapshot: Snapshot) -> Eviction | None:
        for each in self._found.values():
            pod, victim = each.pod, Victim(VictimKind.POD, each.pod.uid)
            if not each.missed.exceeds or victim in snapshot.evicting.terminating:
                continue
            if spared := self._must_not_end(pod, snapshot):
                if self._spared.get(pod.uid) != spared:
                    self._spared[pod.uid] = spared
                    text = f"{pod.title} sees GPUs that are not its own, and is not ended: {spared}"
                    self._record(Why("gpu-env.not-ended", text), pod.cgroup, snapshot.time)
                continue
            self._ended.add(pod.uid)
            why = Why("gpu-env.ended", each.text, (Input(each.missed.name, each.missed.wanted),))
            return Eviction(victim, FEATURE, why)
        return None

    def _must_not_end(self, pod: Pod, snapshot: Snapshot) -> str:
        """Why; empty when it may be ended."""
        if pod.uid in self._ended:
            return "it was evicted once already, without effect"
        if not self.asked():
            return "no runtime asks koordlet at present: recreated, it would see them again"
        victim = Victim(VictimKind.POD, pod.uid)
        if candidate(snapshot, victim) is None or not _lets(snapshot, victim):
            return _SPARED
        return snapshot.evicting.failed.get(victim, "")

    def _look(self, unknown: Sequence[Container]) -> None:
        """Find out what these have, of the runtime or, where it does not tell, by themselves."""
        cri = self._parts.cri
        if not unknown or (cri is not None and cri.look_into([each.id for each in unknown])):
            return
        for container in unknown[:PROCESSES_AT_ONCE]:
            lines = first_environment(
                self._parts.host,
                self._parts.cgroups,
                container.cgroup,
                self._parts.config.paths.proc_root,
            )
            if lines is not None:
                self._read[bare_id(container.id)] = Given(given.variables(lines))

    def _tell(self, snapshot: Snapshot) -> None:
        for key in tuple(self._untold)[:TELL_AT_ONCE]:
            del self._untold[key]
            found = self._found.get(key)
            if found is None:
                continue
            each = found.missed
            self._parts.metrics.inc(metrics.MISSED_ADJUSTMENTS_FOUND, (each.hook, each.kind))
            why = Why(f"{each.hook}.missed", found.text, each.why.inputs)
            self._record(why, found.container.cgroup, snapshot.time)
            log.warning("adjustment missed", rule=why.rule, what=found.text)

    def _record(self, why: Why, cgroup: str, time: float) -> None:
        hook = why.rule.partition(".")[0]
        self._parts.tell(Record(time, Kind.NOTE, hook, why, cgroup=cgroup))


def _concerned(
    creations: Mapping[str, Creation], snapshot: Snapshot
) -> Iterator[tuple[Pod, Container]]:
    if creations:
        for pod in snapshot.pods:
            for container in pod.containers:
                if container.id in creations:
                    yield pod, container


def _by_nobody() -> bool:
    return False
