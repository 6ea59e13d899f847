"""One round of collection, and what a collector is."""

from __future__ import annotations

import errno
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol, TypeVar, runtime_checkable

from msgspec import Meta

from koordlet.decision.metrics import Metric
from koordlet.decision.options import Options, about
from koordlet.decision.part import Part
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Capability, Node, Pod
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.devices.aside import Asides
from koordlet.kernel.devices.gpu_health import GpuHealth
from koordlet.kernel.host import Host
from koordlet.kernel.parse import Pressure
from koordlet.tsdb.store import Rounds

if TYPE_CHECKING:  # loaded where there are devices
    from koordlet.decision.devices import Inventory

C = TypeVar("C", bound="CollectorOptions")

SLACK_S = 0.2
"""A tick comes some milliseconds early or late. Without slack, what is due each second would miss
every other one."""
Interval = Annotated[Annotated[float, Meta(ge=0.1, le=3600)], about("Time between two rounds.")]


class NothingToReadError(Exception):
    """This kernel, or this machine, has nothing that the collector could read. The text says what
    is not there, and what would bring it. It is no failure: nobody is warned."""


class SeriesStore(Protocol):
    """The part of ``koordlet.tsdb.Store`` that collectors use."""

    def series(self, kind: str, labels: tuple[tuple[str, str], ...]) -> int: ...

    def append(self, time_ms: int, ids: list[int], values: list[float]) -> object: ...

    def release(self, series: int) -> None: ...

    @property
    def rounds(self) -> Rounds: ...


def series_of(store: SeriesStore, metric: Metric, values: tuple[str, ...]) -> int:
    """Id of the series with these label values, in the order of the metric's schema."""
    if len(values) != len(metric.labels):
        raise ValueError(f"{metric.kind} has labels {metric.labels}, not {values}")
    return store.series(metric.kind, tuple(map(_pair, metric.labels, values)))


@lru_cache(maxsize=64)
def _pair(name: str, value: str) -> tuple[str, str]:
    """One object for all the series of a pod or container that are made one after the other; a
    full node has 9,000 series with up to five labels."""
    return name, value


@dataclass
class Totals:
    """What the collectors of one round tell those that run after them.

    None: not measured in this round. CPU in cores, memory in bytes.
    """

    node_cpu_cores: float | None = None
    node_memory_bytes: float | None = None
    pods_cpu_cores: float | None = None
    pods_memory_bytes: float | None = None
    applications_cpu_cores: float | None = None
    applications_memory_bytes: float | None = None
    numa_cpu_cores: dict[int, float] = field(default_factory=dict)
    numa_memory_bytes: dict[int, float] = field(default_factory=dict)
    groups_numa_memory_bytes: dict[int, float] | None = None
    """Memory by NUMA node of the pods and of the applications counted with them."""


