"""How often each strategy and hook ran, what it said last, and whether it fails.

One that raises is isolated: its plan keeps everything of its own as it is, the others go on, and
it is named among the problems until it has worked again.
"""

from __future__ import annotations

import math
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from koordlet.decision.plan import Decision
from koordlet.decision.why import Why

NOTE_EVERY_S = 30.0
"""Notes of one rule are recorded at most this often, while it has something to say."""
SILENT_S = 3.0
"""A rule that had nothing to say for so long speaks of something new."""


@dataclass
class Runs:
    """One strategy or hook. Times are unix seconds.

    ``noted``: the notes that were recorded and still stand, by rule and text; ``recorded_s``: when
    a rule was last recorded; ``stood_s``: when it last had something to say. ``waits``: at the last
    run an input was missing. ``error``: what it raised, empty while it works; ``failing_since``:
    from when on. ``count``, ``failures``: of this daemon run.
    """

    name: str
    kind: str
    memory: Any = None
    last_run: float | None = None
    result: str = ""
    noted: frozenset[tuple[str, str]] = frozenset()
    recorded_s: dict[str, float] = field(default_factory=dict)
    stood_s: dict[str, float] = field(default_factory=dict)
    count: int = 0
    failures: int = 0
    waits: bool = False
    error: str = ""
    failing_since: float | None = None

    @property
    def part(self) -> str:
        """Its name among the problems of the daemon."""
        return f"{self.kind} {self.name}"

    def ran(self, time: float, result: str, *, waits: bool = False) -> None:
        self.count += 1
        self.last_run, self.result, self.waits = time, result, waits

    def failed(self, time: float, error: str, problems: MutableMapping[str, str]) -> None:
        self.failures += 1
        if self.failing_since is None:
            self.failing_since = time
        self.error = problems[self.part] = error

    def worked(self, problems: MutableMapping[str, str]) -> None:
        self.error, self.failing_since = "", None
        problems.pop(self.part, None)

    def due_notes(self, notes: Sequence[Why], now: float, *, others_stand: bool) -> list[Why]:
        """Which of ``notes`` are to be recorded now. ``others_stand``: these are not all there are.

        One rule speaks at most every ``NOTE_EVERY_S``, since its text may hold figures that
        change each second; a note that has to wait is recorded later if it still stands. One that
        was silent for a while begins anew.
        """
        recorded = self.noted
        if not others_stand:
            recorded = recorded & {(note.rule, note.text) for note in notes}
            before = self.stood_s
            self.stood_s = {rule: at for rule, at in before.items() if now - at < NOTE_EVERY_S}
            for rule in {note.rule for note in notes}:
                if now - before.get(rule, now) >= SILENT_S:
                    self.recorded_s.pop(rule, None)
                self.stood_s[rule] = now
        found = []
        for note in notes:
            waits = 0 < now - self.recorded_s.get(note.rule, -math.inf) < NOTE_EVERY_S
            if waits or (note.rule, note.text) in recorded:
                continue
            recorded |= {(note.rule, note.text)}
            self.recorded_s[note.rule] = now
            found.append(note)
        if found:  # a rule may have the name of a pod in it
            self.recorded_s = {
                rule: at for rule, at in self.recorded_s.items() if now - at < NOTE_EVERY_S
            }
        self.noted = recorded
        return found


def summary(decision: Decision) -> str:
    """The first thing to say about it, in a sentence."""
    if decision.summary:
        return decision.summary
    if decision.plan.evictions:
        return decision.plan.evictions[0].why.text
    if decision.plan.settings:
        return decision.plan.settings[0].why.text
    return decision.notes[0].text if decision.notes else "nothing to set"


def text_of(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def first_of(errors: Sequence[str]) -> str:
    return errors[0] if len(errors) == 1 else f"{errors[0]} (and {len(errors) - 1} times more)"
