"""From a block of the NodeSLO, or of an annotation, to disks and lines of files
(docs/reference/qos.md 7.1).

Unset fields are left alone. Limits and latencies are per disk; a device below which there are
several disks sets each of them.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import BlockDevices
from koordlet.protocol.slo import BlockCfg, IOCfg

FULL_WEIGHT = 100
LIMITS: Mapping[Resource, str] = {
    Resource.BLKIO_READ_IOPS: "read_iops",
    Resource.BLKIO_READ_BPS: "read_bps",
    Resource.BLKIO_WRITE_IOPS: "write_iops",
    Resource.BLKIO_WRITE_BPS: "write_bps",
}
_MODEL = {
    "rbps": "model_read_bps",
    "rseqiops": "model_read_seq_iops",
    "rrandiops": "model_read_rand_iops",
    "wbps": "model_write_bps",
    "wseqiops": "model_write_seq_iops",
    "wrandiops": "model_write_rand_iops",
}
_WIRE_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(IOCfg)}
_DEFAULT_LATENCY_US = 3000
_DEFAULT_PERCENT = 95

Lines = Mapping[Resource, str]
"""Resource -> what stands after the device's number; empty: no setting for that device."""


def disks_of(block: BlockCfg, devices: BlockDevices, pod_uid: str = "") -> tuple[str, ...] | str:
    """Numbers of the disks, or why there are none."""
    name = block.name or ""
    match block.type:
        case "device":
            known, what = devices.disks, "a block device of this node"
            name = name.removeprefix("/dev/")
        case "volumegroup":
            known, what = devices.volume_groups, "an LVM group with a volume in use on this node"
        case "podvolume" if pod_uid:
            known, what = devices.pod_volumes, "the directory of a volume mounted for this pod"
            name = f"{pod_uid}/{name}"
        case "podvolume":
            return f"block {name!r}: podvolume is only for pods"
        case _:
            return f"block {name!r} has no type (device, volumegroup or podvolume)"
    return known.get(name) or f"block {block.name!r} is not {what}"


def limit_lines(io: IOCfg) -> Lines:
    """Throttles and weight of a cgroup."""
    found = {}
    for resource, field in LIMITS.items():
        limit: int | None = getattr(io, field)
        if limit is not None:
            found[resource] = str(limit) if limit else ""
    if io.io_weight_percent is not None:
        full = io.io_weight_percent == FULL_WEIGHT
        found[Resource.BLKIO_COST_WEIGHT] = "" if full else str(io.io_weight_percent)
    return found


def cost_lines(io: IOCfg) -> Lines | str:
    """The cost model of a disk, for the root cgroup; or what is missing of it."""
    qos = {
        "rpct": _DEFAULT_PERCENT if io.read_latency_percent is None else io.read_latency_percent,
        "rlat": _DEFAULT_LATENCY_US if io.read_latency is None else io.read_latency,
        "wpct": _DEFAULT_PERCENT if io.write_latency_percent is None else io.write_latency_percent,
        "wlat": _DEFAULT_LATENCY_US if io.write_latency is None else io.write_latency,
    }
    found = {Resource.BLKIO_COST_QOS: f"enable=1 ctrl=user {_fields(qos)}"}
    if io.enable_user_model:
        model = {key: getattr(io, field) for key, field in _MODEL.items()}
        missing = [_WIRE_NAMES[_MODEL[key]] for key, value in model.items() if not value]
        if missing:
            return f"enableUserModel needs {', '.join(missing)} too (see koordlet io measure)"
        found[Resource.BLKIO_COST_MODEL] = f"ctrl=user {_fields(model)}"
    return found


def _fields(values: Mapping[str, int]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def over(original: str, lines: Mapping[str, str]) -> str:
    """The text of the whole file: ``lines`` (device -> rest) in place of those that ``original``
    has for the same devices; what it says of others stays."""
    kept = dict(line.split(" ", 1) for line in original.splitlines() if " " in line)
    kept.update(lines)
    return "\n".join(f"{device} {rest}" for device, rest in sorted(kept.items()) if rest)
