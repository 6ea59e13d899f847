"""What a container was created with, as far as hooks give such things.

Variables of a pod may be secrets. So of all its variables those alone are read that a hook of ours
may set, here and in every source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

VISIBLE_GPUS: Final = "NVIDIA_VISIBLE_DEVICES"
VARIABLES: Final = frozenset(
    {VISIBLE_GPUS, "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT", "LD_PRELOAD"}
)
"""Every variable that a hook may set."""
DEVICES: Final = "/dev/infiniband/"
"""Where every device is that a hook may add."""

_MAX_VALUE = 4096
_MAX_ENTRIES = 256


class Given(msgspec.Struct, frozen=True):
    """``env``: those of ``VARIABLES`` that it has. ``devices``: path -> ``MAJ:MIN``; ``mounts``:
    directories and files of the host that it has under their own path; None: not known."""

    env: Mapping[str, str]
    devices: Mapping[str, str] | None = None
    mounts: frozenset[str] | None = None


def variables(lines: Iterable[str]) -> dict[str, str]:
    """``NAME=value`` each; of two with one name the last counts, as for a process. A value that is
    longer than any of ours is cut, and so never equal to one."""
    found = {}
    for line in lines:
        name, separator, value = line.partition("=")
        if separator and name in VARIABLES:
            found[name] = value[: _MAX_VALUE + 1]
    return found


def devices(every: Iterable[tuple[str, int, int]]) -> dict[str, str]:
    """Path, major, minor."""
    found = ((path, f"{major}:{minor}") for path, major, minor in every if path.startswith(DEVICES))
    return {path: numbers for (path, numbers), _ in zip(found, range(_MAX_ENTRIES), strict=False)}


def mounts(every: Iterable[tuple[str, str]]) -> frozenset[str]:
    """Source, destination."""
    found = (destination for source, destination in every if source == destination)
    return frozenset(each for each, _ in zip(found, range(_MAX_ENTRIES), strict=False))
