"""DeschedulerConfiguration (``descheduler/v1alpha2``), docs/reference/central.md 10.1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from koord_scheduler.balance.ledger import LedgerArgs, check_ledger_args
from koord_scheduler.balance.plugins import BALANCE, DESCHEDULE, EVICT, FILTER, POINTS, Known, made
from koord_scheduler.balance.round import Limits, Running
from koord_scheduler.balance.selecting import check_selector, duration_s
from koord_scheduler.model.cluster.arguments import ArgumentError, without_nulls
from koordlet.protocol.selector import LabelSelector

API_VERSIONS = ("descheduler/v1alpha2", "descheduler.koordinator.sh/v1alpha2")
KIND = "DeschedulerConfiguration"
_WHAT = KIND
_BUILT_IN = ("MigrationController",)


class _Strict(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True
):
    """A word that the reference does not know is an error there too."""


class PluginName(_Strict, frozen=True):
    name: str


class PluginSet(_Strict, frozen=True):
    enabled: tuple[PluginName, ...] = ()
    disabled: tuple[PluginName, ...] = ()


class PluginSets(_Strict, frozen=True):
    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    evict: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()


class PluginConfig(_Strict, frozen=True):
    name: str
    args: Mapping[str, Any] = {}


class Profile(_Strict, frozen=True):
    name: str = ""
    node_selector: LabelSelector | None = None
    plugins: PluginSets = PluginSets()
    plugin_config: tuple[PluginConfig, ...] = ()


class LeaderElection(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """How long a lease lasts is that of the process (`koordlet/kube/lease.py`)."""

    leader_elect: bool = True
    resource_lock: str = "leases"
    resource_name: str = "koord-descheduler"
    resource_namespace: str = "koordinator-system"


class ClientConnection(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    qps: float = 50.0
    burst: int = 100


class DeschedulerConfiguration(_Strict, frozen=True):
    """``eviction_ledger`` is this project's own."""

    api_version: str = API_VERSIONS[0]
    kind: str = KIND
    descheduling_interval: str = "0s"
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    healthz_bind_address: str = "0.0.0.0:10251"
    metrics_bind_address: str = "0.0.0.0:10251"
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    profiles: tuple[Profile, ...] = ()
    eviction_ledger: LedgerArgs = LedgerArgs()

    @property
    def interval_s(self) -> float:
        """0: one round, and no more."""
        return duration_s(_WHAT, "deschedulingInterval", self.descheduling_interval)

    @property
    def limits(self) -> Limits:
        return Limits(
            self.max_no_of_pods_to_evict_per_node,
            self.max_no_of_pods_to_evict_per_namespace,
            self.max_no_of_pods_to_evict_total,
        )


class Made(NamedTuple):
    """A configuration with its plugins. The plugins remember, so it is made once."""

    configuration: DeschedulerConfiguration
    profiles: tuple[Running, ...]


def read_configuration(document: Any) -> DeschedulerConfiguration:
    """Of a parsed file. Raises ArgumentError."""
    try:
        found = msgspec.convert(without_nulls(document), DeschedulerConfiguration)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"{_WHAT}: {error}") from None
    if found.kind != KIND or found.api_version not in API_VERSIONS:
        raise ArgumentError(
            f"{_WHAT}: apiVersion and kind must be {API_VERSIONS[0]} and {KIND}, "
            f"not {found.api_version[:80]} and {found.kind[:80]}"
        )
    _ = found.interval_s
    check_selector(_WHAT, "nodeSelector", found.node_selector)
    check_ledger_args(found.eviction_ledger)
    for name, limit in zip(Limits._fields, found.limits, strict=True):
        if limit is not None and limit < 0:
            raise ArgumentError(f"{_WHAT}: maxNoOfPodsToEvict ({name}): must be at least 0")
    profiles = found.profiles or (Profile(name="koord-descheduler"),)
    names = [each.name for each in profiles]
    if not all(names) or len(set(names)) < len(names):
        raise ArgumentError(f"{_WHAT}: profiles: each needs a name of its own")
    return msgspec.structs.replace(found, profiles=profiles)


def make(configuration: DeschedulerConfiguration, known: Known | None = None) -> Made:
    """Raises ArgumentError with the profile, the plugin and the argument."""
    known = known or Known()
    running = []
    for profile in configuration.profiles:
        try:
            running.append(_running(profile, known))
        except ArgumentError as error:
            raise ArgumentError(f"{_WHAT}: profile {profile.name}: {error}") from None
    return Made(configuration, tuple(running))


def enabled(point: str, given: PluginSet) -> tuple[str, ...]:
    """Merged with what is enabled by default. Raises ArgumentError."""
    disabled = {each.name for each in given.disabled}
    default = _BUILT_IN if point in (EVICT, FILTER) and "*" not in disabled else ()
    found = [name for name in default if name not in disabled]
    seen: set[str] = set()
    for each in given.enabled:
        if each.name in seen:
            raise ArgumentError(f"plugins.{point}: {each.name} is enabled twice")
        seen.add(each.name)
        if each.name not in found:
            found.append(each.name)
    return tuple(found)


def _running(profile: Profile, known: Known) -> Running:
    check_selector(_WHAT, "nodeSelector", profile.node_selector)
    names = [each.name for each in profile.plugin_config]
    if len(set(names)) < len(names):
        raise ArgumentError("pluginConfig: a plugin has arguments twice")
    args = {each.name: each.args for each in profile.plugin_config}
    for name in names:
        known.get(name)
    instances: dict[str, Any] = {}

    def of(point: str) -> list[Any]:
        found = []
        for name in enabled(point, getattr(profile.plugins, point)):
            plugin = known.get(name)
            if point not in plugin.points:
                places = " and ".join(plugin.points)
                raise ArgumentError(f"plugins.{point}: {name} belongs under {places}")
            if name not in instances:
                instances[name] = made(plugin, args.get(name, {}))
            found.append(instances[name])
        return found

    parts = {point: of(point) for point in POINTS}
    if len(parts[EVICT]) != 1:
        raise ArgumentError("plugins.evict: exactly one plugin must be enabled")
    return Running(
        profile.name,
        profile.node_selector,
        tuple(parts[DESCHEDULE]),
        tuple(parts[BALANCE]),
        tuple(parts[FILTER]),
        parts[EVICT][0],
    )
