"""Pressure as the store has it, by labels, put together for one subject."""

from __future__ import annotations

from collections.abc import Mapping

from koordlet.admin.model.usage import PressureView

PRESSED_PERCENT = 20.0
"""From here on latency-sensitive work suffers from a pressure; half of it is worth a look."""
THROTTLED_RATIO = 0.5
"""The same for the share of its CPU periods in which its limit stopped it."""
_FIELDS = {
    ("cpu", "some"): "cpu_some",
    ("cpu", "full"): "cpu_full",
    ("mem", "some"): "memory_some",
    ("mem", "full"): "memory_full",
    ("io", "some"): "io_some",
    ("io", "full"): "io_full",
}


def pressure_of(
    found: Mapping[tuple[str, ...], float], subject: tuple[str, ...]
) -> PressureView | None:
    """``found``: by the values of the labels of ``*_psi``; ``subject``: those of them that say
    whose it is. None where nothing is known."""
    fields = {
        field: found[key]
        for (resource, degree), field in _FIELDS.items()
        if (key := (*subject, resource, "10", degree)) in found
    }
    return PressureView(**fields) if fields else None
