"""Readings that may block, taken in a thread; each comes with a later round."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from koordlet.collectors.base import Round
from koordlet.decision.snapshot import Application, Capability, Pod
from koordlet.kernel.background import Pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.host import Host

ALARM_S = 10.0
"""For so long after an alarm a reading is taken each second."""
TRY_AGAIN_S = 600.0
"""After so long it is tried again what the machine lacked: a package may have been installed."""
_REMEDIES = {
    errno.ENOENT: "install libbpf1, and use a kernel with CONFIG_DEBUG_INFO_BTF",
    errno.EPERM: "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, for koordlet",
    errno.EACCES: "CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN, for koordlet",
}

Subjects = tuple[tuple[Pod, ...], tuple[Application, ...]]
L = TypeVar("L")
L_co = TypeVar("L_co", covariant=True)


class NeedError(OSError):
    """Something is missing that the machine's owner can see to. ``remedy``: how."""

    def __init__(self, number: int, why: str, what: str, remedy: str) -> None:
        super().__init__(number, why, what)
        self.remedy = remedy


class Source(Protocol[L_co]):
    """Used in the thread; ``costs`` and ``capabilities`` are read beside it."""

    @property
    def costs(self) -> Mapping[str, Cost]: ...

    @property
    def capabilities(self) -> tuple[Capability, ...]: ...

    @property
    def goes_on(self) -> bool:
        """Something that ``look`` began, such as a measurement, waits for ``finish``."""
        ...

    def look(self, subjects: Subjects, pause: Pause) -> L_co | None:
        """What happened since the look before. Raises OSError where the kernel refuses."""
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


@dataclass
class _Session(Generic[L]):
    """From the first reading to ``close``."""

    source: Source[L] | None = None

    def shut(self) -> None:
        if self.source is not None:
            self.source.close()


class Readings(Generic[L]):
    """``make`` is called in the thread and raises OSError where the machine lacks something."""

    def __init__(
        self, host: Host, name: str, feature: Feature, make: Callable[[], Source[L]], every_s: float
    ) -> None:
        self._host = host
        self._name = name
        self._feature = feature
        self._make = make
        self._every_s = every_s
        self._background = host.background(name)
        self._session: _Session[L] = _Session()
        self._job: Future[L | None] | None = None
        self._due_s = -math.inf
        self._alarm_s = -math.inf
        self.capabilities: tuple[Capability, ...] = ()

    @property
    def costs(self) -> dict[str, Cost]:
        source = self._session.source
        return dict(source.costs) if source is not None else {}

    def alarm(self) -> None:
        """Latency-sensitive work suffers now."""
        self._alarm_s = self._host.monotonic()
        self._due_s = min(self._due_s, self._alarm_s)

    def take(self, round_: Round) -> L | None:
        """What was read since the round before, if anything; and the next reading, if it is due.
        Raises OSError where the kernel refused one."""
        if self._job is not None and not self._job.done():
            return None
        job, self._job = self._job, None
        try:
            return self._result(job, round_) if job is not None else None
        finally:
            self._submit(round_)

    def close(self) -> None:
        """What is loaded is given back in the thread; a later ``take`` starts afresh."""
        self._background.close(self._session.shut)
        self._background = self._host.background(self._name)
        self._session = _Session()
        self._job = None
        self._due_s = -math.inf

    def _result(self, job: Future[L | None], round_: Round) -> L | None:
        source = self._session.source
        try:
            found = job.result()
        except OSError as error:
            if source is not None:
                raise
            self.capabilities = (_missing(self._feature, error),)
            self._due_s = round_.now_s + TRY_AGAIN_S
            return None
        if source is not None:
            self.capabilities = source.capabilities
        return found

    def _submit(self, round_: Round) -> None:
        session = self._session
        if round_.now_s >= self._due_s:
            alarmed = round_.now_s - self._alarm_s < ALARM_S
            self._due_s = round_.now_s + (1.0 if alarmed else self._every_s)
            subjects = round_.pods, round_.applications
            self._job = self._background.submit(
                lambda pause: self._open(session).look(subjects, pause)
            )
        elif (source := session.source) is not None and source.goes_on:
            self._job = self._background.submit(source.finish)

    def _open(self, session: _Session[L]) -> Source[L]:
        """In the thread."""
        if session.source is None:
            session.source = self._make()
        return session.source


def _missing(feature: Feature, error: OSError) -> Capability:
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    why = f"{error.filename or feature.name}: {name} ({error.strerror})"
    remedy = error.remedy if isinstance(error, NeedError) else _REMEDIES.get(error.errno or 0, "")
    return Capability(feature.name, False, why, feature.without, remedy)
