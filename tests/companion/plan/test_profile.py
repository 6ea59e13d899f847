"""Profiles: the built-in one, KubeSchedulerConfiguration, plugins of other packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any

import pytest
import yaml

from koord_scheduler.model.cluster.arguments import Args, ArgumentError, Declared, read_args
from koord_scheduler.model.cluster.verdict import Plugin
from koord_scheduler.place.plugins import PLUGINS
from koord_scheduler.plan import third_party
from koord_scheduler.plan.profile import (
    OWN,
    SAMPLE_ARGS,
    Profile,
    ProfileError,
    built_in,
    make,
    read_profiles,
)
from tests.companion.plan.build import Fit, Taints

HERE = "tests.companion.plan.test_profile"
DECLARED = (
    Declared("TaintToleration", "taints", f"{HERE}:make_taints", 3),
    Declared("NodeResourcesFit", "room", f"{HERE}:make_fit"),
    Declared("LoadAwareScheduling", "load", f"{HERE}:make_load"),
    Declared("Reservation", "reservations", f"{HERE}:make_load", 5000),
    Declared("NodeResourcesFitPlus", "more", f"{HERE}:make_load", by_default=False),
)
SAMPLE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  resourceName: koord-scheduler
profiles:
  - schedulerName: koord-scheduler
    plugins:
      queueSort: {enabled: [{name: PrioritySort}]}
      preFilter: {enabled: [{name: Reservation}, {name: Coscheduling}, {name: ElasticQuota}]}
      filter: {enabled: [{name: LoadAwareScheduling}, {name: Reservation}]}
      postFilter: {disabled: [{name: "*"}], enabled: [{name: DefaultPreemption}]}
      score:
        enabled:
          - {name: LoadAwareScheduling, weight: 7}
          - {name: Reservation, weight: 5000}
      permit: {enabled: [{name: Coscheduling}]}
      bind: {disabled: [{name: "*"}], enabled: [{name: Reservation}, {name: DefaultBinder}]}
    pluginConfig:
      - name: LoadAwareScheduling
        args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: X, fooPercent: 5}
      - name: Coscheduling
        args: {defaultTimeout: 600s}
"""


class LoadArgs(Args, frozen=True):
    foo_percent: int = 1


class Load(Fit):
    def __init__(self, name: str, args: LoadArgs) -> None:
        super().__init__()
        self.name = name
        self.args = args
        self.others: Mapping[str, Plugin] = {}

    def connect(self, plugins: Mapping[str, Plugin]) -> None:
        self.others = plugins


def make_taints(args: Mapping[str, Any]) -> Plugin:
    return Taints()


def make_fit(args: Mapping[str, Any]) -> Plugin:
    return Fit()


def make_load(args: Mapping[str, Any]) -> Plugin:
    return Load("LoadAwareScheduling", read_args("LoadAwareScheduling", LoadArgs, args))


def read(text: str, **more: Any) -> Profile:
    (found,) = read_profiles(yaml.safe_load(text), plugins=DECLARED, **more)
    return found


def shape(profile: Profile) -> list[tuple[str, int, bool, bool]]:
    return [(each.declared.name, *each[1:]) for each in profile.enabled]


def test_the_built_in_profile_has_what_is_declared_for_it() -> None:
    profile = built_in(plugins=DECLARED)
    assert profile.scheduler_name == "koord-scheduler"
    assert shape(profile) == [
        ("TaintToleration", 3, True, True),
        ("NodeResourcesFit", 1, True, True),
        ("LoadAwareScheduling", 1, True, True),
        ("Reservation", 5000, True, True),
    ]
    assert profile.own == OWN
    assert read_profiles({}, plugins=DECLARED) == (profile,)


def test_the_sample_of_the_reference_is_read() -> None:
    profile = read(SAMPLE)
    assert shape(profile) == [
        ("TaintToleration", 3, True, True),  # those of Kubernetes are on
        ("NodeResourcesFit", 1, True, True),
        ("LoadAwareScheduling", 7, True, True),
        ("Reservation", 5000, True, True),
    ]
    assert profile.own == OWN
    assert profile.args["Coscheduling"] == {"defaultTimeout": "600s"}


def test_points_decide_whether_a_plugin_refuses_or_scores() -> None:
    profile = read(
        """
profiles:
- schedulerName: s
  plugins:
    filter: {enabled: [{name: LoadAwareScheduling}], disabled: [{name: TaintToleration}]}
    score: {disabled: [{name: "*"}], enabled: [{name: NodeResourcesFitPlus, weight: 4}]}
    postFilter: {disabled: [{name: "*"}]}
"""
    )
    assert shape(profile) == [
        ("NodeResourcesFit", 1, True, False),
        ("LoadAwareScheduling", 1, True, False),
        ("NodeResourcesFitPlus", 4, False, True),
    ]
    assert not profile.own & {"DefaultPreemption", "Coscheduling", "ElasticQuota"}


