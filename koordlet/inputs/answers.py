"""Answers to questions about values in force, told once and again when they change.

A question is told as its kind and the numbers of its names, then it has a number of its own::

    value, original, is ours    kind, cgroup, resource
    reaches                     kind, cgroup, resource, number
    children                    kind, cgroup, resource or -1
    without                     kind, cgroup, resource, owner
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from koordlet.decision.reads import Reads
from koordlet.decision.resource import Resource
from koordlet.inputs.model import Answers

VALUE, ORIGINAL, WITHOUT, OURS, CHILDREN, REACHES = range(6)
_NOTHING = -1

Known = tuple[dict[Any, Any], ...]


def tables(reads: Reads) -> Known:
    """Questions with their answers, by kind."""
    return (
        reads.values,
        reads.originals,
        reads.withouts,
        reads.ours,
        reads.children,
        reads.reached,
    )


class Teller:
    """What a reader of the log knows, so as to tell it the rest."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._ids: dict[tuple[int, Hashable], int] = {}
        self._known: Known = tables(Reads())

    def __len__(self) -> int:
        return len(self._ids)

    def tell(self, reads: Reads) -> Answers | None:
        """What differs from what was told; None when nothing does."""
        names: list[str] = []
        questions: list[int] = []
        ids: list[int] = []
        found: list[Any] = []
        for kind, (asked, known) in enumerate(zip(tables(reads), self._known, strict=True)):
            if asked.items() <= known.items():  # thousands of them, of which few ever change
                continue
            for key, answer in asked.items():
                if key in known and known[key] == answer:
                    continue
                known[key] = answer
                number = self._ids.get((kind, key))
                if number is None:
                    number = self._ids[kind, key] = len(self._ids)
                    questions += (kind, *self._parts(kind, key, names))
                ids.append(number)
                found.append(answer)
        if not ids:
            return None
        steps = (after - before for before, after in zip([0, *ids], ids, strict=False))
        return Answers(tuple(names), tuple(questions), tuple(steps), tuple(found))

    def _parts(self, kind: int, key: Any, new: list[str]) -> Iterator[int]:
        if kind == WITHOUT:
            owner, cgroup, resource = key
            key = cgroup, resource, owner
        elif kind == REACHES:
            *key, least = key
            yield from (self._name(part, new) for part in key)
            yield least
            return
        yield from (self._name(part, new) for part in key)

    def _name(self, text: str | None, new: list[str]) -> int:
        if text is None:
            return _NOTHING
        number = self._names.get(text)
        if number is None:
            number = self._names[str(text)] = len(self._names)
            new.append(str(text))
        return number


class Listener:
    """``reads``: what the log has told so far. Raises IndexError, KeyError and ValueError for what
    no teller says."""

    def __init__(self) -> None:
        self.reads = Reads()
        self._names: list[str] = []
        self._questions: list[tuple[int, Any]] = []

    def hear(self, answers: Answers) -> None:
        self._names += answers.names
        self._questions += self._parsed(answers.questions)
        known = tables(self.reads)
        for number, found in zip(accumulate(answers.ids), answers.found, strict=True):
            kind, key = self._questions[number]
            known[kind][key] = tuple(found) if kind == CHILDREN else found  # type: ignore[arg-type]

    def _parsed(self, flat: Sequence[int]) -> Iterator[tuple[int, Any]]:
        place = 0
        while place < len(flat):
            kind, cgroup, resource = flat[place : place + 3]
            place += 3
            of = None if resource == _NOTHING else Resource(self._names[resource])
            if kind == WITHOUT:
                yield kind, (self._names[flat[place]], self._names[cgroup], of)
                place += 1
            elif kind == REACHES:
                yield kind, (self._names[cgroup], of, flat[place])
                place += 1
            else:
                yield kind, (self._names[cgroup], of)
