"""systemd as the fake machine's init: units' properties, and the files it writes for them.

``realize`` is what each change of a property of the unit brings with it (systemd 257): all files
of the controllers that it has enabled there and in the slices above, with what it knows, else no
limit. ``reload`` is what
``daemon-reload`` does since systemd 262: the same for every unit.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from koordlet_fakefs.tree import add_directory

if TYPE_CHECKING:
    from koordlet_fakefs.host import FakeHost

INFINITY = 2**64 - 1
PERIOD_US = 100_000
_MEMORY = {
    "MemoryMin": ("memory.min", 0),
    "MemoryLow": ("memory.low", 0),
    "MemoryHigh": ("memory.high", INFINITY),
    "MemoryMax": ("memory.max", INFINITY),
}
_QUOTA, _PERIOD, _WEIGHT = "CPUQuotaPerSecUSec", "CPUQuotaPeriodUSec", "CPUWeight"


class FakeSystemd:
    """``calls``: units of which a property was set, with the properties. ``fails``: unit -> the
    error of each call about it."""

    def __init__(self, host: FakeHost) -> None:
        self._host = host
        self._known: dict[str, dict[str, int]] = {}
        self.calls: list[tuple[str, Mapping[str, int]]] = []
        self.fails: dict[str, OSError] = {}

    def boot(self) -> None:
        """Be there, as ``sd_booted(3)`` and the system bus have it."""
        add_directory(self._host.root, "run/systemd/system")
        add_directory(self._host.root, "run/dbus/system_bus_socket")

    def get(self, unit: str, names: Sequence[str]) -> dict[str, int]:
        self._check(unit)
        known = self._known.get(unit, {})
        return {name: known.get(name, _MEMORY.get(name, ("", INFINITY))[1]) for name in names}

    def set(self, unit: str, values: Mapping[str, int]) -> None:
        self._check(unit)
        for name in values:
            if name not in (_QUOTA, _PERIOD, _WEIGHT, *_MEMORY):
                raise OSError(errno.EINVAL, f"Cannot set property {name}", unit)
        self.calls.append((unit, dict(values)))
        self._known.setdefault(unit, {}).update(values)
        self.realize(unit)

    def close(self) -> None:
        """Nothing is open."""

    def reload(self) -> None:
        """``daemon-reload``."""
        self._reload("/sys/fs/cgroup")

    def _reload(self, directory: str) -> None:
        for name in self._host.subdirs(directory):
            if name.endswith((".slice", ".service", ".scope")):
                below = f"{directory}/{name}"
                self._write(below, self._known.get(name, {}))
                with contextlib.suppress(OSError):  # before Linux 7.2, where tasks run
                    self._host.write(f"{below}/cpuset.cpus", b"\n")
                self._reload(below)

    def realize(self, unit: str) -> None:
        directory = self._directory(unit)
        while directory.endswith((".slice", ".service", ".scope")):
            directory, _, name = directory.rpartition("/")
            self._write(f"{directory}/{name}", self._known.get(name, {}))

    def _write(self, directory: str, known: Mapping[str, int]) -> None:
        quota, period_us = known.get(_QUOTA, INFINITY), known.get(_PERIOD, INFINITY)
        period_us = PERIOD_US if period_us == INFINITY else period_us
        words = "max" if quota == INFINITY else str(quota * period_us // 1_000_000)
        self._host.write(f"{directory}/cpu.max", f"{words} {period_us}".encode())
        weight = known.get(_WEIGHT, INFINITY)
        text = "100" if weight == INFINITY else str(weight)
        self._host.write(f"{directory}/cpu.weight", text.encode())
        for name, (file, unset) in _MEMORY.items():
            value = known.get(name, unset)
            text = "max" if value == INFINITY else str(value)
            self._host.write(f"{directory}/{file}", text.encode())
        self._host.write(f"{directory}/memory.oom.group", b"0")  # no OOMPolicy=kill

    def _directory(self, unit: str) -> str:
        if not unit.endswith(".slice"):
            return f"/sys/fs/cgroup/system.slice/{unit}"
        stem = unit.removesuffix(".slice").split("-")
        above = ("-".join(stem[: end + 1]) + ".slice" for end in range(len(stem)))
        return "/sys/fs/cgroup/" + "/".join(above)

    def _check(self, unit: str) -> None:
        if unit in self.fails:
            raise self.fails[unit]
        if not unit.endswith(".slice") and not self._host.exists(self._directory(unit)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), unit)