def test_multi_point_enables_everywhere() -> None:
    profile = read(
        """
profiles:
- plugins:
    multiPoint: {enabled: [{name: Reservation, weight: 9}], disabled: [{name: "*"}]}
    score: {disabled: [{name: Reservation}]}
"""
    )
    assert profile.scheduler_name == "default-scheduler"
    assert shape(profile) == [("Reservation", 9, True, False)]


def test_a_profile_without_plugins_is_the_built_in_one_with_other_arguments() -> None:
    profile = read(
        """
profiles:
- schedulerName: mine
  pluginConfig: [{name: LoadAwareScheduling, args: {fooPercent: 70}}]
"""
    )
    assert shape(profile) == shape(built_in(plugins=DECLARED))
    assert profile.args["LoadAwareScheduling"] == {"fooPercent": 70}
    assert profile.args["NodeResourcesFit"] == SAMPLE_ARGS["NodeResourcesFit"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: Deployment", "must be .* and KubeSchedulerConfiguration"),
        ("profiles: 7", "cannot be read"),
        (
            "profiles: [{plugins: {filter: {enabled: [{name: LoadAwareSchedulin}]}}}]",
            "did you mean LoadAwareScheduling?",
        ),
        ("profiles: [{plugins: {sort: {}}}]", "plugins.sort is no extension point"),
        ("profiles: [{plugins: {filter: {allowed: []}}}]", "allowed"),
        ("profiles: [{pluginConfig: [{name: Lode}]}]", "pluginConfig: there is no plugin 'Lode'"),
        ("profiles: [{schedulerName: a}, {schedulerName: a}]", "two of them have the same"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        read_profiles(yaml.safe_load(text), plugins=DECLARED)


def test_plugins_are_made_with_their_arguments_and_meet_each_other() -> None:
    text = "profiles: [{schedulerName: s, plugins: {filter: {enabled: [{name: %s}]}}, %s}]"
    args = "pluginConfig: [{name: LoadAwareScheduling, args: {%s}}]"
    made = make(read(text % ("LoadAwareScheduling", args % "fooPercent: 3")))
    assert [plugin.name for plugin, _ in made] == [
        "TaintToleration",
        "NodeResourcesFit",
        "LoadAwareScheduling",
    ]
    load: Any = made[2][0]
    assert load.args.foo_percent == 3
    assert load.others["NodeResourcesFit"] is made[1][0]
    with pytest.raises(ArgumentError, match=r"LoadAwareScheduling: .*fooPercen"):
        make(read(text % ("LoadAwareScheduling", args % "fooPercen: 3")))
    with pytest.raises(ProfileError, match="calls itself 'LoadAwareScheduling'"):
        make(read(text % ("Reservation", "pluginConfig: []")))


def test_what_cannot_be_imported_is_said() -> None:
    lost = Declared("LoadAwareScheduling", "", "koord_scheduler.nowhere:make")
    profile = built_in(plugins=(lost,))
    with pytest.raises(ProfileError, match="LoadAwareScheduling cannot be had"):
        make(profile)


THEIRS = Declared("NodeQuiet", "theirs", f"{HERE}:make_load", 2)


def test_plugins_of_other_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "NodeQuiet": EntryPoint("NodeQuiet", f"{HERE}:THEIRS", third_party.GROUP),
        "Broken": EntryPoint("Broken", "no_such_package:PLUGIN", third_party.GROUP),
        "NoPlugin": EntryPoint("NoPlugin", f"{HERE}:SAMPLE", third_party.GROUP),
    }
    monkeypatch.setattr(third_party, "installed", lambda group: entries)
    text = "profiles: [{schedulerName: s, plugins: {multiPoint: {enabled: [{name: %s}]}}}]"
    (profile,) = third_party.load_profiles(yaml.safe_load(text % "NodeQuiet"))
    assert profile.enabled[-1].declared == THEIRS._replace(by_default=False)
    assert profile.enabled[-1].weight == 2
    for name, words in (
        ("Broken", "plugin Broken of no_such_package:PLUGIN cannot be imported"),
        ("NoPlugin", "must be a Declared of that name"),
        ("Quiet", "did you mean NodeQuiet.*Broken, .*NodeQuiet"),
    ):
        with pytest.raises(ProfileError, match=words):
            third_party.load_profiles(yaml.safe_load(text % name))


def test_all_declared_plugins_can_be_made() -> None:
    made = make(built_in())
    assert len(made) == len([each for each in PLUGINS if each.by_default])
    assert len({each.name for each in PLUGINS}) == len(PLUGINS)
