"""What the demo sets on best effort by itself, in arms without a daemon."""

from __future__ import annotations

from koordlet.decision.resource import CFS_PERIOD_US, Resource, Value
from koordlet.demo.model import ArmSpec
from koordlet.demo.stage import BE
from koordlet.demo.workloads import ArmFailedError
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.protocol.cpuset import format_cpulist


def settings(spec: ArmSpec, cpus: frozenset[int]) -> tuple[tuple[Resource, Value], ...]:
    """``cpus``: those of the machine; BE gets the upper part of them."""
    found: list[tuple[Resource, Value]] = []
    if spec.idle:
        found.append((Resource.CPU_IDLE, 1))
    if spec.quota is not None:
        found.append((Resource.CPU_QUOTA_US, round(spec.quota * len(cpus) * CFS_PERIOD_US)))
    if spec.cpus is not None:
        count = max(1, round(spec.cpus * len(cpus)))
        found.append((Resource.CPUSET_CPUS, format_cpulist(frozenset(sorted(cpus)[-count:]))))
    return tuple(found)


Originals = tuple[tuple[Resource, Value], ...]


def apply(cgroups: Cgroups, spec: ArmSpec, cpus: frozenset[int]) -> Originals:
    """Return what was there before. Raises ArmFailedError where the kernel lacks one of them."""
    before: list[tuple[Resource, Value]] = []
    for resource, value in settings(spec, cpus):
        try:
            before.append((resource, cgroups.read(BE, resource)))
            cgroups.write(BE, resource, value)
        except (Unsupported, OSError) as error:
            raise ArmFailedError(f"arm {spec.name} needs {resource}: {error}") from error
    return tuple(before)


def undo(cgroups: Cgroups, before: Originals) -> None:
    """Put back what ``apply`` has found."""
    for resource, value in reversed(before):
        cgroups.write(BE, resource, value)
