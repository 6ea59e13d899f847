"""Names of resctrl groups, and shares of L3 cache and memory bandwidth in the units of a
``schemata`` file (docs/reference/qos.md 6.2, Linux ``Documentation/filesystems/resctrl.rst``)."""

from __future__ import annotations

GROUP_PREFIX = "koordlet-"
"""How the names of our resctrl groups begin; no other is ever touched."""

PRESENT = "present"
"""The value of a monitor group that exists; else it is ``ABSENT``."""

MONITORS = "mon_groups"
"""The directory of a control group in which its monitor groups are."""

AMD = "AuthenticAMD"
INTEL = "GenuineIntel"
# AMD counts in eighths of a GB/s; 2048 is no limit. 25 GB/s * 8 * 0.8 stand for 100 %.
_AMD_UNLIMITED = 2048
_AMD_FULL = 160
STEP_PERCENT = 10
"""Step and least value of memory bandwidth where the kernel does not tell them."""


def pod_group(uid: str) -> str:
    """Name of the group that is for this pod alone."""
    return f"{GROUP_PREFIX}{uid}"


def monitor_group(control: str, name: str) -> str:
    """Path of a monitor group. ``control``: ``""`` is the default group."""
    return f"{control}/{MONITORS}/{name}" if control else f"{MONITORS}/{name}"


def control_group(group: str) -> str:
    """The one that a monitor group is part of; a control group itself."""
    control, is_monitor, _ = group.rpartition(f"{MONITORS}/")
    return control.rstrip("/") if is_monitor else group


def ways(full: int, start_percent: int, end_percent: int, least: int = 1) -> int:
    """The mask of the ways from ``start_percent`` to ``end_percent`` of ``full``; at least
    ``least`` ways, upwards from the start as far as there are some.

    Raises ValueError where ``full`` has gaps, and for percents that are no range within 0..100.
    """
    if full <= 0 or full & (full + 1):
        raise ValueError(f"mask {full:x} of all ways has gaps")
    if not 0 <= start_percent < end_percent <= 100:
        raise ValueError(f"{start_percent} to {end_percent} % is no range within 0 to 100")
    count = full.bit_length()
    end = _ceil(count * end_percent, 100)
    start = min(_ceil(count * start_percent, 100), end - 1)
    end = min(max(end, start + least), count)
    start = max(min(start, end - least), 0)
    return (1 << end) - (1 << start)


def bandwidth(
    percent: int, vendor: str, least: int = STEP_PERCENT, step: int = STEP_PERCENT
) -> int:
    """What a line ``MB`` holds for 1 to 100 percent. Processors that are not AMD's take percents
    from ``least`` on, in steps (``info/MB/min_bandwidth`` and ``bandwidth_gran``)."""
    if vendor == AMD:
        return _AMD_UNLIMITED if percent == 100 else max(_AMD_FULL * percent // 100, 1)
    return min(_ceil(max(percent, least), step) * step, 100)


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
