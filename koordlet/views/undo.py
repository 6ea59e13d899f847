"""Pause, resume and restore, as callers ask for them. Every argument comes from outside."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from koordlet.actuator.restore import sweep
from koordlet.admin.daemon import InvalidError, NotFoundError
from koordlet.admin.undo import PausedView, PauseView, RestoreView, ResumedView
from koordlet.config import plugins
from koordlet.engine.engine import Engine
from koordlet.engine.parts import CannotStartError
from koordlet.engine.restored import restore_view
from koordlet.hooks import HOOKS
from koordlet.pause.model import Pause, Scope, ScopeKind, scopes
from koordlet.pause.pauses import MOST, Pauses
from koordlet.protocol.decode import nearest
from koordlet.qos import STRATEGIES
from koordlet.views.questions import cgroup_of

MAX_REASON = 500
"""Characters."""
OWNERS = (*STRATEGIES, *HOOKS)
"""Targets that a pause may name."""
LONGEST_S = 10 * 366 * 86400.0


def pause(
    engine: Engine,
    owners: Sequence[str],
    cgroups: Sequence[str],
    *,
    for_s: float | None,
    reason: str,
    by: str,
) -> PausedView:
    """See ``admin.daemon.Daemon``."""
    wanted = make(
        owners,
        [cgroup_of(engine.parts, each) for each in cgroups],
        for_s=for_s,
        reason=reason,
        by=by,
        now=engine.parts.host.time(),
    )
    pauses = engine.pausing.pauses
    if len({p.scope for p in (*pauses.current, *wanted)}) > MOST:
        raise InvalidError(f"there are {MOST} pauses already; end some with `koordlet resume`")
    try:
        found = engine.pause(wanted)
    except (CannotStartError, OSError) as error:
        raise InvalidError(f"nothing can be put back: {error}") from error
    return PausedView(
        pauses=tuple(view(each, pauses) for each in wanted),
        restored=restore_view(found.report, dry_run=False),
        follows=found.follows,
        problem=pauses.problem,
    )


def resume(
    engine: Engine, owners: Sequence[str], cgroups: Sequence[str], *, by: str
) -> ResumedView:
    """See ``admin.daemon.Daemon``."""
    pauses = engine.pausing.pauses
    wanted = to_end(pauses.current, owners, _names(engine, pauses.current, cgroups))
    shown = {each.scope: view(each, pauses) for each in pauses.current}
    ended = engine.resume(wanted, by)
    return ResumedView(
        ended=tuple(shown[each.scope] for each in ended),
        left=views(pauses),
        problem=pauses.problem,
    )


def restore(
    engine: Engine, *, dry_run: bool, force: bool = False, by: str = "somebody"
) -> RestoreView:
    """See ``admin.daemon.Daemon``."""
    try:
        report = engine.restore(dry_run=dry_run, force=force, by=by)
    except (CannotStartError, OSError) as error:
        raise InvalidError(f"nothing can be put back: {error}") from error
    parts, paths = engine.parts, engine.loaded.config.paths
    roots = (paths.proc_root, paths.sys_root)
    report = sweep(report, parts.host, parts.cgroups.layout, roots, dry_run=dry_run)
    found = restore_view(report, dry_run=dry_run)
    pauses, everything = engine.pausing.pauses, engine.pausing.everything
    if dry_run or everything is None:
        return found
    pause = view(everything, pauses)
    return msgspec.structs.replace(found, pause=pause, problem=pauses.problem)


def make(
    owners: Sequence[str],
    cgroups: Sequence[str],
    *,
    for_s: float | None,
    reason: str,
    by: str,
    now: float,
) -> tuple[Pause, ...]:
    """``cgroups``: paths. ``now``: unix seconds. Raises NotFoundError and InvalidError."""
    for name in owners:
        if name not in OWNERS and not _decides(name):
            like = nearest(name, OWNERS)
            meant = f'did you mean "{like}"?' if like else f"there are: {', '.join(OWNERS)}"
            raise NotFoundError(f"{name!r} is no strategy and no hook; {meant}")
    if for_s is not None and not 0 < for_s <= LONGEST_S:
        raise InvalidError(f"the time must be above 0 s and at most {LONGEST_S:g} s, not {for_s:g}")
    if len(reason) > MAX_REASON:
        raise InvalidError(f"the reason may have {MAX_REASON} characters, not {len(reason)}")
    until = None if for_s is None else now + for_s
    return tuple(Pause(each, now, by, until, reason) for each in scopes(owners, cgroups))


def to_end(
    current: Sequence[Pause], owners: Sequence[str], cgroups: Sequence[str]
) -> tuple[Scope, ...]:
    """All, where nothing is named. Raises NotFoundError for what is not paused by itself."""
    there = [each.scope for each in current]
    if not owners and not cgroups:
        return tuple(there)
    wanted = scopes(owners, cgroups)
    for scope in wanted:
        if scope not in there:
            said = ", ".join(each.title for each in there)
            raise NotFoundError(
                f"{scope.title} is not paused by itself; paused: {said or 'nothing'}"
            )
    return wanted


def view(pause: Pause, pauses: Pauses) -> PauseView:
    return PauseView(
        scope=pause.scope.kind,
        name=pause.scope.name,
        since=pause.since,
        until=pause.until,
        left_s=pauses.left_s(pause),
        by=pause.by,
        reason=pause.reason,
    )


def views(pauses: Pauses) -> tuple[PauseView, ...]:
    return tuple(view(each, pauses) for each in pauses.current)


def _names(engine: Engine, current: Sequence[Pause], cgroups: Sequence[str]) -> list[str]:
    """Paths; of what has gone meanwhile the path that was paused still counts."""
    paused = {p.scope.name for p in current if p.scope.kind is ScopeKind.CGROUP}
    return [_path(engine, paused, each) for each in cgroups]


def _path(engine: Engine, paused: Collection[str], name: str) -> str:
    bare = name.strip("/")
    return bare if bare in paused else cgroup_of(engine.parts, name)


def _decides(name: str) -> bool:
    """Whether it is a strategy or a hook of another package."""
    plugin = plugins.installed().get(name)
    return plugin is not None and plugin.table != "collectors"
