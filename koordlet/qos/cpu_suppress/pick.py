"""Which CPUs best-effort work may run on (docs/reference/qos.md 2.3 and 2.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from koordlet.decision.snapshot import Cpu, Node, Pod
from koordlet.protocol.cpuset import CPUSet
from koordlet.protocol.qos import QoSClass

ALIKE = 1078 / 1024
"""Capacities that differ by less are of one kind of core: of those, too, some clock up higher. The
kernel's scheduler has the same margin."""


class Pools(msgspec.Struct, frozen=True):
    """CPUs that BE may be given: ``lsr`` those LSR pods are pinned to, ``shared`` the others."""

    lsr: tuple[Cpu, ...]
    shared: tuple[Cpu, ...]

    @property
    def size(self) -> int:
        return len(self.lsr) + len(self.shared)

    def within(self, allowed: CPUSet) -> Pools:
        return Pools(
            tuple(cpu for cpu in self.lsr if cpu.id in allowed),
            tuple(cpu for cpu in self.shared if cpu.id in allowed),
        )


def pools(node: Node, pods: Iterable[Pod]) -> Pools:
    """Online CPUs less the reserved, the isolated and the exclusive system ones, by who is pinned
    to them.

    A CPU that an LSE pod is pinned to is in neither pool, whoever else names it.
    """
    lse = _pinned(pods, QoSClass.LSE)
    lsr = _pinned(pods, QoSClass.LSR)
    excluded = node.cpus.reserved | node.cpus.isolated | node.cpus.system_exclusive | lse
    free = [cpu for cpu in node.topology.cpus if cpu.id not in excluded]
    return Pools(
        lsr=tuple(cpu for cpu in free if cpu.id in lsr),
        shared=tuple(cpu for cpu in free if cpu.id not in lsr),
    )


def full_set(found: Pools) -> CPUSet:
    """Every CPU BE may ever have: what a tier that is not suppressed gets (2.7)."""
    return frozenset(cpu.id for cpu in (*found.lsr, *found.shared))


def choose(found: Pools, count: int) -> CPUSet:
    """``count`` CPUs, from both pools in proportion to their size.

    ``count`` is cut to what there is; no CPU at all gives the empty set.
    """
    count = min(count, found.size)
    if count <= 0:
        return frozenset()
    from_lsr = count * len(found.lsr) // found.size
    return frozenset((*pick(found.lsr, from_lsr), *pick(found.shared, count - from_lsr)))


def pick(pool: Sequence[Cpu], count: int) -> tuple[int, ...]:
    """``count`` CPU ids in pick order; empty when the pool holds fewer. Slower CPUs come first.

    Scatters over NUMA nodes and sockets, stacks on SMT siblings: pairs of siblings round robin
    over the NUMA nodes, largest first, then single CPUs from where that stopped.
    """
    if len(pool) < count or count <= 0:
        return ()
    slowest = min(cpu.capacity for cpu in pool)
    slow: list[Cpu] = []
    rest: list[Cpu] = []
    for cpu in pool:
        (slow if cpu.capacity <= ALIKE * slowest else rest).append(cpu)
    if rest:
        few = min(count, len(slow))
        return (*pick(slow, few), *pick(rest, count - few))
    buckets = _buckets(pool)
    picked: list[int] = []
    index = 0
    progressed = True
    while count - len(picked) > 1:
        if index == 0:
            if not progressed:
                break
            progressed = False
        pair = _take_pair(buckets[index])
        picked.extend(pair)
        progressed = progressed or bool(pair)
        index = (index + 1) % len(buckets)
    while len(picked) < count:
        if buckets[index]:
            picked.append(buckets[index].pop(0).id)
        index = (index + 1) % len(buckets)
    return tuple(picked)


def _buckets(pool: Sequence[Cpu]) -> list[list[Cpu]]:
    """One list per NUMA node of a socket, each in core order; largest first."""
    grouped: dict[tuple[int, int], list[Cpu]] = {}
    for cpu in sorted(pool, key=lambda c: (c.core, c.id)):
        grouped.setdefault((cpu.socket, cpu.numa), []).append(cpu)
    return sorted(grouped.values(), key=lambda bucket: (-len(bucket), bucket[0].id))


def _take_pair(bucket: list[Cpu]) -> tuple[int, ...]:
    for at in range(len(bucket) - 1):
        if bucket[at].core == bucket[at + 1].core:
            first, second = bucket[at], bucket[at + 1]
            del bucket[at : at + 2]
            return first.id, second.id
    return ()


def _pinned(pods: Iterable[Pod], qos: QoSClass) -> CPUSet:
    cpus: set[int] = set()
    for pod in pods:
        if pod.raw_qos is qos:
            cpus |= pod.own_cpus
    return frozenset(cpus)
