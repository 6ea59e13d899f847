"""Pressure of the node, pods and applications
(docs/reference/metrics.md 2.11), of containers on request:
at 600 containers they would be half of all series.

On a hybrid host a cgroup has pressure files where the same path exists in the unified
hierarchy. Groups without any are named by ``missing``, not warned about each round. A ``full``
line that the kernel does not have counts as 0.
"""

from __future__ import annotations

import errno
from collections.abc import Container, Iterator
from typing import Annotated, NamedTuple

from koordlet.collectors.base import (
    CollectorPart,
    NothingToReadError,
    PressureReading,
    Round,
    SeriesStore,
    SlowCollectorOptions,
    series_of,
)
from koordlet.decision import metrics
from koordlet.decision.metrics import Metric
from koordlet.decision.options import about
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Application, Pod
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.parse import pressure
from koordlet.kernel.parse_hot import pressure_avg10

_RESOURCES = (
    ("cpu", Resource.CPU_PRESSURE),
    ("mem", Resource.MEMORY_PRESSURE),
    ("io", Resource.IO_PRESSURE),
)
_PRECISION = "10"


class _Subject(NamedTuple):
    metric: Metric
    full_supported: Metric | None
    labels: tuple[str, ...]
    cgroup: str


def _subjects(
    pods: tuple[Pod, ...], applications: tuple[Application, ...], *, containers: bool
) -> Iterator[_Subject]:
    for pod in pods:
        yield _Subject(metrics.POD_PSI, metrics.POD_PSI_CPU_FULL_SUPPORTED, (pod.uid,), pod.cgroup)
        for container in pod.containers if containers else ():
            yield _Subject(
                metrics.CONTAINER_PSI,
                metrics.CONTAINER_PSI_CPU_FULL_SUPPORTED,
                (pod.uid, container.id),
                container.cgroup,
            )
    for application in applications:
        if application.present:
            yield _Subject(
                metrics.HOST_APPLICATION_PSI, None, (application.name,), application.cgroup
            )


_IN_PODS = (metrics.POD_PSI, metrics.CONTAINER_PSI)
"""The first of their labels is the uid of the pod."""


class _Group:
    """``series``: one id per resource and degree, then that of the cpu-full flag if any.
    ``texts``: the files as read last, in the order of ``_RESOURCES``; empty before that.
    ``calm_ns``: CPU counter of the pod when nobody in it waited for memory or a disk, else -1."""

    __slots__ = ("calm_ns", "paths", "series", "subject", "texts")

    def __init__(self, subject: _Subject, paths: tuple[str, ...]) -> None:
        self.subject = subject
        self.paths = paths
        self.series: tuple[int, ...] = ()
        self.texts: tuple[bytes, ...] = ()
        self.calm_ns = -1


class PsiOptions(SlowCollectorOptions, frozen=True):
    containers: Annotated[
        bool,
        about("Pressure of each container too, in the store and on the metrics page."),
    ] = False


