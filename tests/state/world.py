"""A fake machine with the parts of the state room around it."""

from __future__ import annotations

from dataclasses import dataclass, field

from koordlet_fakefs import FakeHost

from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout, detect


@dataclass
class World:
    host: FakeHost
    layout: Layout
    cgroups: Cgroups
    changes: list[str] = field(default_factory=list)

    def changed(self) -> None:
        self.changes.append("change")


def make_world(layout: str = "hybrid", **options: object) -> World:
    host = FakeHost(layout, **options)
    found = detect(host)
    return World(host, found, Cgroups(host, found))
