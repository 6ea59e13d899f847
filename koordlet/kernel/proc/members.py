"""Values that each process of a cgroup has for itself, spoken of as one value of the cgroup.

Such a value is inherited by fork, so a process needs attention once: when it is found in the
cgroup with another value than the rest, because a container runtime put it there.
"""

from __future__ import annotations

import errno
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from koordlet.decision.resource import NOBODY, Resource, Value
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.kubepods import is_container
from koordlet.kernel.host import Host
from koordlet.kernel.parse import ParseError
from koordlet.kernel.proc.files import start_ticks

PER_PROCESS = frozenset(
    {
        Resource.OOM_SCORE_ADJ,
        Resource.CORE_SCHED_GROUP,
        Resource.RESCTRL_GROUP,
        Resource.RESCTRL_MONITOR,
    }
)

_VANISHED = (errno.ENOENT, errno.ESRCH)
_ROUNDS = 3
"""Passes over the processes in one write, since they may fork meanwhile."""


class Trait(Protocol):
    """One kind of value. Values are text here. Processes that vanish meanwhile are left out;
    what else the kernel refuses is raised."""

    resource: Resource
    listed_in: Resource
    """The file that lists whom it is about: processes or threads."""

    def check(self, value: Value) -> str:
        """Raises ValueError naming the range."""
        ...

    def value(self, text: str) -> Value: ...

    def held(self, cgroup: str, ids: Sequence[int]) -> Mapping[int, str]: ...

    def give(self, cgroup: str, ids: Sequence[int], text: str) -> None: ...

    def back(self, text: str) -> str:
        """What an original is by now: another value where what it named has gone."""
        ...

    def require(self) -> None:
        """Raises Unsupported where this machine cannot have such values."""
        ...


class _Originals(NamedTuple):
    """``exact``: (id, start time) -> value. Everybody else: ``common``."""

    common: str
    exact: Mapping[tuple[int, int], str]


class Members:
    """Reads and writes one trait. Raises as ``Cgroups`` does.

    ``read``: the value that all have, or all distinct ones joined by commas. Raw bytes are lines
    ``<id> <start time> <value>``; the first, of id 0, is for all that have no line.
    """

    def __init__(
        self,
        host: Host,
        cgroups: Cgroups,
        trait: Trait,
        proc_root: str,
        ids: Callable[[str], Sequence[int]] | None = None,
    ) -> None:
        """``ids``: whom a cgroup stands for, where that is not only who is directly in it."""
        self._host = host
        self._cgroups = cgroups
        self._trait = trait
        self._proc_root = proc_root
        self._ids = ids or self._inside

    def path(self, cgroup: str, resource: Resource) -> str:
        self._trait.require()
        return f"{resource} of {self._cgroups.path(cgroup, self._trait.listed_in)}"

    def id(self, cgroup: str, resource: Resource) -> int:
        return self._cgroups.id(cgroup, self._trait.listed_in)

    @property
    def listed_in(self) -> Resource:
        """The file of the cgroup that stands for it."""
        return self._trait.listed_in

    def is_possible(self) -> bool:
        """Whether this machine can have such values."""
        try:
            self._trait.require()
        except Unsupported:
            return False
        return True

    def encode(self, resource: Resource, value: Value) -> bytes:
        return _line(0, 0, self._check(value))

    def equal(self, resource: Resource, wanted: Value, found: Value) -> bool:
        return NOBODY in (wanted, found) or str(wanted) == str(found)

    def read(self, cgroup: str, resource: Resource) -> Value:
        values = sorted(set(self._held(cgroup).values()))
        if not values:
            return NOBODY
        return self._trait.value(values[0]) if len(values) == 1 else ",".join(values)

    def read_raw(self, cgroup: str, resource: Resource) -> bytes:
        held = self._held(cgroup)
        if not held:
            raise OSError(errno.ESRCH, "no process in it", self.path(cgroup, resource))
        common = Counter(sorted(held.values())).most_common(1)[0][0]
        lines = [_line(0, 0, common)]
        for each, text in sorted(held.items()):
            if text != common and (started := self._started(each)) is not None:
                lines.append(_line(each, started, text))
        return b"".join(lines)

    def write(self, cgroup: str, resource: Resource, value: Value) -> None:
        text = self._check(value)
        for _ in range(_ROUNDS):
            others = [each for each, held in self._held(cgroup).items() if held != text]
            if not others:
                return
            self._trait.give(cgroup, others, text)

    def write_raw(self, cgroup: str, resource: Resource, data: bytes) -> None:
        """Back to what each process had; those that came later get what most had."""
        originals = _parse(data, self.path(cgroup, resource))
        for _ in range(_ROUNDS):
            wrong: dict[str, list[int]] = {}
            for each, text in self._wrong(cgroup, originals).items():
                wrong.setdefault(text, []).append(each)
            if not wrong:
                return
            for text, ids in sorted(wrong.items()):
                self._trait.give(cgroup, ids, text)

    def holds(self, cgroup: str, resource: Resource, data: bytes) -> bool:
        return not self._wrong(cgroup, _parse(data, self.path(cgroup, resource)))

    def _check(self, value: Value) -> str:
        try:
            return self._trait.check(value)
        except ValueError as error:
            raise ValueError(f"{self._trait.resource}: {error}") from error

    def _wrong(self, cgroup: str, originals: _Originals) -> dict[int, str]:
        """Id -> what it should have, of those that have something else."""
        wrong = {}
        numbers = {each for each, _ in originals.exact}
        back = {
            each: self._trait.back(each) for each in {originals.common, *originals.exact.values()}
        }
        for each, held in self._held(cgroup).items():
            text = originals.common
            if each in numbers and (started := self._started(each)) is not None:
                text = originals.exact.get((each, started), text)
            if held != back[text]:
                wrong[each] = back[text]
        return wrong

    def _held(self, cgroup: str) -> Mapping[int, str]:
        self._trait.require()
        ids = self._ids(cgroup)
        return self._trait.held(cgroup, ids) if ids else {}

    def _inside(self, cgroup: str) -> list[int]:
        # Applications may be one inside the other, each with values of its own; containers are not.
        list_ids = ids_within if is_container(cgroup) else ids_in
        # 0 stands for a process of another PID namespace.
        return [each for each in list_ids(self._cgroups, cgroup, self._trait.listed_in) if each]

    def _started(self, each: int) -> int | None:
        """Clock ticks after boot; None when it has gone."""
        try:
            return start_ticks(self._host, each, self._proc_root)
        except OSError as error:
            if vanished(error):
                return None
            raise


