"""Cgroups that a kill may have left frozen: on v1 the freezer holds processes while they are killed
(``kernel.proc.kill``). A daemon that is killed in between, or can no longer reach the file, leaves
them frozen. The cgroups are noted beside the evictions before the first of them is frozen."""

from __future__ import annotations

from collections.abc import Container, Iterable
from contextlib import suppress

import msgspec

from koordlet.actuator.evict import journal as evict_journal
from koordlet.actuator.evict.journal import Begun, Frozen
from koordlet.actuator.outcome import Outcome
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.host import Host
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.proc import kill

_WHY = Why("evict.thaw", "it was frozen while its processes were killed")


def to_be_frozen(host: Host, cgroups: Cgroups, begun: Begun) -> tuple[Frozen, ...] | None:
    """What to note before ``begun`` is killed: nothing of one that somebody else has frozen, or
    where there is no such freezer. None: it must not be frozen, because that cannot be told."""
    directory = kill.freezer(cgroups, begun.cgroup)
    try:
        if not directory or host.read(f"{directory}/freezer.state") != b"THAWED\n":
            return ()
        return (Frozen(begun.cgroup, directory, host.inode(directory), begun.owner),)
    except OSError:
        return None


def still_frozen(host: Host, frozen: Iterable[Frozen], killed: Container[str]) -> list[Frozen]:
    """What is left of ``frozen`` after it was let go, but for the cgroups that are ``killed``."""
    return [
        each
        for each in frozen
        if each.cgroup in killed or not kill.thaw(host, each.directory, each.inode)
    ]


def thaw(
    knobs: Knobs, path: str, *, boot_id: str, time: float, dry_run: bool
) -> tuple[Outcome, ...]:
    """Let go what an earlier run left frozen. ``path``: of the journal of evictions; one that
    cannot be read tells nothing. ``time``: unix seconds. Never raises for what the kernel or the
    disk refuses."""
    try:
        contents = evict_journal.load(path, boot_id)
    except (OSError, ValueError):
        return ()
    outcomes, left = [], []
    for each in contents.frozen:
        file = f"{each.directory}/freezer.state"
        done = dry_run or knobs.thaw(each.directory, each.inode)
        result = Result.WOULD_RESTORE if dry_run else Result.RESTORED if done else Result.REFUSED
        outcomes.append(
            Outcome(
                time=time,
                owner=each.owner,
                cgroup=each.cgroup,
                resource=Resource.FREEZE,
                path=file,
                wanted=0,
                found=1,
                written=0 if result is Result.RESTORED else None,
                result=result,
                why=_WHY,
                text="" if done else "the file cannot be written; koordlet tries again",
            )
        )
        if not done:
            left.append(each)
    if outcomes and not dry_run:
        with suppress(OSError):  # to thaw it again would change nothing
            evict_journal.save(path, msgspec.structs.replace(contents, frozen=tuple(left)))
    return tuple(outcomes)