class PsiCollector:
    name = "psi"
    optional = True

    def __init__(
        self,
        cgroups: Cgroups,
        files: Descriptors,
        store: SeriesStore,
        interval_s: float = 10.0,
        proc_root: str = "/proc",
        *,
        containers: bool = False,
    ) -> None:
        """``containers``: of each container too, seven series and three files for each."""
        self._containers = containers
        self.interval_s = interval_s
        self._cgroups = cgroups
        self._files = files
        self._store = store
        self._node_dir = f"{proc_root}/pressure"
        self._groups: dict[tuple[str, tuple[str, ...]], _Group] = {}
        self._seen: tuple[tuple[Pod, ...], tuple[Application, ...]] | None = None
        self.missing: tuple[str, ...] = ()
        """Cgroups that had no pressure files in the last round."""

    def collect(self, round_: Round) -> None:
        """Raises NothingToReadError where the kernel has no PSI, or was booted without it."""
        for name, file in (("cpu", "cpu"), ("mem", "memory"), ("io", "io")):
            path = f"{self._node_dir}/{file}"
            some, full = pressure_avg10(self._node(path), path)
            round_.add(metrics.NODE_PSI, (name, _PRECISION, "some"), some)
            round_.add(metrics.NODE_PSI, (name, _PRECISION, "full"), full or 0.0)
        seen = (round_.pods, round_.applications)
        if self._seen is None or seen[0] is not self._seen[0] or seen[1] is not self._seen[1]:
            subjects = _subjects(*seen, containers=self._containers)
            self._keep({(s.metric.kind, s.labels): s for s in subjects})
            self._seen = seen
        self.missing = tuple(
            group.subject.cgroup for group in self._groups.values() if not self._read(group, round_)
        )

    def readings(self, wanted: Container[Metric]) -> Iterator[PressureReading]:
        """What the files said in the last round, with the averages that are not stored. Whoever
        asks may let a round pass meanwhile."""
        for group in tuple(self._groups.values()):
            if group.texts and group.subject.metric in wanted:
                values = {
                    name: pressure(text, path)
                    for (name, _), text, path in zip(
                        _RESOURCES, group.texts, group.paths, strict=True
                    )
                }
                yield PressureReading(group.subject.metric, group.subject.labels, values)

    def close(self) -> None:
        self._keep({})
        self._seen = None
        for file in ("cpu", "memory", "io"):
            self._files.forget(f"{self._node_dir}/{file}")

    def _node(self, path: str) -> bytes:
        try:
            return self._files.read(path)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EOPNOTSUPP):
                raise
            why = f"{path}: {error.strerror}: boot with psi=1, or a kernel with CONFIG_PSI"
            raise NothingToReadError(why) from error

    def _keep(self, wanted: dict[tuple[str, tuple[str, ...]], _Subject]) -> None:
        for key, group in tuple(self._groups.items()):
            if wanted.get(key) != group.subject:
                for series in group.series:
                    self._store.release(series)
                del self._groups[key]
        for key, subject in wanted.items():
            if key not in self._groups:
                self._groups[key] = _Group(subject, self._paths(subject.cgroup))

    def _paths(self, cgroup: str) -> tuple[str, ...]:
        try:
            return tuple(self._cgroups.path(cgroup, resource) for _, resource in _RESOURCES)
        except Unsupported:
            return ()

    def _read(self, group: _Group, round_: Round) -> bool:
        """False where there is nothing to read. One bad file drops all samples of its group:
        a reader compares the three resources."""
        if not group.paths:
            return False
        # Of a container that of its pod: where nothing in the pod has run, nothing in it has.
        in_pod = group.subject.metric in _IN_PODS
        cpu_ns = round_.pods_cpu_ns.get(group.subject.labels[0], -1) if in_pod else -1
        # Who waits for memory or a disk has run before; who waits for a CPU need not have.
        calm = 0 <= cpu_ns == group.calm_ns
        before, group.texts, group.calm_ns = group.texts, (), -1
        values: list[float] = []
        texts: list[bytes] = []
        cpu_full = False
        for number, path in enumerate(group.paths):
            try:
                texts.append(before[number] if number and calm else self._files.read_once(path))
                some, full = pressure_avg10(texts[-1], path)
            except (OSError, ValueError) as error:
                round_.skip(path, error)
                return not isinstance(error, FileNotFoundError)
            if number == 0:
                cpu_full = full is not None
            values += (some, full or 0.0)
        if not any(values[2:]):
            group.calm_ns = cpu_ns
        if group.subject.full_supported is not None:
            values.append(float(cpu_full))
        if not group.series:
            group.series = self._series_of(group.subject)
        round_.ids += group.series
        round_.values += values
        group.texts = tuple(texts)
        return True

    def _series_of(self, subject: _Subject) -> tuple[int, ...]:
        ids = [
            series_of(self._store, subject.metric, (*subject.labels, name, _PRECISION, degree))
            for name, _ in _RESOURCES
            for degree in ("some", "full")
        ]
        if subject.full_supported is not None:
            ids.append(series_of(self._store, subject.full_supported, subject.labels))
        return tuple(ids)


COLLECTOR = CollectorPart(
    name=PsiCollector.name,
    help="Pressure stall information of node and cgroups.",
    options=PsiOptions(),
    make=lambda machine, options: PsiCollector(
        machine.cgroups,
        machine.files,
        machine.store,
        options.interval_seconds,
        machine.proc_root,
        containers=options.containers,
    ),
    metrics=(
        metrics.NODE_PSI,
        metrics.POD_PSI,
        metrics.POD_PSI_CPU_FULL_SUPPORTED,
        metrics.CONTAINER_PSI,
        metrics.CONTAINER_PSI_CPU_FULL_SUPPORTED,
        metrics.HOST_APPLICATION_PSI,
    ),
)
