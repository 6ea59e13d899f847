"""Where systemd keeps a unit, found by the name of its directory: no D-Bus (``systemd.slice(5)``).

A slice's place follows from its name. Services and scopes are directly in some slice. Only units of
the system's manager count: a user's manager, or a container, may have a unit of the same name, and
whoever owns that subtree chooses its names.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from koordlet.kernel.cgroup.kubepods import is_root_name
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host

MAX_SLICES = 1000
_USERS = "user.slice"
_SUFFIXES = (".slice", ".service", ".scope", ".socket", ".mount", ".swap")


def check_unit(unit: str) -> None:
    """Raises ValueError for a name that is no unit with a cgroup."""
    if "/" in unit or not unit.endswith(_SUFFIXES) or unit.startswith("."):
        raise ValueError(
            f"systemd unit {unit!r}: must be a name such as nginx.service; units with a cgroup "
            f"end in {', '.join(_SUFFIXES)}"
        )


def slice_path(unit: str) -> str:
    """``a-b.slice`` -> ``a.slice/a-b.slice``; ``-.slice`` is the root."""
    stem = unit.removesuffix(".slice")
    if stem == "-":
        return ""
    parts = stem.split("-")
    return "/".join("-".join(parts[: end + 1]) + ".slice" for end in range(len(parts)))


def unit_root(host: Host, layout: Layout, cgroup_root: str = "/sys/fs/cgroup") -> str:
    """Mount point of the hierarchy in which systemd keeps its tree: the unified one, or on v1
    and hybrid the one named systemd."""
    named = f"{cgroup_root}/systemd"
    return named if layout.v1 and host.exists(named) else layout.reference_root


def is_searched(cgroup: str) -> bool:
    """Whether it is a slice in which units of the system's manager may be: it stands where its name
    says, and belongs neither to users nor to kubelet."""
    name = cgroup.rpartition("/")[2]
    is_slice = name.endswith(".slice") and slice_path(name) == cgroup
    return is_slice and cgroup != _USERS and not is_root_name(name)


def slices(host: Host, root: str) -> Iterator[str]:
    """Cgroups in which units may be, the root first; at most ``MAX_SLICES`` below it."""
    found = [""]
    for cgroup in found:
        yield cgroup
        try:
            names = host.subdirs(f"{root}/{cgroup}" if cgroup else root)
        except OSError:
            continue  # gone while we look
        below = (f"{cgroup}/{name}" if cgroup else name for name in names)
        found += islice(filter(is_searched, below), MAX_SLICES + 1 - len(found))
