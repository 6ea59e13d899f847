"""Readings that may block, taken in a thread; each comes with a later round."""

from __future__ import annotations

import contextlib
import errno
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from koordlet.collectors.base import SLACK_S, Round, SeriesStore
from koordlet.collectors.waits.figures import PartRows
from koordlet.collectors.waits.series import Matrices
from koordlet.collectors.waits.suspicion import STALL_MS_PER_S, Recent, Suspicion
from koordlet.decision.snapshot import Application, Capability, Pod
from koordlet.kernel.background import Pause, no_pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.need import NEW_KERNEL, NeedError
from koordlet.kernel.host import Host

ROUND_S = 1.0
CLOSE_S = 10.0
"""For so long after an alarm, or a suspicion, a reading is taken each second."""
AT_ONCE_S = 0.1
"""A round that has taken so long waits for no reading; each collector that wants one counts."""
JUST_BEFORE_S = 0.25
"""A reading each second is made so long before the round that takes it: it is fresh then."""
TRY_AGAIN_S = 600.0
"""After so long it is tried again what the machine lacked: a package may have been installed."""
_REMEDIES = {
    errno.EINVAL: NEW_KERNEL,
    errno.EPERM: "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, for koordlet",
    errno.EACCES: "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, for koordlet",
}
"""Of an error without its own."""

Subjects = tuple[tuple[Pod, ...], tuple[Application, ...]]
L = TypeVar("L")
L_co = TypeVar("L_co", covariant=True)


