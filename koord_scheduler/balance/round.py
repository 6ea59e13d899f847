"""One round of the descheduler: what plugins may do, and who says no
(docs/reference/central.md 10.2).

Plugins decide on a frozen world; evictions that pass everything become requests, which the caller
carries out afterwards. What was requested counts at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from koord_scheduler.balance.selecting import nodes_selected
from koord_scheduler.balance.world import Resident, World
from koord_scheduler.model.cluster.nodes import Node
from koordlet.protocol.selector import LabelSelector

SUCCESS = "success"


class PluginError(Exception):
    """A plugin cannot do its work in this round; the text says why."""


class Request(NamedTuple):
    """A pod shall go. ``plugin`` asks for it, for ``reason``; ``evictor`` says how."""

    resident: Resident
    plugin: str
    reason: str
    evictor: str
    profile: str


class Refused(NamedTuple):
    resident: Resident
    plugin: str
    why: str


class Mark(NamedTuple):
    """A change of an object that evicts nobody: an annotation of a pod, or a cordon of a node."""

    pod: str = ""
    annotations: Mapping[str, str] = {}
    node: str = ""

    @property
    def cordon(self) -> bool:
        return bool(self.node)


class Filter(Protocol):
    """``refusal``: why a pod must not be evicted, None where it may. ``before``: the same for what
    is asked directly before the eviction (PreEvictionFilter)."""

    def refusal(self, world: World, resident: Resident) -> str | None: ...

    def before(self, world: World, resident: Resident) -> str | None: ...


class Evictor(Protocol):
    """``admit`` counts the eviction where it says None, else it says why not. ``dry_run``: it
    takes evictions and carries out none. ``reserves``: a pod gets room on another node first."""

    @property
    def name(self) -> str: ...
    @property
    def dry_run(self) -> bool: ...
    @property
    def reserves(self) -> bool: ...

    def admit(self, world: World, resident: Resident) -> str | None: ...


class Limits(NamedTuple):
    """Evictions in a round; None: no limit."""

    per_node: int | None = None
    per_namespace: int | None = None
    total: int | None = None


class Counts:
    """Evictions of this round, of all profiles."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.per_node: Counter[str] = Counter()
        self.per_namespace: Counter[str] = Counter()
        self.total = 0

    def refusal(self, resident: Resident) -> str | None:
        node, namespace = resident.pod.node, resident.namespace
        for limit, count, what in (
            (self.limits.per_node, self.per_node[node], "per node"),
            (self.limits.per_namespace, self.per_namespace[namespace], "per namespace"),
            (self.limits.total, self.total, "in total"),
        ):
            if limit is not None and count + 1 > limit:
                return f"maximum number of evicted pods {what} reached"
        return None

    def count(self, resident: Resident) -> None:
        self.per_node[resident.pod.node] += 1
        self.per_namespace[resident.namespace] += 1
        self.total += 1

    def give_back(self, resident: Resident) -> None:
        """It did not go."""
        self.per_node[resident.pod.node] -= 1
        self.per_namespace[resident.namespace] -= 1
        self.total -= 1


class Book(Protocol):
    """The eviction ledger of `ledger.py`, or none. ``take`` writes the eviction down where it says
    None."""

    def refusal(self, world: World, resident: Resident, *, reserved: bool) -> str | None: ...

    def take(self, world: World, resident: Resident, *, reserved: bool) -> str | None: ...

    def give_back(self, resident: Resident) -> None: ...


class _NoBook:
    def refusal(self, world: World, resident: Resident, *, reserved: bool) -> str | None:
        return None

    take = refusal

    def give_back(self, resident: Resident) -> None:
        return None


NO_BOOK: Book = _NoBook()


def _none_held(_resident: Resident) -> str | None:
    return None


