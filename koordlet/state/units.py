"""Where systemd keeps a unit, found by the name of its directory: no D-Bus (``systemd.slice(5)``).

A slice's place follows from its name. Services and scopes are directly in some slice, or in the
slices of a user's service manager.
"""

from __future__ import annotations

from collections.abc import Iterator

from koordlet.kernel.host import Host
from koordlet.kernel.layout import Layout

_USER_MANAGER = "user@"
_MAX_DEPTH = 8
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


def slices(host: Host, root: str) -> Iterator[str]:
    """Cgroups in which units may be, the root first."""
    level = [""]
    for _ in range(_MAX_DEPTH):
        deeper = []
        for cgroup in level:
            yield cgroup
            try:
                names = host.subdirs(f"{root}/{cgroup}" if cgroup else root)
            except OSError:
                continue  # gone while we look
            deeper += [
                f"{cgroup}/{name}" if cgroup else name
                for name in names
                if (name.endswith(".slice") and not name.startswith("kubepods"))
                or name.startswith(_USER_MANAGER)
            ]
        level = deeper