class Source(Protocol[L_co]):
    """Used in the thread; ``costs``, ``capabilities`` and ``others_ns`` beside it as well."""

    @property
    def costs(self) -> Mapping[str, Cost]: ...

    @property
    def capabilities(self) -> tuple[Capability, ...]: ...

    @property
    def goes_on(self) -> bool:
        """Something that ``look`` began, such as a measurement, waits for ``finish``."""
        ...

    def others_ns(self) -> int:
        """How long all victims together have waited because of others; takes microseconds."""
        ...

    def follow(self, subjects: Subjects, pause: Pause) -> None:
        """Who is there has changed; a look may come later."""
        ...

    def look(self, subjects: Subjects, pause: Pause, recent: Recent | None = None) -> L_co | None:
        """What happened since the look before. ``recent``: what is known of the last second, which
        began calm and did not stay so. Raises OSError where the kernel refuses."""
        ...

    def finish(self, pause: Pause) -> L_co | None:
        """Called each second while something goes on. Raises as ``look``."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Feature:
    """``name``: of the capability. ``without``: what is not known where it is missing."""

    name: str
    without: str

    def there(
        self, why: str, costs: Mapping[str, Cost], unknown: str = "", memory_bytes: int = 0
    ) -> Capability:
        """``unknown``: why it is not known what the programs cost. ``memory_bytes``: of their maps
        in the kernel."""
        cores = sum(each.cores for each in costs.values())
        used = f"; they use {100 * cores:.2f} % of a core" if costs else ""
        if unknown:
            used = f"; what they use is not known ({unknown})"
        if memory_bytes:
            used += f"; their maps take {memory_bytes / (1 << 20):.1f} MiB"
        return Capability(self.name, True, why + used)

    def missing(self, error: OSError) -> Capability:
        name = errno.errorcode.get(error.errno or 0, str(error.errno))
        why = f"{error.filename or self.name}: {name} ({error.strerror})"
        known = _REMEDIES.get(error.errno or 0, "")
        remedy = error.remedy if isinstance(error, NeedError) else known
        return Capability(self.name, False, why, self.without, remedy)


@dataclass
class _Session(Generic[L]):
    """From the first reading to ``close``."""

    source: Source[L] | None = None

    def shut(self) -> None:
        if self.source is not None:
            self.source.close()


class Readings(Generic[L]):
    """``make`` is called in the thread and raises OSError where the machine lacks something.
    ``least_ms_per_s``: waits of all victims for others that are worth a look each second."""

    def __init__(
        self,
        host: Host,
        name: str,
        feature: Feature,
        make: Callable[[Pause], Source[L]],
        every_s: float,
        least_ms_per_s: float = STALL_MS_PER_S,
    ) -> None:
        self._host = host
        self._name = name
        self._feature = feature
        self._make = make
        self._every_s = every_s
        self._background = host.background(name)
        self._session: _Session[L] = _Session()
        self._least_ms_per_s = least_ms_per_s
        self._suspicion = Suspicion(least_ms_per_s)
        self._job: Future[L | None] | None = None
        self._is_fresh = False
        """What ``_job`` reads is from just before the round that takes it."""
        self._is_trouble = False
        """Since the last fresh reading."""
        self._followed: Subjects = ((), ())
        self._due_s = -math.inf
        self._close_until_s = -math.inf
        self.capabilities: tuple[Capability, ...] = ()

    @property
    def costs(self) -> dict[str, Cost]:
        source = self._session.source
        return dict(source.costs) if source is not None else {}

    def alarm(self) -> None:
        """Latency-sensitive work suffers now."""
        now_s = self._host.monotonic()
        with contextlib.suppress(OSError):  # the next round says so
            self._suspect(now_s)
        self._look_closely(now_s)

    def take(self, round_: Round) -> list[L]:
        """What was read since the round before, the oldest first; and begin the next reading, if it
        is due. Raises OSError where the kernel refused one."""
        if self._suspect(round_.now_s):
            self._look_closely(round_.now_s)
        if self._job is not None and not self._job.done():
            return []
        jobs = [self._job] if self._job is not None else []
        if self._is_trouble and not self._is_fresh and self._session.source is not None:
            jobs.append(self._look_at_once(round_, self._session.source))
        self._follow(round_)  # after that look, and before one that waits for its time
        self._is_trouble = self._is_fresh = False
        self._job = jobs.pop() if jobs and not jobs[-1].done() else None
        try:
            found = [self._result(job, round_) for job in jobs]
        finally:
            if self._job is None:
                self._job = self._submit(round_)
        return [look for look in found if look is not None]

    def close(self) -> None:
        """What is loaded is given back in the thread; a later ``take`` starts afresh."""
        self._background.close(self._session.shut)
        self._background = self._host.background(self._name)
        self._session = _Session()
        self._suspicion = Suspicion(self._least_ms_per_s)
        self._job = None
        self._is_fresh = self._is_trouble = False
        self._followed = ((), ())
        self._due_s = self._close_until_s = -math.inf

    def _suspect(self, now_s: float) -> bool:
        """Whether victims wait for others more than is worth a look each second."""
        source = self._session.source
        return source is not None and self._suspicion.arises(now_s, source.others_ns())

    def _look_closely(self, now_s: float) -> None:
        self._is_trouble = True
        self._close_until_s = now_s + CLOSE_S
        self._due_s = min(self._due_s, now_s)

    def _follow(self, round_: Round) -> None:
        source, subjects = self._session.source, (round_.pods, round_.applications)
        if source is not None and subjects != self._followed:
            self._followed = subjects
            self._background.submit(lambda pause: source.follow(subjects, pause))

    def _look_at_once(self, round_: Round, source: Source[L]) -> Future[L | None]:
        """The first second of trouble counts already: costs this round some milliseconds, if the
        machine has a CPU for it."""
        subjects, recent = (round_.pods, round_.applications), self._suspicion.recent
        job = self._background.submit(lambda _: source.look(subjects, no_pause, recent))
        with contextlib.suppress(TimeoutError):
            job.exception(max(round_.now_s + AT_ONCE_S - self._host.monotonic(), 0.0))
        return job

    def _result(self, job: Future[L | None], round_: Round) -> L | None:
        source = self._session.source
        try:
            found = job.result()
        except OSError as error:
            if source is not None:
                raise
            self.capabilities = (self._feature.missing(error),)
            self._due_s = round_.now_s + TRY_AGAIN_S
            return None
        if source is not None:
            self.capabilities = source.capabilities
        return found

    def _submit(self, round_: Round) -> Future[L | None] | None:
        """The next piece of work, if any is due."""
        session, subjects = self._session, (round_.pods, round_.applications)
        if round_.now_s >= self._due_s - SLACK_S:
            self._is_fresh = round_.now_s < self._close_until_s
            self._due_s = round_.now_s + (ROUND_S if self._is_fresh else self._every_s)
            return self._background.submit(
                lambda pause: self._open(session, pause).look(subjects, pause),
                delay_s=ROUND_S - JUST_BEFORE_S if self._is_fresh else 0.0,
            )
        if (source := session.source) is not None and source.goes_on:
            return self._background.submit(source.finish)
        return None

    def _open(self, session: _Session[L], pause: Pause) -> Source[L]:
        """In the thread."""
        if session.source is None:
            session.source = self._make(pause)
        return session.source


class _Series(Protocol):
    def close(self) -> None: ...


class BackgroundCollector(ABC, Generic[L]):
    """Adds what its readings find to its series."""

    name: ClassVar[str]
    optional = True
    interval_s = ROUND_S
    """What was read in the background comes with the next round."""

    def __init__(
        self, readings: Readings[L], store: SeriesStore, series: tuple[_Series, ...]
    ) -> None:
        self._readings = readings
        self._store = store
        self._series = series

    @abstractmethod
    def add(self, round_: Round, look: L) -> None: ...

    @property
    def capabilities(self) -> tuple[Capability, ...]:
        return self._readings.capabilities

    @property
    def costs(self) -> dict[str, Cost]:
        return self._readings.costs

    def alarm(self) -> None:
        """Latency-sensitive work suffers now."""
        self._readings.alarm()

    def collect(self, round_: Round) -> None:
        """Raises OSError where the kernel refused a reading."""
        looks = self._readings.take(round_)
        for look in looks[:-1]:
            with self._before(round_) as before:
                self.add(before, look)
        if looks:
            self.add(round_, looks[-1])

    def add_parts(self, round_: Round, waits: Matrices, parts: Sequence[PartRows]) -> None:
        """Each part of the time has its own samples; the last one is until now."""
        *earlier, last = parts
        for part in earlier:
            with self._before(round_, last.span_s) as before:
                waits.add(before, part.rows)
        waits.add(round_, last.rows)

    @contextlib.contextmanager
    def _before(self, round_: Round, ago_s: float = ROUND_S) -> Iterator[Round]:
        """A round of its own for what was read until ``ago_s`` before this one, or until the last
        round in the store. So a sample of waits stands for the time since the one before it."""
        before = Round(
            self._store,
            round_.time_ms,
            round_.now_s,
            round_.node,
            round_.pods,
            round_.applications,
        )
        yield before
        round_.skipped += before.skipped
        time_ms = max(self._store.rounds.newest_ms + 1, round_.time_ms - round(1000 * ago_s))
        if time_ms < round_.time_ms:  # else the clock was set back
            self._store.append(time_ms, before.ids, before.values)

    def close(self) -> None:
        self._readings.close()
        for each in self._series:
            each.close()
