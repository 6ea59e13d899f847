"""Block devices and what lies below them, from sysfs and the mount table: partitions, device
mapper (LVM, crypt, multipath), md, and volumes of pods.

Limits hold for whole disks, so each name leads to the numbers of the disks at the bottom. No
external command runs, and what lies where is asked of the kernel alone.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from koordlet.decision.snapshot import BlockDevices
from koordlet.kernel.host import Host

_BFQ = "[bfq]"
_GONE = (errno.ENOENT, errno.ENODEV, errno.ENOTDIR)


@dataclass(frozen=True)
class _Device:
    """``below``: names of the devices that it is made of; none for a disk. ``schedulers``: of its
    requests, the one in use in brackets."""

    name: str
    number: str
    below: tuple[str, ...] = ()
    mapper: str = ""
    is_lvm: bool = False
    schedulers: str = ""


def read_block_devices(
    host: Host, sys_root: str = "/sys", proc_root: str = "/proc"
) -> BlockDevices:
    """What is there now. A device that comes or goes meanwhile is there or not. Raises OSError."""
    devices = {device.name: device for device in _devices(host, f"{sys_root}/block")}
    disks: dict[str, tuple[str, ...]] = {}
    groups: dict[str, set[str]] = {}
    for name, device in devices.items():
        numbers = disks[name] = disks_below(devices, name)
        if not device.mapper:
            continue
        disks[f"mapper/{device.mapper}"] = numbers
        if device.is_lvm:
            group, volume = split_lvm_name(device.mapper)
            disks[f"{group}/{volume}"] = numbers
            groups.setdefault(group, set()).update(numbers)
    by_number = {device.number: disks[name] for name, device in devices.items()}
    init = f"{proc_root}/1/mountinfo"
    table = init if host.exists(init) else f"{proc_root}/self/mountinfo"
    return BlockDevices(
        disks,
        {group: tuple(sorted(numbers)) for group, numbers in groups.items()},
        dict(_pod_volumes(host.read(table), by_number, disks)),
        frozenset(each.number for each in devices.values() if _BFQ in each.schedulers.split()),
    )


def disks_below(devices: Mapping[str, _Device], name: str) -> tuple[str, ...]:
    """Numbers of the disks that ``name`` is made of, sorted; its own where it is one."""
    found: set[str] = set()
    seen: set[str] = set()
    todo = [name]
    while todo:
        device = devices.get(todo.pop())
        if device is None or device.name in seen:
            continue
        seen.add(device.name)
        if device.below:
            todo.extend(device.below)
        else:
            found.add(device.number)
    return tuple(sorted(found))


def split_lvm_name(name: str) -> tuple[str, str]:
    """``vg-lv`` -> group and volume; a dash inside either is doubled (lvm(8))."""
    group, _, volume = name.replace("--", "\0").partition("-")
    return group.replace("\0", "-"), volume.replace("\0", "-")


def _devices(host: Host, base: str) -> Iterable[_Device]:
    for name in _names(host, base):
        directory = f"{base}/{name}"
        number = _text(host, f"{directory}/dev")
        if not number:  # a path of NVMe multipath, which has no device of its own
            continue
        mapper = _text(host, f"{directory}/dm/name")
        is_lvm = bool(mapper) and _text(host, f"{directory}/dm/uuid").startswith("LVM-")
        below = tuple(_names(host, f"{directory}/slaves"))
        schedulers = _text(host, f"{directory}/queue/scheduler")
        yield _Device(name, number, below, mapper, is_lvm, schedulers)
        for part in _names(host, directory):
            if part.startswith(name) and host.exists(f"{directory}/{part}/partition"):
                number = _text(host, f"{directory}/{part}/dev")
                if number:
                    yield _Device(part, number, (name,))


def _pod_volumes(
    data: bytes, by_number: Mapping[str, tuple[str, ...]], disks: Mapping[str, tuple[str, ...]]
) -> Iterable[tuple[str, tuple[str, ...]]]:
    """``<uid>/<volume>`` for mounts at ``.../pods/<uid>/volumes/<plugin>/<volume>[/mount]``."""
    for line in data.decode(errors="surrogateescape").splitlines():
        if "/volumes/" not in line:
            continue
        fields = line.split()
        parts = fields[4].split("/") if "-" in fields[6:] else []
        dash = fields.index("-", 6) if parts else 0
        if len(fields) < dash + 3:
            continue
        source = fields[dash + 2].removeprefix("/dev/")
        # File systems such as btrfs have numbers of their own.
        numbers = by_number.get(fields[2]) or disks.get(source)
        for index, part in enumerate(parts):
            if part == "volumes" and parts[index - 2 : index - 1] == ["pods"] and numbers:
                volume = parts[index + 2 : index + 3]
                if volume:
                    yield f"{parts[index - 1]}/{volume[0]}", numbers


def _names(host: Host, directory: str) -> list[str]:
    try:
        return host.listdir(directory)
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return []


def _text(host: Host, path: str) -> str:
    try:
        return host.read(path).decode(errors="replace").strip()
    except OSError as error:
        if error.errno not in _GONE:
            raise
        return ""
