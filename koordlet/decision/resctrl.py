"""Shares of L3 cache and memory bandwidth in the units of a ``schemata`` file (spec/qos.md 6.2,
Linux ``Documentation/filesystems/resctrl.rst``)."""

from __future__ import annotations

GROUP_PREFIX = "koordlet-"
"""How the names of our resctrl groups begin; no other is ever touched."""

AMD = "AuthenticAMD"
INTEL = "GenuineIntel"
# AMD counts in eighths of a GB/s; 2048 is no limit. 25 GB/s * 8 * 0.8 stand for 100 %.
_AMD_UNLIMITED = 2048
_AMD_FULL = 160
_INTEL_STEP_PERCENT = 10


def ways(full: int, start_percent: int, end_percent: int) -> int:
    """The mask of the ways from ``start_percent`` to ``end_percent`` of ``full``, at least one.

    Raises ValueError where ``full`` has gaps, and for percents that are no range within 0..100.
    """
    if full <= 0 or full & (full + 1):
        raise ValueError(f"mask {full:x} of all ways has gaps")
    if not 0 <= start_percent < end_percent <= 100:
        raise ValueError(f"{start_percent} to {end_percent} % is no range within 0 to 100")
    count = full.bit_length()
    end = _ceil(count * end_percent, 100)
    start = min(_ceil(count * start_percent, 100), end - 1)
    return (1 << end) - (1 << start)


def bandwidth(percent: int, vendor: str) -> int:
    """What a line ``MB`` holds for 1 to 100 percent. Processors that are not AMD's take percents in
    steps of ten."""
    if vendor == AMD:
        return _AMD_UNLIMITED if percent == 100 else max(_AMD_FULL * percent // 100, 1)
    return _ceil(percent, _INTEL_STEP_PERCENT) * _INTEL_STEP_PERCENT


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)
