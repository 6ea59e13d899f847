"""The plugin in a descheduler, as an installed package offers it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.balance.configuration import make, read_configuration
from koord_scheduler.balance.plugins import GROUP, Known
from koord_scheduler.balance.round import Limits, run_round
from koord_scheduler.balance.world import Resident, World
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Owner, Pod, PodClass
from koordlet.protocol.qos import PriorityClass

PACKAGE = Path(__file__).parent.parent


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
    monkeypatch.syspath_prepend(PACKAGE)
    declared = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]
    yield Known({name: EntryPoint(name, value, GROUP) for name, value in declared[GROUP].items()})
    for name in [name for name in sys.modules if name.startswith("koord_scheduler_example")]:
        del sys.modules[name]


def document(**args: Any) -> dict[str, Any]:
    plugins = {
        "balance": {"enabled": [{"name": "NightShift"}]},
        "evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
        "filter": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]},
    }
    config = [{"name": "NightShift", "args": args}]
    return {"profiles": [{"name": "p", "plugins": plugins, "pluginConfig": config}]}


def world(hour: int) -> World:
    labels = {"example.com/day-node": ""}
    residents = []
    for number, cls in enumerate((PriorityClass.BATCH, PriorityClass.PROD)):
        of = PodClass(number=number, namespace="a", priority_class=cls)
        owner = Owner("ReplicaSet", "web", "u")
        residents.append(Resident(Pod(key=f"a/{cls}", uid=cls, cls=of, node="n1", owner=owner)))
    nodes = {"n1": Node(name="n1", labels=labels), "n2": Node(name="n2")}
    return World(hour * 3600.0, nodes, {"n1": tuple(residents)})


@pytest.mark.parametrize(("hour", "evicted"), [(7, []), (8, ["a/koord-batch"]), (18, [])])
def test_batch_pods_leave_in_working_hours(known: Known, hour: int, evicted: list[str]) -> None:
    profiles = make(read_configuration(document()), known).profiles
    outcome = run_round(world(hour), profiles, Limits())
    assert [each.resident.pod.key for each in outcome.requests] == evicted


def test_wrong_hours_are_named(known: Known) -> None:
    with pytest.raises(ArgumentError, match="firstHour"):
        make(read_configuration(document(firstHour=19)), known)
