"""What sources have in common whose programs stay attached from the first look to the last."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from koordlet.collectors.waits.bounds import Tasks
from koordlet.collectors.waits.busiest import Busiest
from koordlet.collectors.waits.figures import Part, PartRows, parts
from koordlet.collectors.waits.names import Names
from koordlet.collectors.waits.readings import Feature, Subjects
from koordlet.collectors.waits.series import Labels
from koordlet.collectors.waits.suspicion import Recent
from koordlet.decision.snapshot import Capability
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.cost import Cost, Meter
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

MEASURE_EVERY_S = 10.0
"""What the programs cost is measured for a second now and then."""


@dataclass(frozen=True)
class WaitLook:
    """``rows``: by victim, which are all in it, for each part of the time; the last part is until
    now. ``skipped``: what is not in it. ``busiest``: see ``Busiest.of``."""

    rows: tuple[PartRows, ...]
    skipped: tuple[str, ...]
    busiest: Mapping[Labels, float] = field(default_factory=dict, kw_only=True)


R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
L = TypeVar("L", bound=WaitLook)


class Programs(Protocol[R_co]):
    @property
    def meter(self) -> Meter: ...

    @property
    def memory_bytes(self) -> int: ...

    def read(self, pause: Pause) -> R_co: ...

    def others_ns(self) -> int: ...

    def close(self) -> None: ...


class ProgramSource(ABC, Generic[R, L]):
    """A ``readings.Source``: a look takes what the programs have counted since the one before."""

    def __init__(self, host: Host, layout: Layout, names: Names, programs: Programs[R]) -> None:
        self._host = host
        self._tasks = Tasks(host, layout)
        self._busiest = Busiest(host, names.root)
        self._names = names
        self._programs = programs
        self._costs: Mapping[str, Cost] = {}
        self._measured_s = -math.inf
        self._last: R | None = None
        self._last_s = -math.inf
        self._others_ns = 0

    @abstractmethod
    def watch(self, subjects: Subjects, pause: Pause) -> None:
        """See to it that the programs count for these."""

    @abstractmethod
    def since(
        self, before: R, reading: R, times: tuple[Part, ...], subjects: Subjects, pause: Pause
    ) -> L:
        """What came on top, by part of the time."""

    @property
    def costs(self) -> Mapping[str, Cost]:
        return self._costs

    def there(self, feature: Feature, why: str) -> Capability:
        programs = self._programs
        return feature.there(why, self.costs, programs.meter.unknown, programs.memory_bytes)

    @property
    def goes_on(self) -> bool:
        return self._programs.meter.measuring

    def others_ns(self) -> int:
        return self._programs.others_ns()

    def follow(self, subjects: Subjects, pause: Pause) -> None:
        self._names.follow(subjects, pause)

    def look(self, subjects: Subjects, pause: Pause, recent: Recent | None = None) -> L | None:
        now_s = self._host.monotonic()
        self.finish(pause)
        self.watch(subjects, pause)
        reading, others_ns = self._programs.read(pause), self._programs.others_ns()
        before, self._last = self._last, reading
        span_s, self._last_s = now_s - self._last_s, now_s
        new_ns, self._others_ns = others_ns - self._others_ns, others_ns
        if now_s - self._measured_s >= MEASURE_EVERY_S:
            self._measured_s = now_s
            self._programs.meter.begin(now_s)
        if before is None or span_s <= 0:
            return None
        look = self.since(before, reading, parts(span_s, new_ns, recent), subjects, pause)
        rows, cut = self._tasks.within(look.rows, subjects)
        busiest = self._busiest.of(rows[-1].rows, subjects, pause)
        return replace(look, rows=rows, skipped=(*look.skipped, *cut), busiest=busiest)

    def finish(self, pause: Pause) -> None:
        if self.goes_on:
            self._costs = self._programs.meter.end(self._host.monotonic()) or self._costs

    def close(self) -> None:
        self._programs.close()
