"""``koordlet io measure``."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Mapping

import msgspec

from koordlet.cli import output
from koordlet.cli.main import Exit, complain
from koordlet.decision.snapshot import BlockDevices
from koordlet.kernel.block import read_block_devices
from koordlet.kernel.io_measure import (
    LARGE_BYTES,
    SMALL_BYTES,
    Load,
    Rate,
    disks_under,
    measure,
    open_device,
    open_nameless,
)
from koordlet.kernel.linux import LinuxHost

_READS = {
    "rbps": Load(LARGE_BYTES),
    "rseqiops": Load(SMALL_BYTES),
    "rrandiops": Load(SMALL_BYTES, is_random=True),
}
_WRITES = {
    "wbps": Load(LARGE_BYTES, is_write=True),
    "wseqiops": Load(SMALL_BYTES, is_write=True),
    "wrandiops": Load(SMALL_BYTES, is_random=True, is_write=True),
}
_WIRE = {
    "rbps": "modelReadBPS",
    "rseqiops": "modelReadSeqIOPS",
    "rrandiops": "modelReadRandIOPS",
    "wbps": "modelWriteBPS",
    "wseqiops": "modelWriteSeqIOPS",
    "wrandiops": "modelWriteRandIOPS",
}
_FREE_SHARE = 0.5
"""Share of the free space that a file may take."""


class Figure(msgspec.Struct, frozen=True):
    """``lower_bound``: the measuring process cannot ask for much more."""

    key: str
    value: int
    unit: str
    lower_bound: bool


class Measured(msgspec.Struct, frozen=True):
    """``model``: the line for io.cost.model; None without the figures for writes. ``disks``:
    numbers of the disks below the device."""

    device: str
    disks: tuple[str, ...]
    figures: tuple[Figure, ...]
    model: str | None
    notes: tuple[str, ...]


def main(args: argparse.Namespace) -> int:
    devices = read_block_devices(LinuxHost())
    name = _known(args.device, devices)
    disks = devices.disks.get(name)
    if disks is None:
        known = ", ".join(sorted(devices.disks)) or "none"
        return complain(f"{args.device} is no block device of this machine ({known})", Exit.USAGE)
    if args.directory and (fault := _not_there(args, disks, devices)):
        return complain(fault, Exit.USAGE)
    found = dict(_figures(args, name))
    answer = _measured(name, disks, found)
    output.emit(answer, args.output, lambda: lines(answer))
    return Exit.OK


def _known(device: str, devices: BlockDevices) -> str:
    """The name that the kernel has for it; links such as /dev/disk/by-id/... lead there."""
    name = device.removeprefix("/dev/")
    if name in devices.disks:
        return name
    return os.path.basename(os.path.realpath(os.path.join("/dev", device)))


def _not_there(
    args: argparse.Namespace, disks: tuple[str, ...], devices: BlockDevices
) -> str | None:
    """Faults of the directory, found before anything is written."""
    if not os.path.isdir(args.directory):
        return f"{args.directory} is no directory"
    below = disks_under(args.directory, devices)
    if below != disks:
        where = ", ".join(below) if below is not None else "no block device that can be told"
        return f"{args.directory} lies on {where}, not on {args.device} ({', '.join(disks)})"
    free = shutil.disk_usage(args.directory).free
    if args.size * (1 << 20) > free * _FREE_SHARE:
        return (
            f"a file of {args.size} MiB is more than half of what is free in {args.directory} "
            f"({output.size(free)}); give a smaller --size"
        )
    return None


def _figures(args: argparse.Namespace, name: str) -> Iterator[tuple[str, Rate]]:
    """Reads of the device itself, or reads and writes of a file in the directory."""
    loads = _READS | (_WRITES if args.directory else {})
    print(
        f"koordlet: measuring {name}, {len(loads)} times {args.seconds:g} s; other work on the "
        "disk makes the figures too low",
        file=sys.stderr,
    )
    if args.directory:
        size_bytes = args.size << 20
        descriptor = open_nameless(args.directory, size_bytes)
    else:
        descriptor, size_bytes = open_device(f"/dev/{name}")
    try:
        for key, load in loads.items():
            yield key, measure(descriptor, size_bytes, load, args.seconds)
    finally:
        os.close(descriptor)


def _measured(name: str, disks: tuple[str, ...], found: Mapping[str, Rate]) -> Measured:
    figures = tuple(_figure(key, rate) for key, rate in found.items())
    notes = []
    missing = [key for key in _WIRE if key not in found]
    if missing:
        notes.append(
            f"{', '.join(missing)} not measured: name a directory on the disk with --directory, in "
            "which a file may be written"
        )
    if any(figure.lower_bound for figure in figures):
        notes.append(
            "a figure with > is a lower bound: this process cannot ask for much more, the disk may "
            "be faster; fio tells"
        )
    if len(disks) > 1:
        notes.append(
            f"{name} lies on several disks ({', '.join(disks)}); a cost model belongs to one disk, "
            "so measure each of them"
        )
    model = None
    if not missing and len(disks) == 1:
        fields = " ".join(f"{figure.key}={figure.value}" for figure in figures)
        model = f"{disks[0]} ctrl=user model=linear {fields}"
    return Measured(name, disks, figures, model, tuple(notes))


def _figure(key: str, rate: Rate) -> Figure:
    is_bandwidth = key.endswith("bps")
    value = rate.bytes_per_s if is_bandwidth else rate.per_s
    return Figure(key, max(int(value), 1), "B/s" if is_bandwidth else "1/s", rate.own_limit)


def lines(answer: Measured) -> list[str]:
    found = output.columns(
        ("FIGURE", ">VALUE", "UNIT", "IN ioCfg"),
        (
            (
                figure.key,
                f"{'>' if figure.lower_bound else ''}{figure.value}",
                figure.unit,
                _WIRE[figure.key],
            )
            for figure in answer.figures
        ),
    )
    if answer.model is not None:
        found += ["", *_section(answer)]
    for note in answer.notes:
        found += ["", *output.wrap(note)]
    return found


def _section(answer: Measured) -> list[str]:
    """What goes into koordlet.toml."""
    base = "slo.resourceQOSStrategy.cgroupRoot.blkioQOS"
    return [
        f"[{base}]",
        "enable = true",
        f"[[{base}.blocks]]",
        f'name = "{answer.device}"',
        'type = "device"',
        f"[{base}.blocks.ioCfg]",
        "enableUserModel = true",
        *(f"{_WIRE[figure.key]} = {figure.value}" for figure in answer.figures),
    ]