class Round:
    """One round: who is there, when it is, and the samples so far.

    ``time_ms`` is unix time, ``now_s`` monotonic. ``ids`` and ``values`` grow in step: a hot
    collector appends to them directly with series ids it has kept.
    """

    __slots__ = (
        "_store",
        "applications",
        "ids",
        "node",
        "now_s",
        "pods",
        "pods_cpu_ns",
        "skipped",
        "time_ms",
        "totals",
        "values",
    )

    def __init__(
        self,
        store: SeriesStore,
        time_ms: int,
        now_s: float,
        node: Node,
        pods: tuple[Pod, ...],
        applications: tuple[Application, ...],
    ) -> None:
        self._store = store
        self.time_ms = time_ms
        self.now_s = now_s
        self.node = node
        self.pods = pods
        self.applications = applications
        self.ids: list[int] = []
        self.values: list[float] = []
        self.totals = Totals()
        self.pods_cpu_ns: dict[str, int] = {}
        """CPU counters of the pods by uid, as read in this round. While one stands still, nothing
        in that pod has run."""
        self.skipped: list[str] = []
        """What could not be read, though it should be there."""

    def add(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        """One sample. ``labels`` are values in the order of the metric's schema."""
        self.ids.append(series_of(self._store, metric, labels))
        self.values.append(value)

    def skip(self, path: str, error: Exception) -> None:
        """One file left out. A cgroup that has just gone is no news."""
        if not isinstance(error, OSError) or error.errno not in (errno.ENOENT, errno.ENODEV):
            self.skipped.append(f"{path}: {error}")


class Collector(Protocol):
    """Reads the kernel, adds samples to the round.

    What it cannot read of one object it leaves out; what makes its whole result meaningless it
    raises, and the runner drops its samples of this round.
    """

    @property
    def name(self) -> str: ...

    @property
    def interval_s(self) -> float: ...

    @property
    def optional(self) -> bool:
        """True: may be shed when the daemon is over its CPU budget."""
        ...

    def collect(self, round_: Round) -> None: ...

    def close(self) -> None:
        """Closes descriptors and forgets counters; a later ``collect`` starts afresh."""
        ...


class CollectorOptions(Options, frozen=True):
    enable: Annotated[bool, about("Whether it runs.")] = True
    interval_seconds: Interval = 1.0


class SlowCollectorOptions(CollectorOptions, frozen=True):
    interval_seconds: Interval = 10.0


@dataclass(frozen=True)
class Machine:
    """What a collector is made with. ``gpu_health`` and ``asides`` outlive collectors, which are
    made anew when the configuration changes."""

    host: Host
    cgroups: Cgroups
    files: Descriptors
    store: SeriesStore
    proc_root: str = "/proc"
    sys_root: str = "/sys"
    gpu_health: GpuHealth = field(default_factory=GpuHealth)
    asides: Asides = field(default_factory=Asides)


@dataclass(frozen=True, kw_only=True)
class CollectorPart(Part[C]):
    """``metrics``: every series that it may write."""

    make: Callable[[Machine, C], Collector]
    metrics: tuple[Metric, ...]


@runtime_checkable
class Follower(Protocol):
    """A collector that wants to know at once who came and went."""

    def follow(self, pods: tuple[Pod, ...], applications: tuple[Application, ...]) -> None:
        """Take a first reading of the newcomers: their use from now on is in the next round, and
        does not pass for that of the system there."""
        ...


@runtime_checkable
class Listener(Protocol):
    """A collector that wants to know what koordlet writes."""

    def wrote(self, cgroup: str, resource: Resource) -> None: ...


@runtime_checkable
class ReclaimListener(Protocol):
    """A collector that wants to know what koordlet had the kernel take back."""

    def reclaimed(self, cgroup: str, size_bytes: int) -> None: ...


@runtime_checkable
class Describing(Protocol):
    """A collector that has more to say of itself than that it works."""

    def about(self) -> str:
        """One line: how it measures, and at what cost."""
        ...


@runtime_checkable
class MemoryWatcher(Protocol):
    """A collector that measures the memory of pods more often when the node is about full."""

    fresh_memory_from: float
    """Share of the node's memory in use from which on it does so in each round."""


@runtime_checkable
class Background(Protocol):
    """A collector that reads beside the event loop, because what it reads may hang. A round begins
    a reading; as soon as it has ended, a further round takes what it found."""

    @property
    def has_ended(self) -> bool:
        """Whether it wants a further round now; also once when a reading takes too long."""
        ...


@runtime_checkable
class DeviceReader(Protocol):
    """A collector that knows devices.

    ``capabilities``: whether this machine has what it reads, empty until it has tried.
    ``inventory``: None until it has found something.
    """

    capabilities: tuple[Capability, ...]
    inventory: Inventory | None


@runtime_checkable
class PressureReader(Protocol):
    """A collector that has averages of pressure which are not stored."""

    def readings(self, wanted: Container[Metric]) -> Iterator[PressureReading]: ...


@runtime_checkable
class ThrottlingExplainer(Protocol):
    """A collector that knows why a subject has no ratio of throttled periods."""

    def why_none(self, metric: Metric, label: str) -> str:
        """``label``: the uid, id or name of a pod, container or application."""
        ...


@runtime_checkable
class AlarmFollower(Protocol):
    """A collector that looks more closely while latency-sensitive work suffers."""

    def alarm(self) -> None: ...


@runtime_checkable
class Capable(Protocol):
    """A collector that finds out itself what this machine has for it, as trying takes long."""

    capabilities: tuple[Capability, ...]
    """Empty until it has tried."""


@runtime_checkable
class KernelWorker(Protocol):
    """A collector with programs of its own in the kernel. What they use counts as the daemon's."""

    costs: dict[str, Cost]
    """By program, as measured last."""


class PressureReading(NamedTuple):
    """Pressure of one subject by resource: ``cpu``, ``mem``, ``io``."""

    metric: Metric
    labels: tuple[str, ...]
    pressure: dict[str, Pressure]


@dataclass(frozen=True)
class Health:
    """How one collector does, for the metrics page.

    ``staleness_s``: age of its last success, infinite before the first.
    """

    name: str
    duration_s: float
    success: bool
    staleness_s: float
    samples: int
    consecutive_failures: int
    error: str
    """Why it failed as a whole."""
    missing: str
    """Thing that this machine lacks, so that there is nothing to read; ``success`` is False
    then."""
    skipped: int
    """Files it had to leave out of its last round."""
    skipped_example: str
    shed: bool
