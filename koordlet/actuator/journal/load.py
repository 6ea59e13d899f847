"""Reading a journal: what is in force, and what is missing.

A torn last line is no damage: a kill came while it was written, and the value it records was not
written to the kernel yet. Any other change to the file is reported. A missing record may have
concerned any file, so each entry with a gap behind its original is doubtful
(``Original.doubtful``), until the journal has another original of that file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from koordlet.actuator.journal.anchor import FIRST_FORMAT, Anchor, Mark, boot_mark, load_anchor
from koordlet.actuator.journal.files import kept_aside
from koordlet.actuator.journal.lines import (
    Boot,
    Change,
    Intent,
    Line,
    Lost,
    Original,
    Record,
    Released,
    read_line,
    read_old_line,
)
from koordlet.actuator.merge import Key
from koordlet.decision.resource import Value
from koordlet.kernel.host_files import PERSISTENT

_SHOWN = 4
"""Most findings that are reported one by one."""
_ATTEMPTS = 5
"""The daemon may put a new file in place while somebody else reads."""


class Entry(msgspec.Struct, frozen=True):
    """A file of ours. ``ours``: the values it may hold through us; empty before the first write."""

    original: Original
    ours: tuple[Value, ...] = ()
    owner: str = ""


class Tail(NamedTuple):
    """Where the next record goes. ``size``: bytes of the file that count."""

    mark: Mark
    size: int


class Contents(msgspec.Struct, frozen=True):
    """What a journal says. ``other_boot``: it is of another boot, and what it says of the kernel is
    left out.

    ``damage``: what is wrong with it, a sentence each. ``incomplete``: records are missing, of this
    file or of an earlier one of this boot, so values of ours may be left that nothing is known
    about. ``lost``: files that may hold a value of ours, whose original is missing.
    ``damaged_lines``: lines of this file that are no records. ``is_fresh``: some of the damage is
    to this file. ``tail``: None where it must be written anew before anything is added. ``mark``:
    what an anchor must say of this file, so that all this is found again. ``aside``: where the
    latest damaged file is kept.
    """

    entries: Mapping[Key, Entry]
    exact: bool = True
    damaged_lines: int = 0
    other_boot: bool = False
    damage: tuple[str, ...] = ()
    incomplete: bool = False
    lost: Mapping[Key, Lost] = {}
    is_fresh: bool = False
    tail: Tail | None = None
    mark: Mark | None = None
    aside: str = ""


def load(path: str, boot_id: str) -> Contents:
    """Read the journal without touching it. A file that is not there is an empty journal, unless
    its anchor knows better.

    Raises OSError for one that is there and cannot be read.
    """
    for _ in range(_ATTEMPTS):
        anchor = load_anchor(path)
        contents = _understand(_read(path), anchor, boot_id)
        if not contents.is_fresh or anchor == load_anchor(path):
            break
    if contents.damage and not contents.is_fresh:
        return msgspec.structs.replace(contents, aside=kept_aside(path))
    return contents


def fold(entries: dict[Key, Entry], lost: dict[Key, Lost], line: Change) -> None:
    """Apply ``line`` to what is in force."""
    key = Key(line.cgroup, line.resource)
    if isinstance(line, Original):
        entries[key] = Entry(line, owner=line.owner)
        lost.pop(key, None)
    elif isinstance(line, Released):
        entries.pop(key, None)
        lost.pop(key, None)
    elif isinstance(line, Lost):
        lost[key] = line
    elif key in entries:
        entries[key] = Entry(entries[key].original, line.values, line.owner)


class _Lines(NamedTuple):
    """The lines of a file by their numbers. ``size``: bytes without a torn last line; None where
    there is no file."""

    records: Sequence[tuple[int, Record]]
    old: Sequence[tuple[int, Line]]
    damaged: Sequence[int]
    size: int | None


def _read(path: str) -> _Lines:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return _Lines((), (), (), None)
    records: list[tuple[int, Record]] = []
    old: list[tuple[int, Line]] = []
    damaged = []
    *lines, torn = data.split(b"\n")
    for number, raw in enumerate(lines, start=1):
        if not raw:
            continue
        if (record := read_line(raw)) is not None:
            records.append((number, record))
        elif (line := read_old_line(raw)) is not None:
            old.append((number, line))
        else:
            damaged.append(number)
    return _Lines(records, old, damaged, len(data) - len(torn))


def _understand(lines: _Lines, anchor: Anchor, boot_id: str) -> Contents:
    first = not anchor.marks or any(mark.generation == FIRST_FORMAT for mark in anchor.marks)
    if first and not lines.records and not anchor.damaged:
        return _of_first_format(lines, boot_id)
    mark = _mark_of(lines, anchor, boot_id)
    known = mark in anchor.marks
    other_boot = mark.boot != boot_mark(boot_id)
    chain = _Chain(lines, mark, mark.synced if other_boot else mark.sequence)
    if not known:
        chain.nobody_knows("damaged" if anchor.damaged else "missing")
    entries, lost, boot = chain.follow()
    if other_boot:
        entries = {key: each for key, each in entries.items() if key.resource in PERSISTENT}
        lost = {key: each for key, each in lost.items() if key.resource in PERSISTENT}
        matters = mark.persistent > 0 if known else bool(entries or lost)
    else:
        matters = bool(chain.found or lines.damaged or lines.old or mark.entries or not known)
    findings = chain.findings if matters else []
    exact = bool(mark.exact and (boot is None or boot.exact))
    before = None if other_boot else boot
    whole = known and boot is not None and not other_boot and not findings
    return Contents(
        entries,
        exact=exact or not entries,
        damaged_lines=0 if other_boot else len(lines.damaged),
        other_boot=other_boot,
        damage=_together(before.damage if before is not None else (), findings),
        incomplete=(matters and chain.incomplete) or (before is not None and before.incomplete),
        lost=lost,
        is_fresh=bool(findings),
        tail=Tail(chain.end, lines.size) if whole and lines.size is not None else None,
        mark=mark if known else chain.end._replace(sequence=chain.end.sequence + 1, crc=0),
    )


def _of_first_format(lines: _Lines, boot_id: str) -> Contents:
    """Only a damaged line itself is lost; whether others are missing is not known."""
    entries: dict[Key, Entry] = {}
    exact, other_boot = True, False
    mark = Mark(FIRST_FORMAT, 0, 0, 0, 0, 0, 1, boot_mark(boot_id))
    for _, line in lines.old:
        if isinstance(line, Boot):
            other_boot = line.boot_id != boot_id
            exact = exact and bool(line.exact)
        else:
            fold(entries, {}, line)
    if other_boot:
        entries = {key: each for key, each in entries.items() if key.resource in PERSISTENT}
        return Contents(entries, exact or not entries, other_boot=True, mark=mark)
    findings = [f"line {number} is damaged" for number in lines.damaged]
    return Contents(
        entries,
        exact,
        len(lines.damaged),
        damage=_together((), findings),
        incomplete=bool(findings),
        is_fresh=bool(findings),
        mark=mark,
    )


def _mark_of(lines: _Lines, anchor: Anchor, boot_id: str) -> Mark:
    """What the anchor says of this file; where it says nothing, what the file itself does."""
    generations = [record.generation for _, record in lines.records]
    for mark in reversed(anchor.marks):
        if mark.generation in generations:
            return mark
    if anchor.marks:
        return anchor.marks[0]  # nothing of what it speaks of is there
    boots = [r.line.boot_id for _, r in lines.records if isinstance(r.line, Boot)]
    generation = max(set(generations), key=generations.count, default=FIRST_FORMAT)
    return Mark(generation, 0, 0, 0, 0, 0, 1, boot_mark((*boots, boot_id)[0]))


class _Chain:
    """The records of one generation in their order. ``found``: there are some. ``findings``: what
    is wrong, a sentence each. ``incomplete``: records are missing, or may be. ``end``: ``mark`` as
    it is for the last record that is there."""

    def __init__(self, lines: _Lines, mark: Mark, least: int) -> None:
        """``least``: so many records there must be."""
        self.findings: list[str] = []
        self.end = mark
        self._least = least
        self.incomplete = False
        self._records: dict[int, tuple[int, Record]] = {}
        strange = [*lines.damaged, *(number for number, _ in lines.old)]
        before = 0
        for number, record in lines.records:
            first = self._records.get(record.sequence)
            if record.generation != mark.generation:
                strange.append(number)
            elif first is not None:
                self.findings.append(f"line {number} is in the place of line {first[0]}")
            else:
                self._records[record.sequence] = number, record
                if record.sequence < before:
                    self.findings.append(f"line {number} is in the wrong place")
                before = record.sequence
        self.findings += [
            f"line {number} is not a record of this journal" for number in sorted(strange)
        ]
        self.found = bool(self._records)
        self._is_there = lines.size is not None

    def nobody_knows(self, anchor: str) -> None:
        """Note that the anchor cannot be read."""
        self.incomplete = True
        text = f"its anchor is {anchor}, so records may be missing at the end"
        self.findings.append(text)

    def follow(self) -> tuple[dict[Key, Entry], dict[Key, Lost], Boot | None]:
        """What is in force after the last record, and the first one."""
        entries: dict[Key, Entry] = {}
        lost: dict[Key, Lost] = {}
        boot: Boot | None = None
        gaps: list[str] = []
        last, line_number, crc = 0, 0, 0
        for sequence, (number, record) in sorted(self._records.items()):
            if sequence != last + 1 or record.before != crc:
                between = f"between line {line_number} and line {number}"
                place = between if last else f"before line {number}"
                gaps.append(_missing(sequence - last - 1, place))
                _doubt(entries)
            last, line_number, crc = sequence, number, record.crc
            line = record.line
            if isinstance(line, Boot):
                boot = line
            else:
                key = Key(line.cgroup, line.resource)
                if isinstance(line, Intent) and gaps and key not in entries:
                    line = Lost(*key, line.values, line.owner)
                fold(entries, lost, line)
        unsure = self.incomplete
        if last < self._least:
            gaps.append(self._cut_off(last))
            unsure = True
        anchored = self._records.get(self.end.sequence)
        if anchored is not None and self.end.crc not in (0, anchored[1].crc):
            gaps.append(f"line {anchored[0]} is not the record that the anchor names")
            unsure = True
        if unsure:
            _doubt(entries)
        self.incomplete = self.incomplete or bool(gaps)
        self.findings = [*gaps, *self.findings]
        self.end = self.end._replace(sequence=last, crc=crc)
        return entries, lost, boot

    def _cut_off(self, last: int) -> str:
        if last:
            return _missing(self._least - last, "at the end")
        state = "was emptied" if self._is_there else "is gone"
        return f"the file {state}: {_missing(self._least)}"


def _missing(count: int, place: str = "") -> str:
    if count < 1:
        return f"the records {place} are not consecutive"
    return f"{count} record{'s' if count > 1 else ''} missing {place}".rstrip()


def _doubt(entries: dict[Key, Entry]) -> None:
    for key, entry in entries.items():
        original = msgspec.structs.replace(entry.original, doubtful=True)
        entries[key] = msgspec.structs.replace(entry, original=original)


def _together(before: Sequence[str], findings: Sequence[str]) -> tuple[str, ...]:
    """A bounded number of sentences."""
    found = list(dict.fromkeys((*before, *findings)))
    more = len(found) - _SHOWN
    return (*found[:_SHOWN], *([f"and {more} more findings"] if more > 0 else ()))