def ids_in(cgroups: Cgroups, cgroup: str, resource: Resource) -> list[int]:
    """Of ``cgroup.procs`` or ``tasks``. Raises as ``Cgroups.read_raw``."""
    return [int(each) for each in cgroups.read_raw(cgroup, resource).split()]


MOST_BELOW = 500
"""Cgroups inside one whose processes are listed; far more than systemd in a container makes."""


def ids_within(cgroups: Cgroups, cgroup: str, resource: Resource) -> list[int]:
    """Return ``ids_in`` with those in cgroups below: crun puts a container's processes one deeper
    (``crio-ID.scope/container``), and systemd inside makes cgroups of its own."""
    found = ids_in(cgroups, cgroup, resource)
    for each in islice(below(cgroups, cgroup), MOST_BELOW):
        found += ids_below(cgroups, each, resource)
    return found


def below(cgroups: Cgroups, cgroup: str) -> Iterator[str]:
    """Every cgroup inside another one, the nearest first."""
    waiting = deque(cgroups.children(cgroup))
    while waiting:
        each = waiting.popleft()
        yield each
        waiting += cgroups.children(each)


def ids_below(cgroups: Cgroups, cgroup: str, resource: Resource) -> list[int]:
    """Return ``ids_in`` of one that may go at any time, or have nobody of its own."""
    try:
        return ids_in(cgroups, cgroup, resource)
    except Unsupported:
        return []  # gone, or never there in the hierarchy that lists processes
    except OSError as error:
        # EOPNOTSUPP: a threaded cgroup, whose processes its domain lists.
        if error.errno not in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
            raise
        return []


def parts(resource: Resource, value: Value) -> tuple[Value, ...]:
    """The distinct values of the processes, where ``value`` was read from several."""
    return tuple(str(value).split(",")) if resource in PER_PROCESS else (value,)


def vanished(error: OSError) -> bool:
    """Whether that is how the kernel says that a process is not there any more."""
    return error.errno in _VANISHED


def _line(each: int, started: int, text: str) -> bytes:
    return f"{each} {started} {text}\n".encode()


def _parse(data: bytes, path: str) -> _Originals:
    exact = {}
    for number, line in enumerate(data.decode().splitlines(), start=1):
        each, _, rest = line.partition(" ")
        started, _, text = rest.partition(" ")
        if not (each.isdigit() and started.isdigit()):
            raise ParseError(path, number, "the journal has no original of this shape")
        exact[int(each), int(started)] = text
    return _Originals(exact.pop((0, 0), ""), exact)
