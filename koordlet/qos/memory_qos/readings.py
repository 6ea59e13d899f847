"""The kernel's figures about the memory of one cgroup that memory QoS uses."""

from __future__ import annotations

import msgspec

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import InForce

_REFAULTS = ("workingset_refault_anon", "workingset_refault_file")
_STOLEN = "pgsteal"


class Reading(msgspec.Struct, frozen=True):
    """``stall_us``: time in which some task waited for memory; None where the cgroup does not
    tell. ``refault_bytes``: reclaimed and soon wanted again. ``stolen_bytes``: reclaimed by
    anybody. All but the usage count from the start of the cgroup."""

    usage_bytes: int
    stall_us: int | None
    refault_bytes: int
    stolen_bytes: int


def usage_bytes(in_force: InForce, cgroup: str) -> int | None:
    value = in_force.value(cgroup, Resource.MEMORY_USAGE)
    return value if isinstance(value, int) else None


def reading(in_force: InForce, cgroup: str, used_bytes: int, page_bytes: int) -> Reading:
    """``used_bytes``: as ``usage_bytes`` told. ``page_bytes``: the unit of the counters."""
    pages = dict.fromkeys((*_REFAULTS, _STOLEN), 0)
    for line in str(in_force.value(cgroup, Resource.MEMORY_STAT)).splitlines():
        name, _, count = line.partition(" ")
        if name in pages and count.isdigit():
            pages[name] = int(count)
    refaults = sum(pages[name] for name in _REFAULTS)
    return Reading(
        used_bytes, stall_us(in_force, cgroup), refaults * page_bytes, pages[_STOLEN] * page_bytes
    )


def stall_us(in_force: InForce, cgroup: str) -> int | None:
    """The total of the line ``some`` (``Documentation/accounting/psi.rst``)."""
    text = in_force.value(cgroup, Resource.MEMORY_PRESSURE)
    for line in str(text).splitlines():
        kind, _, rest = line.partition(" ")
        total = rest.rpartition("total=")[2]
        if kind == "some" and total.isdigit():
            return int(total)
    return None


def stalled_share(before_us: int | None, now_us: int | None, elapsed_s: float) -> float | None:
    """None if it is unknown. A counter that runs backwards belongs to a new cgroup."""
    if before_us is None or now_us is None or elapsed_s <= 0 or now_us < before_us:
        return None
    return (now_us - before_us) / 1e6 / elapsed_s
