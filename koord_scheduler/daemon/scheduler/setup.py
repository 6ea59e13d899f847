"""What the scheduler is made of: profiles, their plugins, and what they share."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from koord_scheduler.daemon.files import FileError, read_document
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.cluster import Cluster
from koord_scheduler.plan.parts import Parts as Parts
from koord_scheduler.plan.profile import Profile, ProfileError, built_in
from koord_scheduler.plan.third_party import load_profiles
from koord_scheduler.share.quota.words import QuotaGates, quota_gates


class SetupError(Exception):
    """The text says what is wrong with the configuration, and what to do."""


class Setup(NamedTuple):
    """``bindings_per_s``, ``bindings_burst``: ``clientConnection.qps`` and ``burst`` of the file;
    None where it has none."""

    profiles: tuple[Profile, ...]
    bindings_per_s: float | None = None
    bindings_burst: int | None = None
    quota_gates: QuotaGates = QuotaGates()


def load(path: str, switched: Mapping[str, bool] = MappingProxyType({})) -> Setup:
    """Of a KubeSchedulerConfiguration; the built-in profile without a file. All plugins are made
    once, so that a wrong argument is told before anything runs. ``switched``: feature gates, by
    name. Raises SetupError."""
    gates = quota_gates(switched)
    if not path:
        return Setup((built_in(),), quota_gates=gates)
    try:
        tree = read_document(path)
    except FileError as error:
        raise SetupError(str(error)) from None
    return read_setup(path, tree)._replace(quota_gates=gates)


def read_setup(path: str, tree: Any) -> Setup:
    """Of a KubeSchedulerConfiguration that was read; ``path`` is what errors name. Raises
    SetupError."""
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
