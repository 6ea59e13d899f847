"""One turn of the actuator as a value: what goes in, what is pending, what came out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from koordlet.actuator.files import Files
from koordlet.actuator.journal.journal import Original
from koordlet.actuator.merge import Key, Merged
from koordlet.actuator.order import Change
from koordlet.actuator.outcome import Outcome
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource, Value
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.knobs import Knobs

RELEASED = Why("actuator.released", "no owner wants it any more")

FAILURES = (Unsupported, OSError, ValueError)
"""What reading or writing a cgroup file may raise."""


@dataclass
class Pending:
    """A change to make. ``merged`` None: back to the original.

    ``fresh``: the original to be journaled, ``first`` unless it replaces an older one.
    """

    change: Change
    path: str
    merged: Merged | None
    fresh: Original | None = None
    first: bool = False
    text: str = ""


@dataclass
class Turn:
    """``urgent``: no waiting for retries. ``force``: put originals back over foreign values.

    ``inherited``: originals of files that hold what is wanted since their cgroup was made.
    ``finished``: files that hold nothing of ours after this turn. ``may_hold``: the values that
    a file with a pending change can hold until that change is done. ``searched``: where cgroups
    are that were looked for, by their old directory and inode; ``listed``: what was listed for
    that, directory -> names with inodes. ``moved``: files whose cgroup got another name, by that.
    """

    knobs: Knobs
    files: Files
    targets: Mapping[Key, Merged]
    now: float
    time: float
    urgent: bool = False
    force: bool = False
    pending: dict[Key, Pending] = field(default_factory=dict)
    inherited: list[Original] = field(default_factory=list)
    finished: list[Key] = field(default_factory=list)
    may_hold: dict[Key, tuple[Value, ...]] = field(default_factory=dict)
    outcomes: list[Outcome] = field(default_factory=list)
    searched: dict[tuple[str, int], str | None] = field(default_factory=dict)
    listed: dict[str, Mapping[str, int]] = field(default_factory=dict)
    moved: list[Key] = field(default_factory=list)

    @cached_property
    def by_id(self) -> Mapping[tuple[Resource, int], Key]:
        """Resource and inode of a cgroup -> the file of ours, as the turn began. Files that are of
        no cgroup have 0 for an inode and are left out."""
        entries = self.files.entries.items()
        return {
            (key.resource, entry.original.inode): key
            for key, entry in entries
            if entry.original.inode
        }

    def tell(
        self,
        key: Key,
        path: str,
        result: Result,
        found: Value | None,
        *,
        written: Value | None = None,
        text: str = "",
    ) -> None:
        """One outcome for each owner that agreed on the value."""
        merged = self.targets.get(key)
        if merged is None:
            entry = self.files.entries[key]
            owners = [(entry.owner, RELEASED)]
            wanted = entry.original.value
        else:
            spoken = [claim for claim in merged.agreed if claim.active] or merged.agreed[:1]
            owners = [(claim.owner, claim.setting.why) for claim in spoken]
            owners[0] = (spoken[0].owner, merged.why)
            wanted = merged.value
        self.outcomes.extend(
            Outcome(self.time, owner, *key, path, wanted, found, written, result, why, text)
            for owner, why in owners
        )

    def refuse(self, key: Key, pending: Pending, result: Result, text: str) -> None:
        self.files.state(key).refuse(pending.change.new, result, text, self.now)
        self.tell(key, pending.path, result, pending.change.old, text=text)
