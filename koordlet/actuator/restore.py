"""``koordlet restore`` without a daemon: every value back to what the journal says was found."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Mapping, Sequence
from enum import StrEnum

import msgspec

from koordlet.actuator import units
from koordlet.actuator.actuator import Actuator
from koordlet.actuator.evict import journal as evict_journal
from koordlet.actuator.files import FAILURES
from koordlet.actuator.journal.journal import Contents, Journal, load
from koordlet.actuator.journal.lines import Lost
from koordlet.actuator.merge import Key
from koordlet.actuator.outcome import Outcome, is_gone
from koordlet.actuator.thaw import thaw
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.host import Host
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.probe.scratch import leftovers, remove_leftovers


class Status(StrEnum):
    RESTORED = "restored"
    WOULD_RESTORE = "would-restore"
    ALREADY = "already"  # the file holds its original
    GONE = "gone"  # the cgroup was removed or made anew
    FOREIGN = "foreign"  # somebody else has written it since: left alone
    FAILED = "failed"  # the kernel refused; the journal keeps the original
    DOUBTFUL = "doubtful"  # records are missing: left alone, the journal keeps what it knows
    LOST = "lost"  # it may hold a value of ours, whose original is among the missing records


_STATUS = {
    Result.WOULD_RESTORE: Status.WOULD_RESTORE,
    Result.GONE: Status.GONE,
    Result.CONFLICT: Status.FOREIGN,
    Result.DOUBTFUL: Status.DOUBTFUL,
}


_LEFT = frozenset({Status.FAILED, Status.DOUBTFUL, Status.LOST})
"""What may leave a value of ours in the file."""


class Item(msgspec.Struct, frozen=True):
    """One file. ``found``: what it held before; None when unreadable. ``original``: None where it
    is lost."""

    cgroup: str
    resource: Resource
    path: str
    found: Value | None
    original: Value | None
    status: Status
    text: str = ""


class RestoreReport(msgspec.Struct, frozen=True):
    """``other_boot``: the journal is of an earlier boot, which took the values with it.

    ``damage``: what is wrong with the journal (``damage_of``). ``damaged_lines``: its lines that
    are no records. ``leftovers``: directories that killed probes left -> why they are still there,
    empty for those that are gone, or would be.
    """

    items: tuple[Item, ...]
    damaged_lines: int = 0
    other_boot: bool = False
    damage: str = ""
    leftovers: Mapping[str, str] = {}

    @property
    def ok(self) -> bool:
        """Nothing of ours is left in any file. Where records are missing, nobody knows."""
        left = any(item.status in _LEFT for item in self.items) or any(self.leftovers.values())
        return not left and not self.damage


def restore(
    knobs: Knobs,
    journal_path: str,
    *,
    boot_id: str,
    now: float,
    time: float,
    dry_run: bool = False,
    force: bool = False,
) -> RestoreReport:
    """Put every original back, in an order that is valid at each step; harmless when repeated.

    ``force``: also where somebody else has written since, and where records are missing; that they
    are is then forgotten. ``dry_run``: only say. Raises JournalBusyError while a daemon runs (ask
    the daemon instead), OSError where the journal cannot be read.
    """
    held: Container[Key] = ()
    if dry_run:
        contents = load(journal_path, boot_id)
        found = _restore(knobs, contents, now=now, time=time, force=force)
    else:
        journal = Journal(journal_path, boot_id=boot_id)
        try:
            found = _restore(knobs, journal, now=now, time=time, force=force)
            held = journal.entries
        finally:
            journal.close()
    told = take_back_from_systemd(
        knobs, journal_path, boot_id, time=time, held=held, dry_run=dry_run
    )
    found = together(found, told)
    return together(found, let_go(knobs, journal_path, boot_id, time, dry_run=dry_run))


def let_go(
    knobs: Knobs, journal_path: str, boot_id: str, time: float, *, dry_run: bool = False
) -> tuple[Outcome, ...]:
    """What a daemon that has gone had frozen to be killed."""
    path = os.path.join(os.path.dirname(journal_path), evict_journal.FILE_NAME)
    return thaw(knobs, path, boot_id=boot_id, time=time, dry_run=dry_run)


def take_back_from_systemd(
    knobs: Knobs,
    journal_path: str,
    boot_id: str,
    *,
    time: float,
    held: Container[Key] = (),
    dry_run: bool = False,
) -> tuple[Outcome, ...]:
    """Give systemd back what it knew of files that are not among those ``held``. Raises OSError
    where the record of it cannot be read."""
    told = units.Told(units.path_beside(journal_path), boot_id)
    if not told.properties:
        return ()
    with contextlib.closing(knobs.unit_properties()) as properties:
        return units.take_back(properties, told, held, time=time, observe=dry_run)


def _restore(
    knobs: Knobs, journal: Journal | Contents, *, now: float, time: float, force: bool
) -> RestoreReport:
    actuator = Actuator(knobs, journal, observe=isinstance(journal, Contents))
    return restore_all(actuator, knobs, journal, now=now, time=time, force=force)


def restore_all(
    actuator: Actuator,
    knobs: Knobs,
    journal: Journal | Contents,
    *,
    now: float,
    time: float,
    force: bool = False,
) -> RestoreReport:
    """``restore`` by the actuator of the process that holds the journal."""
    return report(actuator.restore_all(now=now, time=time, force=force), knobs, journal, force)


def report(
    outcomes: Sequence[Outcome], knobs: Knobs, journal: Journal | Contents, force: bool = False
) -> RestoreReport:
    """What went back by ``outcomes``, and what the journal lacks; ``force`` forgets that."""
    damage = damage_of(journal)
    lost = [_lost(knobs, each) for each in journal.lost.values()]
    items = (*map(_item, outcomes), *lost)
    found = RestoreReport(items, journal.damaged_lines, journal.other_boot, damage)
    failed = any(item.status is Status.FAILED for item in items)
    if force and not failed and isinstance(journal, Journal):
        with contextlib.suppress(OSError):  # then it is told again the next time
            journal.forgive()
    gone = [Key(item.cgroup, item.resource) for item in lost if item.status is Status.GONE]
    if gone and isinstance(journal, Journal):
        journal.release(gone)
    return found


def damage_of(journal: Journal | Contents) -> str:
    """What is wrong with the journal, what that means, and what to do; empty where it is whole."""
    if not journal.damage:
        return ""
    text = f"the journal is damaged: {'; '.join(journal.damage)}. "
    if journal.incomplete:
        text += (
            "A missing record may concern any file, so koordlet puts back only values that are "
            "certainly its own, and may leave others in place. Compare `koordlet restore "
            "--dry-run` with what the node should have; then `koordlet restore --force` writes "
            "every remaining original and forgets the damage. A reboot resets all cgroups"
        )
    else:
        text += "No record is missing; `koordlet restore --force` ends this message"
    aside = f". The damaged file is {journal.aside}" if journal.aside else ""
    return text + aside


def together(first: RestoreReport, outcomes: Sequence[Outcome]) -> RestoreReport:
    """With what became of network devices (``actuator.traffic.writer.restore``)."""
    return msgspec.structs.replace(first, items=(*first.items, *map(_item, outcomes)))


def sweep(
    report: RestoreReport, host: Host, layout: Layout, paths: tuple[str, str], *, dry_run: bool
) -> RestoreReport:
    """With what killed probes left in the hierarchies, removed unless ``dry_run``. ``paths``: those
    of procfs and sysfs."""
    if dry_run:
        found = dict.fromkeys(leftovers(host, layout, *paths), "")
    else:
        found = remove_leftovers(host, layout, *paths)
    return msgspec.structs.replace(report, leftovers=found)


def _lost(knobs: Knobs, lost: Lost) -> Item:
    """What can be said of a file whose original is missing."""
    path, found, gone = "", None, False
    try:
        path = knobs.path(lost.cgroup, lost.resource)
        found = knobs.read(lost.cgroup, lost.resource)
    except FAILURES as error:
        gone = is_gone(error)
    if gone:
        return Item(lost.cgroup, lost.resource, path, None, None, Status.GONE)
    ours = ", ".join(map(str, lost.values))
    text = (
        f"its original is lost; koordlet wrote {ours}. If the file still holds that, set it by hand"
    )
    return Item(lost.cgroup, lost.resource, path, found, None, Status.LOST, text)


def _item(outcome: Outcome) -> Item:
    status = _STATUS.get(outcome.result, Status.FAILED)
    if outcome.result is Result.RESTORED:
        status = Status.ALREADY if outcome.written is None else Status.RESTORED
    return Item(
        outcome.cgroup,
        outcome.resource,
        outcome.path,
        outcome.found,
        outcome.wanted,
        status,
        outcome.text,
    )
