"""What is written to the node's Device object, and when (docs/reference/metrics.md 6.5). Pure.

``decision/device_report.py`` says what should be there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from koordlet.protocol.objects import device as shape

LABELS = (
    shape.GPU_MODEL,
    shape.GPU_VENDOR,
    shape.GPU_DRIVER_VERSION,
    shape.GPU_PARTITION_POLICY,
)
ANNOTATIONS = (shape.GPU_PARTITIONS,)
"""What koordlet writes there. Others are those of other writers, and stay (D-4)."""


def devices_there(spec: Mapping[str, Any]) -> tuple[shape.DeviceInfo, ...] | None:
    """Those of an object; None where somebody has written what is no list of devices."""
    try:
        return msgspec.convert(spec, shape.DeviceSpec).devices
    except msgspec.ValidationError:
        return None


def changes(
    wanted: shape.Device,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    spec: Mapping[str, Any],
) -> dict[str, Any]:
    """A merge patch that makes of what is there what is wanted; empty where it says so already.
    None as a value takes a key away."""
    metadata = {
        "labels": _differing(LABELS, wanted.labels, labels),
        "annotations": _differing(ANNOTATIONS, wanted.annotations, annotations),
    }
    told = {name: values for name, values in metadata.items() if values}
    patch: dict[str, Any] = {"metadata": told} if told else {}
    there = devices_there(spec)
    if there is None or _ordered(there) != _ordered(wanted.devices):
        patch["spec"] = {"devices": msgspec.to_builtins(wanted.devices)}
    return patch


def _differing(
    ours: tuple[str, ...], wanted: Mapping[str, str], there: Mapping[str, str]
) -> dict[str, str | None]:
    return {
        name: wanted.get(name)
        for name in ours
        if wanted.get(name) != there.get(name) and (name in wanted or name in there)
    }


def _ordered(devices: tuple[shape.DeviceInfo, ...]) -> list[shape.DeviceInfo]:
    """The order of devices means nothing, and neither does that of a device's conditions."""
    each_ordered = (
        msgspec.structs.replace(
            each, conditions=tuple(sorted(each.conditions, key=lambda one: one.type))
        )
        for each in devices
    )
    return sorted(
        each_ordered,
        key=lambda each: (each.type, -1 if each.minor is None else each.minor, each.id),
    )
