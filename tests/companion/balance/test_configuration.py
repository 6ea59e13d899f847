"""DeschedulerConfiguration (docs/reference/central.md 10.1) and its rounds (10.2)."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest
import yaml

from koord_scheduler.balance.configuration import PluginSet, enabled, make, read_configuration
from koord_scheduler.balance.plugins import GROUP, Known
from koord_scheduler.balance.round import Limits, PluginError, Running, run_round
from koord_scheduler.model.cluster.arguments import ArgumentError
from tests.companion.balance.build import Simple, node, pod, world

SAMPLE = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
enableContentionProfiling: true
enableProfiling: true
healthzBindAddress: 0.0.0.0:10251
metricsBindAddress: 0.0.0.0:10251
clientConnection: {acceptContentTypes: "", burst: 100, contentType: application/json, qps: 50}
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  resourceLock: leases
  resourceName: koord-descheduler
  resourceNamespace: koordinator-system
  retryPeriod: 2s
deschedulingInterval: 10s
dryRun: false
profiles:
- name: koord-descheduler
  plugins:
    evict: {enabled: [{name: MigrationController}]}
    balance: {enabled: [{name: LowNodeLoad}]}
  pluginConfig:
  - name: MigrationController
    args:
      apiVersion: descheduler/v1alpha2
      kind: MigrationControllerArgs
      evictQPS: "10"
      evictBurst: 1
  - name: LowNodeLoad
    args:
      apiVersion: descheduler/v1alpha2
      kind: LowNodeLoadArgs
      evictableNamespaces: {exclude: [kube-system, koordinator-system]}
      lowThresholds: {cpu: 45, memory: 55}
      highThresholds: {cpu: 75, memory: 80}
"""


def test_sample() -> None:
    found = make(read_configuration(yaml.safe_load(SAMPLE)))
    (profile,) = found.profiles
    assert [each.name for each in profile.balance] == ["LowNodeLoad"]
    assert profile.evictor.name == "MigrationController"
    assert profile.filters == (profile.evictor,), "one instance for both"
    assert found.configuration.interval_s == 10


def test_defaults() -> None:
    found = make(read_configuration({}))
    assert [each.name for each in found.profiles] == ["koord-descheduler"]
    assert found.configuration.limits == Limits(None, None, None)


def plugin_set(enabled: str = "", disabled: str = "") -> PluginSet:
    import msgspec

    return msgspec.convert(
        {
            "enabled": [{"name": each} for each in enabled.split()],
            "disabled": [{"name": each} for each in disabled.split()],
        },
        PluginSet,
    )


@pytest.mark.parametrize(
    ("on", "off", "found"),
    [
        ("", "", ("MigrationController",)),
        ("DefaultEvictor", "*", ("DefaultEvictor",)),
        ("DefaultEvictor", "MigrationController", ("DefaultEvictor",)),
        ("DefaultEvictor MigrationController", "", ("MigrationController", "DefaultEvictor")),
    ],
)
def test_merging(on: str, off: str, found: tuple[str, ...]) -> None:
    assert enabled("filter", plugin_set(on, off)) == found
    assert enabled("balance", plugin_set("A B", "")) == ("A", "B")


def profile(**plugins: Any) -> dict[str, Any]:
    return {"profiles": [{"name": "p", "plugins": plugins}]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"kind": "Other"}, "apiVersion and kind"),
        ({"deschedulingInterval": "soon"}, "deschedulingInterval"),
        ({"maxNoOfPodsToEvictTotal": -1}, "maxNoOfPodsToEvict"),
        ({"colour": 1}, "colour"),
        ({"profiles": [{"name": ""}]}, "a name of its own"),
        ({"profiles": [{"name": "a"}, {"name": "a"}]}, "a name of its own"),
        (profile(evict={"enabled": [{"name": "DefaultEvictor"}]}), "exactly one"),
        (profile(evict={"disabled": [{"name": "*"}]}), "exactly one"),
        (profile(balance={"enabled": [{"name": "PodLifeTime"}]}), "belongs under deschedule"),
        (profile(balance={"enabled": [{"name": "LowNodeLoad"}] * 2}), "enabled twice"),
        ({"profiles": [{"name": "p", "pluginConfig": [{"name": "X"}]}]}, "no plugin is called"),
        (
            {"profiles": [{"name": "p", "pluginConfig": [{"name": "LowNodeLoad"}] * 2}]},
            "arguments twice",
        ),
        ({"evictionLedger": {"within": "0s"}}, "within"),
    ],
)
def test_wrong_configurations_are_named(document: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        make(read_configuration(document))


def test_plugins_of_other_packages_are_loaded_when_enabled() -> None:
    broken = EntryPoint("Broken", "no.such.module:PLUGIN", GROUP)
    other = EntryPoint("Wrong", "koord_scheduler.balance.plugins:GROUP", GROUP)
    known = Known({"Broken": broken, "Wrong": other})
    assert "Broken" in known.names()
    for name, words in (("Broken", "cannot be loaded"), ("Wrong", "is no Plugin")):
        with pytest.raises(ArgumentError, match=words):
            known.get(name)


class _Says:
    def __init__(self, name: str, seen: list[str], *, fails: bool = False) -> None:
        self.name, self._seen, self._fails = name, seen, fails

    def run(self, _round: object) -> None:
        self._seen.append(self.name)
        if self._fails:
            raise PluginError("it cannot")


def test_a_round_goes_point_by_point_and_ends_at_an_error() -> None:
    seen: list[str] = []
    simple = Simple()

    def running(name: str, fails: bool = False) -> Running:
        one, two = _Says(f"{name}-d", seen), _Says(f"{name}-b", seen, fails=fails)
        return Running(name, None, (one,), (two,), (simple,), simple)

    here = world([node("n1"), node("n2")], [pod("p", "n1")])
    profiles = (running("a", fails=True), running("b"))
    outcome = run_round(here, profiles, Limits())
    assert seen == ["a-d", "b-d", "a-b"]
    assert outcome.error == "profile a: a-b: it cannot"


@pytest.mark.parametrize("nodes", [[], [node("n1")], [node("n1"), node("n2", ready=False)]])
def test_one_node_is_too_few(nodes: list[Any]) -> None:
    seen: list[str] = []
    simple = Simple()
    profiles = (Running("a", None, (), (_Says("x", seen),), (simple,), simple),)
    assert "needs two" in run_round(world(nodes, []), profiles, Limits()).error
    assert not seen
