"""Processes of a container, those in cgroups inside it among them."""

from __future__ import annotations

import pytest
from koordlet_fakefs import FakeHost

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.proc import members
from koordlet.kernel.proc.members import ids_within


def test_a_crowd_of_cgroups_inside_a_container_is_listed_in_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members, "MOST_BELOW", 3)
    host = FakeHost("v2")
    cgroups = Cgroups(host, detect(host))
    inside = [f"box/{number}" for number in range(5)]
    for cgroup in ("box", *inside, "box/0/deep"):
        host.make_cgroup(cgroup)
    first = host.spawn("box")
    found = [first, *(host.spawn(cgroup) for cgroup in inside)]
    assert ids_within(cgroups, "box", Resource.PROCS) == [each.pid for each in found[:4]]
