"""The plugin in a scheduler, as an installed package offers it."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Claim, Pod, PodClass
from koord_scheduler.plan import third_party
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.outcomes import Failure, Placement
from koord_scheduler.plan.profile import GROUP, make

PACKAGE = Path(__file__).parent.parent
CLS = PodClass(number=1, namespace="a", requests={"cpu": 1000})


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(PACKAGE)
    declared = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["entry-points"]
    entries = {name: EntryPoint(name, value, GROUP) for name, value in declared[GROUP].items()}
    monkeypatch.setattr(third_party, "installed", lambda group: entries)
    yield
    for name in [name for name in sys.modules if name.startswith("koord_scheduler_example")]:
        del sys.modules[name]


def engine(**args: Any) -> Engine:
    """Two nodes in rack r1, one in r2, and a pod in r1; no other plugin."""
    cluster = Cluster()
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        labels = {"example.com/rack": rack}
        cluster.set_node(Node(name=name, labels=labels, allocatable={"cpu": 4000, "pods": 9}))
    cluster.add(Claim(Pod(key="a/there", uid="there", cls=CLS), "n1"))
    plugins = {"multiPoint": {"disabled": [{"name": "*"}], "enabled": [{"name": "QuietRacks"}]}}
    config = [{"name": "QuietRacks", "args": args}]
    tree = {"profiles": [{"plugins": plugins, "pluginConfig": config}]}
    (profile,) = third_party.load_profiles(tree)
    return Engine(cluster, make(profile))


def test_the_emptier_rack_is_better() -> None:
    decide = engine()
    judged = decide.evaluator.judge(CLS)
    assert judged.scores.tolist() == [0, 0, 200]  # the weight is that of the declaration
    placed = decide.place(Pod(key="a/p", uid="p", cls=CLS))
    assert isinstance(placed, Placement)
    assert placed.node == "n3"


def test_a_rack_under_repair_takes_no_pod() -> None:
    decide = engine(inRepair=["r2"])
    assert np.flatnonzero(decide.feasible(CLS)).tolist() == [0, 1]
    refused = engine(inRepair=["r1", "r2"]).place(Pod(key="a/p", uid="p", cls=CLS))
    assert isinstance(refused, Failure)
    assert refused.text() == ("0/3 nodes are available: 3 node(s) were in a rack under repair.")
    assert not refused.resolvable


def test_a_wrong_argument_is_named() -> None:
    with pytest.raises(ArgumentError, match=r"QuietRacks: .*inRepairs"):
        engine(inRepairs=["r1"])
