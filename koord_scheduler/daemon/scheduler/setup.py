"""What the scheduler is made of: profiles, their plugins, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from koord_scheduler.model.cluster.arguments import ArgumentError, read_args
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.model.cluster.verdict import Gate, Plugin
from koord_scheduler.plan.engine import Engine
from koord_scheduler.plan.preemption import PreemptionArgs, Preemptor
from koord_scheduler.plan.profile import Profile, ProfileError, built_in, make
from koord_scheduler.plan.third_party import load_profiles
from koord_scheduler.share.gang.book import Gangs
from koord_scheduler.share.gang.declared import coscheduling_args
from koord_scheduler.share.quota import quotas as quota_plugin
from koord_scheduler.share.quota.quotas import Quotas

_MOST_BYTES = 1 << 20
COSCHEDULING, QUOTA, PREEMPTION = "Coscheduling", "ElasticQuota", "DefaultPreemption"


class SetupError(Exception):
    """The text says what is wrong with the configuration, and what to do."""


class Setup(NamedTuple):
    """``bindings_per_s``, ``bindings_burst``: ``clientConnection.qps`` and ``burst`` of the file;
    None where it has none."""

    profiles: tuple[Profile, ...]
    bindings_per_s: float | None = None
    bindings_burst: int | None = None


def load(path: str) -> Setup:
    """Of a KubeSchedulerConfiguration; the built-in profile without a file. All plugins are made
    once, so that a wrong argument is told before anything runs. Raises SetupError."""
    if not path:
        return Setup((built_in(),))
    try:
        with Path(path).open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise SetupError(f"{path}: more than {_MOST_BYTES} bytes")
        tree = yaml.safe_load(text)
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise SetupError(f"{path}: {error}") from None
    if not isinstance(tree, Mapping):
        raise SetupError(f"{path}: it must be a KubeSchedulerConfiguration")
    try:
        profiles = load_profiles(tree)
        for profile in profiles:
            Parts(Cluster(), (profile,))
    except (ProfileError, ArgumentError) as error:
        raise SetupError(f"{path}: {error}") from None
    connection = tree.get("clientConnection")
    found: Mapping[str, Any] = connection if isinstance(connection, Mapping) else {}
    return Setup(profiles, _positive(path, found, "qps"), _whole(path, found, "burst"))


class Parts:
    """Engines by the name of the scheduler that pods ask for; gangs and quotas are shared by all
    profiles, with the arguments of the first one that has them. Raises ProfileError or
    ArgumentError."""

    def __init__(self, cluster: Cluster, profiles: tuple[Profile, ...]) -> None:
        self.profiles = {profile.scheduler_name: profile for profile in profiles}
        self.gangs: Gangs | None = None
        self.quotas: Quotas | None = None
        gangs, quotas = _first(profiles, COSCHEDULING), _first(profiles, QUOTA)
        if gangs is not None:
            self.gangs = Gangs(cluster.claims, coscheduling_args(gangs.args.get(COSCHEDULING, {})))
        if quotas is not None:
            self.quotas = quota_plugin.make(quotas.args.get(QUOTA, {}))
            self.quotas.follow(cluster)
        self.engines: dict[str, Engine] = {}
        self.preemptors: dict[str, Preemptor] = {}
        for name, profile in self.profiles.items():
            gates: list[Gate] = []
            if self.quotas is not None and QUOTA in profile.own:
                gates.append(self.quotas)
            engine = self.engines[name] = Engine(cluster, make(profile), gates)
            if PREEMPTION in profile.own:
                args = PreemptionArgs()
                if given := profile.args.get(PREEMPTION):
                    args = read_args(PREEMPTION, PreemptionArgs, given)
                self.preemptors[name] = Preemptor(engine, None, args)

    @property
    def first(self) -> Engine:
        return next(iter(self.engines.values()))

    def plugin(self, name: str) -> Plugin | None:
        """The one of the first profile that has it."""
        for engine in self.engines.values():
            for plugin, _ in engine.plugins:
                if plugin.name == name:
                    return plugin
        return None

    def plugins(self) -> frozenset[str]:
        """Names of all that some profile has."""
        return frozenset(
            plugin.name for engine in self.engines.values() for plugin, _ in engine.plugins
        )


def _first(profiles: tuple[Profile, ...], name: str) -> Profile | None:
    return next((profile for profile in profiles if name in profile.own), None)


def _positive(path: str, found: Mapping[str, Any], name: str) -> float | None:
    value = found.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or value <= 0:
        raise SetupError(f"{path}: clientConnection.{name} must be a number above 0")
    return float(value)


def _whole(path: str, found: Mapping[str, Any], name: str) -> int | None:
    value = _positive(path, found, name)
    return None if value is None else max(int(value), 1)
