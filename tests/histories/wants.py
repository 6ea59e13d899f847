"""What each owner wants, and what its files must hold for that: the rules as
docs/concepts/actuator.md states them, worked out anew beside the actuator."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from koordlet.decision.plan import Plan
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.engine.parts import Parts
from koordlet.hooks import HOOKS
from koordlet.kernel.cgroup.cgroups import Unsupported
from koordlet.kernel.proc.members import PER_PROCESS
from koordlet.protocol.cpuset import format_cpulist, parse_cpulist
from koordlet.qos import STRATEGIES
from tests.histories.broken import check
from tests.histories.machine import MEMORY_BYTES

PAGE_BYTES = 4096
_DOC = Path(__file__).parent.parent.parent / "docs" / "concepts" / "actuator.md"
_OWNERS = (*STRATEGIES, *HOOKS)
_NOT_COMPARED = PER_PROCESS | {Resource.RESCTRL_SCHEMATA}
"""Values of processes, and lines that the kernel completes."""

File = tuple[str, Resource]


class Want(NamedTuple):
    """``active``: wanted now, not only kept."""

    owner: str
    value: Value
    raises: Value | None = None
    active: bool = True


@cache
def documented() -> Mapping[str, str]:
    """Name of a resource -> its rule."""
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", _DOC.read_text(), re.MULTILINE)
    return {name: rule for rule, names in rows for name in re.findall(r"`([^`]+)`", names)}


def together(resource: Resource, wants: Sequence[Want]) -> Value:
    """What comes of ``wants``, of which there is at least one."""
    rule = documented()[resource.value]
    by_rank = sorted(wants, key=lambda want: (_rank(want.owner), want.owner))
    values = [want.value for want in by_rank]
    if rule == "rank":
        return values[0]
    if rule == "largest":
        return UNLIMITED if UNLIMITED in values else max(map(int, values))
    if rule == "smallest":
        return _smallest(by_rank)
    assert rule == "intersection", rule
    lists = [parse_cpulist(str(value)) for value in values]
    return format_cpulist(frozenset.intersection(*lists) or lists[0])


def _rank(owner: str) -> int:
    return _OWNERS.index(owner) if owner in _OWNERS else len(_OWNERS)


def _smallest(wants: Sequence[Want]) -> Value:
    limit = _least([want for want in wants if want.raises is None] or wants)
    raised = [want for want in wants if want.raises is not None and want.raises == limit]
    return _least(raised) if raised else limit


def _least(wants: Sequence[Want]) -> Value:
    return min((int(want.value) for want in wants if want.value != UNLIMITED), default=UNLIMITED)


class Wants:
    """Hears every plan that reaches the actuator."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self._wanted: dict[str, dict[File, Want]] = {}
        self._silent: set[str] = set()
        self._count = count

    def follow(self, parts: Parts) -> None:
        """``parts`` has a new actuator, which knows what its journal says."""
        self._parts = parts
        self._wanted.clear()
        for key, entry in parts.journal.entries.items():
            if entry.ours:
                want = Want(entry.owner, entry.ours[-1], active=False)
                self._wanted.setdefault(entry.owner, {})[tuple(key)] = want  # type: ignore[index]
        self._silent = set(self._wanted)
        actuator = parts.actuator
        apply, amend, restore_all = actuator.apply, actuator.amend, actuator.restore_all

        def hear_apply(plans: Sequence[Plan], **clock: Any) -> Any:
            for plan in plans:
                self._hear(plan)
            return apply(plans, **clock)

        def hear_amend(plans: Sequence[Plan], **clock: Any) -> Any:
            for plan in plans:
                self._add(plan, self._wanted.setdefault(plan.owner, {}))
            return amend(plans, **clock)

        def hear_restore(**how: Any) -> Any:
            self._wanted.clear()
            return restore_all(**how)

        actuator.apply = hear_apply  # type: ignore[method-assign]
        actuator.amend = hear_amend  # type: ignore[method-assign]
        actuator.restore_all = hear_restore  # type: ignore[method-assign]

    def check(self, excused: Callable[[File, str], bool]) -> None:
        """Each file holds what comes of all that is wanted. ``excused``: what need not."""
        knobs = self._parts.knobs
        files = self._files()
        for file, wants in files.items():
            cgroup, resource = file
            if resource in _NOT_COMPARED or not any(want.active for want in wants):
                continue
            with suppress(OSError, Unsupported):
                path, found = knobs.path(*file), knobs.read(*file)
                least, most = _bounds(file, files)
                fits = knobs.equal(resource, most, found) or (
                    least != most and int(least) <= int(found) <= int(most)
                )
                if len({want.value for want in wants}) > 1:
                    self._count("files of several wants")
                check(
                    fits or excused(file, path),
                    f"{cgroup} {resource} is {found!r}; of {wants} comes {most!r}",
                )

    def _hear(self, plan: Plan) -> None:
        before = self._wanted.get(plan.owner, {})
        kept = before if plan.keep_all else plan.keep
        wants = {file: before[file]._replace(active=False) for file in kept if file in before}
        self._wanted[plan.owner] = self._add(plan, wants)
        self._silent.discard(plan.owner)

    def _add(self, plan: Plan, wants: dict[File, Want]) -> dict[File, Want]:
        for each in plan.settings:
            want = Want(plan.owner, each.value, each.raises)
            wants[each.cgroup, each.resource] = want
        return wants

    def _files(self) -> dict[File, list[Want]]:
        """Without those of owners of an earlier run that have not spoken yet, and without what
        this machine cannot do."""
        found: dict[File, list[Want]] = {}
        unsure: set[File] = set()
        for owner, wants in self._wanted.items():
            if owner in self._silent:
                unsure.update(wants)
            for file, want in wants.items():
                if not want.active or self._can_be(file, want.value):
                    found.setdefault(file, []).append(want)
        return {file: wants for file, wants in found.items() if file not in unsure}

    def _can_be(self, file: File, value: Value) -> bool:
        try:
            self._parts.knobs.path(*file)
            self._parts.knobs.encode(file[1], value)
        except (Unsupported, ValueError):
            return False
        return True


def _bounds(file: File, files: Mapping[File, Sequence[Want]]) -> tuple[Value, Value]:
    """The least and the most that ``file`` may hold."""
    cgroup, resource = file
    value = together(resource, files[file])
    if resource is Resource.CPU_BURST_US and (cgroup, Resource.CPU_QUOTA_US) in files:
        quota = together(Resource.CPU_QUOTA_US, files[cgroup, Resource.CPU_QUOTA_US])
        if quota != UNLIMITED:
            value = min(int(value), int(quota))
    if resource in (Resource.MEMORY_MIN, Resource.MEMORY_LOW):
        total = sum(_promised(resource, files))
        if total > MEMORY_BYTES:
            return max(int(value) * MEMORY_BYTES // total - PAGE_BYTES, 0), value
    return value, value


def _promised(resource: Resource, files: Mapping[File, Sequence[Want]]) -> Iterator[int]:
    """At the top of each tree."""
    for (cgroup, each), wants in files.items():
        parts = cgroup.split("/")
        above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if each is resource and not any((top, resource) in files for top in above):
            yield int(together(resource, wants))
