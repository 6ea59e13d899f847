"""Applications whose cgroup or unit does not exist, and the names that may have been meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from koordlet.decision.snapshot import Application
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.state.units import slices, unit_root

SEARCHED = 500
"""Names that one is compared with: some milliseconds."""
MOST = 3
_CUTOFF = 0.6
_DEEPEST = 4


class Existing:
    """What was there when this object was made; listed on the first question."""

    def __init__(self, host: Host, layout: Layout, cgroup_root: str = "/sys/fs/cgroup") -> None:
        self._host = host
        self._root = layout.reference_root
        self._unit_root = unit_root(host, layout, cgroup_root)
        self._units: tuple[str, ...] | None = None
        self._cgroups: tuple[str, ...] | None = None

    def why_absent(self, application: Application) -> str:
        """Names that are not there, and what may have been meant."""
        if application.systemd_unit:
            text = f"unit {application.systemd_unit} does not run, or has another name"
            near = self._near(application.systemd_unit, self._all_units())
        else:
            text = f"cgroup {application.cgroup} does not exist"
            near = self._near(application.cgroup, self._all_cgroups())
        return f"{text}; nearest: {', '.join(near)}" if near else text

    def _near(self, wanted: str, names: Iterable[str]) -> list[str]:
        """Those whose last part is most like that of ``wanted``."""
        from difflib import get_close_matches

        by_last: dict[str, list[str]] = {}
        for name in names:
            by_last.setdefault(_bare(name), []).append(name)
        found = get_close_matches(_bare(wanted)[:128], by_last, n=MOST, cutoff=_CUTOFF)
        return [name for last in found for name in by_last[last] if name != wanted][:MOST]

    def _all_units(self) -> tuple[str, ...]:
        if self._units is None:
            found = (
                name
                for cgroup in slices(self._host, self._unit_root)
                for name in self._subdirs(self._unit_root, cgroup)
                if "." in name
            )
            self._units = tuple(dict.fromkeys(islice(found, SEARCHED)))
        return self._units

    def _all_cgroups(self) -> tuple[str, ...]:
        if self._cgroups is None:
            self._cgroups = tuple(islice(self._walk(), SEARCHED))
        return self._cgroups

    def _walk(self) -> Iterator[str]:
        """From the top; what kubelet makes is not an application."""
        level = [""]
        for _ in range(_DEEPEST):
            deeper = []
            for cgroup in level:
                names = self._subdirs(self._root, cgroup)
                inside = (f"{cgroup}/{name}".lstrip("/") for name in names)
                deeper += [each for each in inside if not each.startswith("kubepods")]
            yield from deeper
            level = deeper

    def _subdirs(self, root: str, cgroup: str) -> list[str]:
        try:
            return self._host.subdirs(f"{root}/{cgroup}" if cgroup else root)
        except OSError:
            return []  # gone while we look


def _bare(name: str) -> str:
    """The last part, without what systemd adds: ``shop.service`` and ``shop`` are alike."""
    last = name.rpartition("/")[2].lower()
    stem, dot, suffix = last.rpartition(".")
    return stem if dot and suffix in ("service", "scope", "slice") else last
