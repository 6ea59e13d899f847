"""Plugins that look at each pod by itself: age, failures, restarts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from koord_scheduler.balance.round import Round
from koord_scheduler.balance.upstream.common import PodArgs, Simple, evictable, made
from koord_scheduler.balance.world import Resident
from koord_scheduler.model.cluster.arguments import ArgumentError

LIFE_TIME = "PodLifeTime"
FAILED = "RemoveFailedPods"
RESTARTS = "RemovePodsHavingTooManyRestarts"


class LifeTimeArgs(PodArgs, frozen=True):
    """``states``: phases of pods, or reasons of theirs or of their containers."""

    max_pod_life_time_seconds: int | None = None
    states: tuple[str, ...] = ()
    including_init_containers: bool = False


def make_life_time(args: Mapping[str, Any]) -> Simple[LifeTimeArgs]:
    plugin = made(LIFE_TIME, LifeTimeArgs, args, _life_time)
    if (plugin.args.max_pod_life_time_seconds or 0) <= 0:
        raise ArgumentError(f"{LIFE_TIME}: maxPodLifeTimeSeconds: must be given, more than 0")
    return plugin


def _life_time(args: LifeTimeArgs, round_: Round) -> None:
    most_s = args.max_pod_life_time_seconds or 0
    for node in round_.nodes:
        for each in evictable(round_, args, node):
            age_s = round_.world.now_s - each.pod.created_s
            if age_s <= most_s or (args.states and not _in_state(each, args)):
                continue
            round_.evict(each, LIFE_TIME, f"pod is {age_s:.0f} s old, more than {most_s}")


def _in_state(each: Resident, args: LifeTimeArgs | RestartArgs) -> bool:
    states = {each.pod.phase, *each.details.reasons}
    if args.including_init_containers:
        states.update(each.details.init_reasons)
    return not states.isdisjoint(args.states)


class FailedArgs(PodArgs, frozen=True):
    exclude_owner_kinds: tuple[str, ...] = ()
    min_pod_lifetime_seconds: int | None = None
    reasons: tuple[str, ...] = ()
    exit_codes: tuple[int, ...] = ()
    including_init_containers: bool = False


def make_failed(args: Mapping[str, Any]) -> Simple[FailedArgs]:
    return made(FAILED, FailedArgs, args, _failed)


def _failed(args: FailedArgs, round_: Round) -> None:
    least_s = args.min_pod_lifetime_seconds or 0
    for node in round_.nodes:
        for each in evictable(round_, args, node):
            pod, details = each.pod, each.details
            if pod.phase != "Failed" or pod.owner.kind in args.exclude_owner_kinds:
                continue
            if round_.world.now_s - pod.created_s < least_s:
                continue
            reasons = {*details.reasons}
            if args.including_init_containers:
                reasons.update(details.init_reasons)
            if args.reasons and reasons.isdisjoint(args.reasons):
                continue
            if args.exit_codes and set(args.exit_codes).isdisjoint(details.exit_codes):
                continue
            round_.evict(each, FAILED, f"pod failed: {', '.join(sorted(reasons)) or 'no reason'}")


class RestartArgs(PodArgs, frozen=True):
    pod_restart_threshold: int = 0
    including_init_containers: bool = False
    states: tuple[str, ...] = ()


def make_restarts(args: Mapping[str, Any]) -> Simple[RestartArgs]:
    plugin = made(RESTARTS, RestartArgs, args, _restarts)
    if plugin.args.pod_restart_threshold < 1:
        raise ArgumentError(f"{RESTARTS}: podRestartThreshold: must be at least 1")
    return plugin


def _restarts(args: RestartArgs, round_: Round) -> None:
    for node in round_.nodes:
        for each in evictable(round_, args, node):
            if args.states and not _in_state(each, args):
                continue
            count = each.details.restarts
            if args.including_init_containers:
                count += each.details.init_restarts
            if count >= args.pod_restart_threshold:
                round_.evict(each, RESTARTS, f"containers restarted {count} times")
