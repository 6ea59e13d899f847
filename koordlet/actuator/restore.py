"""``koordlet restore`` without a daemon: every value back to what the journal says was found."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal import Contents, Journal, load
from koordlet.actuator.outcome import Outcome
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.knobs import Knobs


class Status(StrEnum):
    RESTORED = "restored"
    WOULD_RESTORE = "would-restore"
    ALREADY = "already"  # the file holds its original
    GONE = "gone"  # the cgroup was removed or made anew
    FOREIGN = "foreign"  # somebody else has written it since: left alone
    FAILED = "failed"  # the kernel refused; the journal keeps the original


_STATUS = {
    Result.WOULD_RESTORE: Status.WOULD_RESTORE,
    Result.GONE: Status.GONE,
    Result.CONFLICT: Status.FOREIGN,
}


class Item(msgspec.Struct, frozen=True):
    """One file. ``found``: what it held before; None when unreadable."""

    cgroup: str
    resource: Resource
    path: str
    found: Value | None
    original: Value
    status: Status
    text: str = ""


class RestoreReport(msgspec.Struct, frozen=True):
    """``other_boot``: the journal is of an earlier boot, which took the values with it.

    ``damaged_lines``: journal lines that could not be read; what they told is lost.
    """

    items: tuple[Item, ...]
    damaged_lines: int = 0
    other_boot: bool = False

    @property
    def ok(self) -> bool:
        """Nothing of ours is left in any file."""
        return not self.damaged_lines and all(i.status is not Status.FAILED for i in self.items)


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

    ``force``: also where somebody else has written since. ``dry_run``: only say. Raises
    JournalBusyError while a daemon runs (ask the daemon instead), OSError where the journal
    cannot be read.
    """
    if dry_run:
        contents = load(journal_path, boot_id)
        return _restore(knobs, contents, now=now, time=time, force=force)
    journal = Journal(journal_path, boot_id=boot_id)
    try:
        return _restore(knobs, journal, now=now, time=time, force=force)
    finally:
        journal.close()


def _restore(
    knobs: Knobs, journal: Journal | Contents, *, now: float, time: float, force: bool
) -> RestoreReport:
    actuator = Actuator(knobs, journal, observe=isinstance(journal, Contents))
    outcomes = actuator.restore_all(now=now, time=time, force=force)
    return report(outcomes, journal.damaged_lines, other_boot=journal.other_boot)


def report(
    outcomes: Sequence[Outcome], damaged_lines: int = 0, *, other_boot: bool = False
) -> RestoreReport:
    """What ``Actuator.restore_all`` answered, as a report."""
    return RestoreReport(tuple(_item(outcome) for outcome in outcomes), damaged_lines, other_boot)


def together(first: RestoreReport, outcomes: Sequence[Outcome]) -> RestoreReport:
    """With what became of network devices (``actuator.traffic.restore``)."""
    return msgspec.structs.replace(first, items=(*first.items, *map(_item, outcomes)))


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
