"""Block I/O limits: blkio.throttle.* of v1 and io.max of v2 (kept, not enforced)."""

from __future__ import annotations

import errno
from collections.abc import Callable

from koordlet_fakefs.cgroup import Cgroup, Controller, Spec
from koordlet_fakefs.machine import Options
from koordlet_fakefs.parse import U64_MAX, refuse
from koordlet_fakefs.resources.io_cost import (
    MODEL_DEFAULTS,
    QOS_DEFAULTS,
    CostState,
    Device,
    cost_spec,
    device_of,
    read_weight,
    weight_writer,
)

_KEYS = ("rbps", "wbps", "riops", "wiops")
_V1_FILES = {
    "blkio.throttle.read_bps_device": "rbps",
    "blkio.throttle.write_bps_device": "wbps",
    "blkio.throttle.read_iops_device": "riops",
    "blkio.throttle.write_iops_device": "wiops",
}
_U32_MAX = (1 << 32) - 1
_MAX = {"rbps": U64_MAX, "wbps": U64_MAX, "riops": _U32_MAX, "wiops": _U32_MAX}


class IoState:
    """Limits by device and key (a missing one is none), and the cost model's part."""

    def __init__(self) -> None:
        self.limits: dict[Device, dict[str, int]] = {}
        self.cost = CostState()


def _attach(group: Cgroup) -> None:
    group.io = IoState()


def _detach(group: Cgroup) -> None:
    group.io = None


def _state(group: Cgroup) -> IoState:
    assert group.io is not None
    return group.io


def _set(group: Cgroup, device: Device, values: dict[str, int]) -> None:
    limits = _state(group).limits.setdefault(device, {})
    for key, value in values.items():
        if value >= _MAX[key]:
            limits.pop(key, None)
        else:
            limits[key] = value
    if not limits:
        del _state(group).limits[device]


def _ordered(group: Cgroup) -> list[tuple[Device, dict[str, int]]]:
    return sorted(_state(group).limits.items())


def _read_v1(key: str) -> Callable[[Cgroup], str]:
    return lambda group: "".join(
        f"{major}:{minor} {limits[key]}\n"
        for (major, minor), limits in _ordered(group)
        if key in limits
    )


def _write_v1(key: str) -> Callable[[Cgroup, str], None]:
    """``MAJ:MIN LIMIT``; 0 is no limit; iops wrap to 32 bits, as tg_set_conf stores them."""

    def write(group: Cgroup, text: str) -> None:
        device, rest = device_of(group, text)
        words = rest.split()
        if not words or not words[0].isdecimal():
            raise refuse(errno.EINVAL)
        value = int(words[0]) & U64_MAX
        _set(group, device, {key: value & _MAX[key] if value else _MAX[key]})

    return write


def _read_max(group: Cgroup) -> str:
    return "".join(
        f"{major}:{minor} " + " ".join(f"{key}={limits.get(key, 'max')}" for key in _KEYS) + "\n"
        for (major, minor), limits in _ordered(group)
    )


def _write_max(group: Cgroup, text: str) -> None:
    """``MAJ:MIN rbps=.. wbps=.. riops=.. wiops=..``, any subset, ``max`` = no limit.

    0 is ERANGE and, before Linux 7.2, 1 is EINVAL: a limit that io.low could not raise again
    (blk-throttle.c).
    """
    least = 1 if group.machine.options.kernel >= (7, 2) else 2
    device, rest = device_of(group, text)
    values: dict[str, int] = {}
    for word in rest.split():
        key, _, value = word.partition("=")
        if not (value == "max" or value.isdecimal()):
            raise refuse(errno.EINVAL)
        limit = U64_MAX if value == "max" else int(value)
        if not limit:
            raise refuse(errno.ERANGE)
        if key not in _KEYS or limit < least:
            raise refuse(errno.EINVAL)
        values[key] = limit
    _set(group, device, values)


def _is_anolis(options: Options) -> bool:
    return options.anolis


BLKIO = Controller(
    name="blkio",
    attach=_attach,
    detach=_detach,
    v1=(
        *(Spec(name, _read_v1(key), _write_v1(key)) for name, key in _V1_FILES.items()),
        Spec(
            "blkio.cost.weight",
            read_weight,
            weight_writer(100),
            on_root=False,
            when=_is_anolis,
        ),
        cost_spec("blkio.cost.qos", QOS_DEFAULTS)._replace(when=_is_anolis),
        cost_spec("blkio.cost.model", MODEL_DEFAULTS)._replace(when=_is_anolis),
    ),
    v2=(),
)

IO = Controller(
    name="io",
    attach=_attach,
    detach=_detach,
    v1=(),
    v2=(
        Spec("io.max", _read_max, _write_max, on_root=False),
        Spec("io.weight", read_weight, weight_writer(10_000), on_root=False),
        cost_spec("io.cost.qos", QOS_DEFAULTS),
        cost_spec("io.cost.model", MODEL_DEFAULTS),
        Spec("io.stat", lambda group: ""),
    ),
)