@dataclass
class Round:
    """What a plugin gets. ``nodes``: those of the profile that are ready or only cordoned.
    ``ledger`` is asked last, about evictions that everybody else allows; ``held`` says why a pod is
    left alone for a while."""

    world: World
    nodes: tuple[Node, ...]
    profile: str
    filters: Sequence[Filter]
    evictor: Evictor
    counts: Counts
    ledger: Book = NO_BOOK
    dry_run: bool = False
    requests: list[Request] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    """Keys of pods that go already."""
    held: Callable[[Resident], str | None] = _none_held
    spare: list[Spare] = field(default_factory=list)

    def may_evict(self, resident: Resident) -> bool:
        return self.refusal(resident) is None

    def refusal(self, resident: Resident) -> str | None:
        if resident.pod.key in self.gone:
            return "the pod is being evicted already"
        why = self.held(resident)
        if why is not None:
            return why
        for each in self.filters:
            why = each.refusal(self.world, resident)
            if why is not None:
                return why
        return None

    def mark(self, mark: Mark) -> None:
        """Dry runs change nothing."""
        if not self.dry_run and not (mark.cordon and self.evictor.dry_run):
            self.marks.append(mark)

    def before(self, resident: Resident) -> bool:
        return all(each.before(self.world, resident) is None for each in self.filters)

    def evict(self, resident: Resident, plugin: str, reason: str, *, dry_run: bool = False) -> bool:
        """Whether it goes. ``dry_run``: of the plugin alone."""
        dry = dry_run or self.dry_run or self.evictor.dry_run
        request = Request(resident, plugin, reason, self.evictor.name, self.profile)
        why = self.counts.refusal(resident)
        if why is not None and not dry:
            self.spare.append(Spare(self, request))
        why = why or self._asked(resident, dry)
        if why is not None:
            self.refused.append(Refused(resident, plugin, why))
            return False
        self.counts.count(resident)
        self.gone.add(resident.pod.key)
        if not dry:
            self.requests.append(request)
        return True

    def instead(self, request: Request) -> bool:
        """Whether it goes after all, because another one did not."""
        return self.evict(request.resident, request.plugin, request.reason)

    def _asked(self, resident: Resident, dry: bool) -> str | None:
        # Other pods were asked for since, and the ledger may take long.
        why = self.refusal(resident)
        if why is not None:
            return why
        for each in self.filters:
            why = each.before(self.world, resident)
            if why is not None:
                return why
        # The evictor counts what it admits, so it comes after who may still refuse.
        ask = self.ledger.refusal if dry else self.ledger.take
        why = ask(self.world, resident, reserved=self.evictor.reserves)
        if why is not None:
            return why
        why = self.evictor.admit(self.world, resident)
        if why is not None and not dry:
            self.ledger.give_back(resident)
        return why


class Spare(NamedTuple):
    """What a limit alone kept from being requested."""

    round: Round
    request: Request


class Runs(Protocol):
    """A deschedule or balance plugin. What it remembers from round to round is its own."""

    @property
    def name(self) -> str: ...

    def run(self, round_: Round) -> None:
        """Raises PluginError."""
        ...


@dataclass(frozen=True)
class Running:
    """A profile with its plugins made."""

    name: str
    selector: LabelSelector | None
    deschedule: tuple[Runs, ...]
    balance: tuple[Runs, ...]
    filters: tuple[Filter, ...]
    evictor: Evictor


class Outcome(NamedTuple):
    requests: tuple[Request, ...]
    refused: tuple[Refused, ...]
    marks: tuple[Mark, ...]
    error: str = ""
    spare: tuple[Spare, ...] = ()


def run_round(
    world: World,
    profiles: Sequence[Running],
    limits: Limits,
    *,
    selector: LabelSelector | None = None,
    ledger: Book = NO_BOOK,
    dry_run: bool = False,
    held: Callable[[Resident], str | None] = _none_held,
) -> Outcome:
    """All profiles' deschedule plugins, then all their balance plugins. The first profile with an
    error ends the round; what was requested before stands."""
    nodes = nodes_selected(selector, (each for each in world.nodes.values() if each.ready))
    nodes.sort(key=lambda each: each.name)
    if len(nodes) <= 1:
        return Outcome((), (), (), f"{len(nodes)} ready nodes match nodeSelector; needs two")
    counts, gone = Counts(limits), set[str]()
    rounds = [
        Round(
            world,
            tuple(nodes_selected(each.selector, nodes)),
            each.name,
            each.filters,
            each.evictor,
            counts,
            ledger,
            dry_run,
            gone=gone,
            held=held,
        )
        for each in profiles
    ]
    made = list(zip(profiles, rounds, strict=True))
    error = ""
    for point in ("deschedule", "balance"):
        for profile, round_ in made:
            errors = _run_all(getattr(profile, point), round_)
            if errors:
                error = f"profile {profile.name}: {'; '.join(errors)}"
                break
        if error:
            break
    return Outcome(
        tuple(each for round_ in rounds for each in round_.requests),
        tuple(each for round_ in rounds for each in round_.refused),
        tuple(each for round_ in rounds for each in round_.marks),
        error,
        tuple(each for round_ in rounds for each in round_.spare),
    )


def _run_all(plugins: Iterable[Runs], round_: Round) -> list[str]:
    errors = []
    for each in plugins:
        try:
            each.run(round_)
        except PluginError as error:
            errors.append(f"{each.name}: {error}")
    return errors
