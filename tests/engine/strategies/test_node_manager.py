"""YARN on a node, configured as docs/yarn.md says: its containers are held back as best-effort
pods are, its NodeManager is not, and the manager gives YARN what pods leave."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from koord_scheduler.model.facts import NodeFacts
from koord_scheduler.overcommit.configuration import load
from koord_scheduler.overcommit.nodeslo import slo_spec
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Wake
from tests.daemon.everything import FEATURES, held
from tests.daemon.world import LAYOUTS, NO_ALARMS, World

MakeWorld = Callable[..., World]
PAGE = Path(__file__).parents[3] / "docs" / "yarn.md"
AGENT, CONTAINERS = "system.slice/hadoop-yarn-nodemanager.service", "hadoop-yarn"
SWITCHED_ON = """
[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressPolicy = "cfsQuota"
cpuSuppressThresholdPercent = 65
"""


def _block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def _told() -> str:
    """What the manager's NodeSLO says of a node that the ConfigMap of the page selects."""
    data = {"host-application-config": _block("json")}
    node = NodeFacts("n1", labels={"yarn": "true"})
    spec, problems = slo_spec(load(data, None), node, None)
    assert spec is not None and problems == ()
    others, _ = slo_spec(load(data, None), NodeFacts("n2"), None)
    assert others is not None and "hostApplications" not in others
    return "\n".join(map(_table, spec["hostApplications"]))


def _table(application: dict[str, Any]) -> str:
    """The text of a JSON string is one of TOML too."""
    path = ", ".join(
        f"{key} = {json.dumps(value)}" for key, value in application["cgroupPath"].items()
    )
    lines = [f"{key} = {json.dumps(application[key])}" for key in ("name", "priority", "qos")]
    return "\n".join(["[[slo.hostApplications]]", *lines, f"cgroupPath = {{ {path} }}", ""])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("source", ["ConfigMap", "koordlet.toml"])
def test_containers_are_held_back_and_the_node_manager_is_not(
    make_world: MakeWorld, source: str, layout: str
) -> None:
    applications = _told() if source == "ConfigMap" else _block("toml")
    world = make_world(SWITCHED_ON + applications + NO_ALARMS, layout)
    agent = world.application(AGENT, 0.1)
    # Containers have cgroups of their own below that of YARN.
    world.application(CONTAINERS, 0.0)
    container = world.application(f"{CONTAINERS}/container_1", 4.0)
    world.start(FEATURES)
    world.run(12)
    found = {each.name: each for each in world.engine.snapshot(Wake()).applications}
    assert set(found) == {"yarn-nodemanager", "hadoop-yarn"}
    assert found["hadoop-yarn"].cgroup == CONTAINERS
    mine = held(world, "cpu-suppress")
    quota = mine[CONTAINERS, Resource.CPU_QUOTA_US]
    assert isinstance(quota, int) and quota > 0
    assert not any(cgroup.startswith(AGENT) for cgroup, _ in mine)
    assert agent.alive and container.alive
