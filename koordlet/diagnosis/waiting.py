"""Latency-sensitive work that suffers, from what, and because of whom."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from typing import NamedTuple

import msgspec

from koordlet.admin.blame import WaitingView, culprit_title
from koordlet.admin.pressure import PRESSED_PERCENT, THROTTLED_RATIO
from koordlet.decision import metrics as k
from koordlet.decision.metrics import WAITS, Metric, WaitMetrics
from koordlet.decision.names import shown
from koordlet.decision.record import PodKind
from koordlet.diagnosis.look import AROUND_S, Look
from koordlet.diagnosis.who import Key, Who, unnamed
from koordlet.drawing.clock import date

LIMIT = "limit"
"""The resource of who is stopped by its own CPU limit."""
_RESOURCES = {"cpu": "cpu", "mem": "memory", "io": "io"}
_PSI = {"psi_precision": "10", "psi_degree": "some"}
_WAITS = {each.resource: each for each in WAITS}
_OWN_LIMIT = "throttled"
"""Name of that culprit in waits."""
_FORGOTTEN = "older"
"""The same of what is longer ago than is remembered. Of memory it means that nobody freed any."""


class _Kinds(NamedTuple):
    psi: Metric
    throttled: Metric
    cpu: Metric
    waits: Metric


_KINDS = {
    PodKind.POD: _Kinds(k.POD_PSI, k.POD_CPU_THROTTLED, k.POD_CPU_USAGE, k.CPU_WAIT.pod_total),
    PodKind.APPLICATION: _Kinds(
        k.HOST_APPLICATION_PSI,
        k.HOST_APPLICATION_CPU_THROTTLED,
        k.HOST_APPLICATION_CPU_USAGE,
        k.CPU_WAIT.app_total,
    ),
}


class _Culprit(NamedTuple):
    kind: str = ""
    title: str = ""
    share: float | None = None


def waiting(
    looks: Iterable[Look],
    names: Mapping[Key, Who],
    only: Collection[Key] | None = None,
    past: float | None = None,
) -> tuple[WaitingView, ...]:
    """The worst first, of each the worst look, of equals the first. ``only``: of these alone, of
    any class. ``past``: the instant, where that is not the present of a daemon. Raises
    InvalidError."""
    worst: dict[tuple[Key, str], WaitingView] = {}
    for kind in PodKind:
        keys = {
            key
            for key, who in names.items()
            if key[0] is kind and (who.is_sensitive if only is None else key in only)
        }
        for look in looks if keys else ():
            for each in _of_kind(look, names, kind, keys):
                subject = (each.kind, each.id), each.resource
                if subject not in worst or _badness(each) > _badness(worst[subject]):
                    worst[subject] = each
    found: Iterable[WaitingView] = worst.values()
    if past is not None:  # `blame` is about the last minute
        told = f"koordlet report --from {shlex.quote(date(past - AROUND_S))} --to +2m"
        found = [
            msgspec.structs.replace(each, advice=told) if _is_blamed(each) else each
            for each in found
        ]
    return tuple(sorted(found, key=lambda each: (-each.percent, each.title)))


def _badness(each: WaitingView) -> tuple[float, bool]:
    """The percentage, and whether it is known because of whom: of the same pressure the waits are
    seen in one look alone where history is coarse."""
    return each.percent, bool(each.culprit)


def _of_kind(
    look: Look, names: Mapping[Key, Who], kind: PodKind, keys: Set[Key]
) -> Iterator[WaitingView]:
    kinds = _KINDS[kind]
    stopped = {
        key: ratio
        for (name,), ratio in look.newest(kinds.throttled, {}).items()
        if (key := (kind, name)) in keys and ratio >= THROTTLED_RATIO
    }
    for key, ratio in stopped.items():
        yield _view(key, names, LIMIT, 100 * ratio, _Culprit())
    pressures = look.newest(kinds.psi, _PSI)
    known = {(kind, name) for name, *_ in pressures}
    pressures |= _by_waits(look, kinds, {name for _, name in keys - known})
    for (name, psi, *_), percent in pressures.items():
        resource, key = _RESOURCES.get(psi), (kind, name)
        if resource is None or key not in keys or percent < PRESSED_PERCENT:
            continue
        culprit = _culprit(look, names, _WAITS[resource], key)
        # The pressure of a cgroup counts what its own limit takes from it.
        if resource == "cpu" and key in stopped and culprit.kind in ("", _OWN_LIMIT):
            continue
        yield _view(key, names, resource, percent, culprit)


def _by_waits(look: Look, kinds: _Kinds, names: Collection[str]) -> dict[tuple[str, ...], float]:
    """Waits for CPUs as a share of the time that tasks wanted to run, where cgroups have no
    pressure (v1). Of who hardly waits at all the share says nothing."""
    used = look.mean(kinds.cpu) if names else {}
    waits = look.waits(kinds.waits, {}) if names else {}
    return {
        (name, "cpu"): 100 * ms_per_s / (ms_per_s + 1000 * used.get((name,), 0.0))
        for (name,), ms_per_s in waits.items()
        if name in names and ms_per_s >= 10 * PRESSED_PERCENT
    }


def _culprit(look: Look, names: Mapping[Key, Who], waits: WaitMetrics, victim: Key) -> _Culprit:
    """Culprit of most of the waiting; empty where nobody measures it."""
    is_pod = victim[0] is PodKind.POD
    metric = waits.pod if is_pod else waits.application
    cells: dict[tuple[str, str], float] = {}
    for labels, ms_per_s in look.waits(metric, {metric.labels[0]: victim[1]}).items():
        named = dict(zip(metric.labels, labels, strict=True))
        cells[named["culprit_kind"], named["culprit"]] = ms_per_s
    whole = sum(cells.values())
    if whole <= 0:
        return _Culprit()
    # Whoever is not remembered is nobody that one can do something about.
    known = [cell for cell in cells if cell[0] != _FORGOTTEN or waits.resource == "memory"]
    kind, name = max(known or cells, key=lambda cell: cells[cell])
    if kind in frozenset(PodKind):
        key = PodKind(kind), name
        title = names.get(key, unnamed(key)).title
    else:
        title = culprit_title(kind, shown(name), waits.resource)
    return _Culprit(kind, title, cells[kind, name] / whole)


def _view(
    key: Key, names: Mapping[Key, Who], resource: str, percent: float, culprit: _Culprit
) -> WaitingView:
    who = names[key]
    found = WaitingView(
        kind=key[0],
        id=key[1],
        title=who.title,
        qos=who.qos,
        resource=resource,
        percent=percent,
        culprit=culprit.title,
        share=culprit.share,
    )
    command = "blame" if _is_blamed(found) else "explain"
    return msgspec.structs.replace(found, advice=f"koordlet {command} {shlex.quote(who.title)}")


def _is_blamed(each: WaitingView) -> bool:
    return each.resource != LIMIT and bool(each.culprit)
