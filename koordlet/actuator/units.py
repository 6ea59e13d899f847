"""Values of cgroups told to systemd as properties of their units, so that it writes ours itself.

systemd writes every file of a unit again whenever somebody sets one of its properties, as kubelet
does with its slices each minute and with each pod. A file alone is then reset, also while koordlet
is away. What was told goes back when the file does.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import msgspec
import structlog

from koordlet.actuator.journal.files import fsync_directory
from koordlet.actuator.merge import Key
from koordlet.actuator.outcome import Outcome, describe
from koordlet.decision.plan import Result
from koordlet.decision.resource import CFS_PERIOD_US, UNLIMITED, Resource
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.conversions import shares_to_weight
from koordlet.kernel.unit_properties import INFINITY, UnitProperties
from koordlet.protocol.document import UNREADABLE

log = structlog.get_logger()

FILE_NAME = "units"
OWNER = "systemd"
PROPERTY: Mapping[Resource, str] = {
    Resource.CPU_QUOTA_US: "CPUQuotaPerSecUSec",
    Resource.CPU_PERIOD_US: "CPUQuotaPeriodUSec",
    Resource.MEMORY_MIN: "MemoryMin",
    Resource.MEMORY_LOW: "MemoryLow",
    Resource.MEMORY_HIGH: "MemoryHigh",
    Resource.MEMORY_LIMIT: "MemoryMax",
}
"""The properties that stand for a limit each. A CPU list would make systemd write those of all
cgroups beside and below."""
WEIGHT: Mapping[Resource, str] = {Resource.CPU_SHARES: "CPUWeight"}
"""Property that kubelet sets of its slices itself; told of other units on cgroup v2."""
_FLOORS = frozenset((Resource.MEMORY_MIN, Resource.MEMORY_LOW))
_TOLD = Why("systemd.told", "told to systemd, which writes the unit's files again at any time")
_TAKEN_BACK = Why("systemd.taken-back", "no owner wants it any more")
_NAME = {**PROPERTY, **WEIGHT}
_RESOURCE = {name: resource for resource, name in _NAME.items()}


class Property(msgspec.Struct, frozen=True):
    """A property of a unit that koordlet has set. ``original``: what systemd knew before."""

    cgroup: str
    unit: str
    name: str
    original: int

    @property
    def key(self) -> Key:
        return Key(self.cgroup, _RESOURCE[self.name])


class _File(msgspec.Struct, frozen=True):
    boot_id: str
    properties: tuple[Property, ...]


class Told:
    """The properties that are ours, on disk before systemd hears of them: a small file beside the
    journal, replaced as a whole. A boot takes the values with it. Raises OSError for one that is
    there and cannot be read."""

    def __init__(self, path: str, boot_id: str) -> None:
        self.path = path
        self._boot_id = boot_id
        self.properties: dict[tuple[str, str], Property] = {}
        """Properties by unit and name."""
        self.last: dict[tuple[str, str], int] = {}
        """Value of each that systemd has from us for sure."""
        self.is_lost = False
        """The values that systemd knew before an earlier run are not known any more."""
        try:
            with open(path, "rb") as file:
                found = msgspec.json.decode(file.read(), type=_File)
        except (FileNotFoundError, NotADirectoryError):
            return
        except UNREADABLE as error:
            text = "damaged: what systemd knew before is lost, and counts as no limit"
            log.warning(text, path=path, error=str(error))
            self.is_lost = True
            return
        if found.boot_id == boot_id:
            self._index(found.properties)

    def store(self, properties: Iterable[Property]) -> None:
        """Raises OSError: then systemd must not be told."""
        kept = tuple(properties)
        temporary = f"{self.path}.new"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            file.write(msgspec.json.encode(_File(self._boot_id, kept)))
            file.flush()
            os.fsync(fd)
        os.rename(temporary, self.path)
        fsync_directory(self.path)
        self._index(kept)

    def _index(self, properties: Iterable[Property]) -> None:
        self.properties = {(each.unit, each.name): each for each in properties}
        self.last = {place: value for place, value in self.last.items() if place in self.properties}


def path_beside(journal_path: str) -> str:
    return os.path.join(os.path.dirname(journal_path), FILE_NAME)


class Want(NamedTuple):
    """``value`` of a file that is ours, for the unit of its cgroup. ``period_us``: of its quota."""

    cgroup: str
    resource: Resource
    value: int
    period_us: int = CFS_PERIOD_US

    @property
    def key(self) -> Key:
        return Key(self.cgroup, self.resource)

    @property
    def told(self) -> int:
        """The value of the property."""
        if self.value == UNLIMITED:
            return INFINITY
        if self.resource is Resource.CPU_QUOTA_US:
            return self.value * 1_000_000 // self.period_us
        if self.resource is Resource.CPU_SHARES:
            return shares_to_weight(self.value)
        return self.value

    @property
    def unit(self) -> str:
        return self.cgroup.rpartition("/")[2]

    @property
    def name(self) -> str:
        return _NAME[self.resource]


def tell(
    units: UnitProperties, told: Told, wants: Sequence[Want], *, time: float
) -> tuple[Outcome, ...]:
    """Set what is wanted. One outcome for each property that was set or could not be. ``time``:
    unix seconds."""
    by_unit: dict[str, list[Want]] = {}
    for want in wants:
        by_unit.setdefault(want.unit, []).append(want)
    return tuple(o for unit in sorted(by_unit) for o in _set(units, told, by_unit[unit], time))


def take_back(
    units: UnitProperties,
    told: Told,
    held: Container[Key],
    *,
    time: float,
    observe: bool = False,
) -> tuple[Outcome, ...]:
    """Give systemd back what it knew of files that we do not hold any more. One outcome each;
    ``observe``: only say so."""
    by_unit: dict[str, list[Property]] = {}
    for each in _left(told, held):
        by_unit.setdefault(each.unit, []).append(each)
    found = (_give_back(units, told, by_unit[unit], time, observe) for unit in sorted(by_unit))
    return tuple(chain.from_iterable(found))


def not_taken_back(
    told: Told, held: Container[Key], text: str, *, time: float
) -> tuple[Outcome, ...]:
    """Outcomes of what systemd was not given back, and why."""
    result, why = Result.REFUSED, _TAKEN_BACK
    return tuple(
        _outcome(each.cgroup, each.name, each.original, result, time, text, why)
        for each in _left(told, held)
    )


def _left(told: Told, held: Container[Key]) -> list[Property]:
    return [each for each in told.properties.values() if each.key not in held]


def _set(units: UnitProperties, told: Told, wants: Sequence[Want], time: float) -> list[Outcome]:
    unit = wants[0].unit
    try:
        found = units.get(unit, [want.name for want in wants])
        new = [
            Property(want.cgroup, unit, want.name, _original(told, want, found[want.name]))
            for want in wants
            if _is_others(told, want, found[want.name])
        ]
        if new:
            kept = {**told.properties, **{(unit, each.name): each for each in new}}
            told.store(kept.values())
        changed = [want for want in wants if found[want.name] != want.told]
        for want in wants:
            told.last.pop((unit, want.name), None)
        if changed:
            units.set(unit, {want.name: want.told for want in changed})
        told.last.update({(unit, want.name): want.told for want in wants})
    except OSError as error:
        text = describe(error, f"systemd unit {unit}")
        return [_outcome(w.cgroup, w.name, w.told, Result.REFUSED, time, text) for w in wants]
    return [_outcome(w.cgroup, w.name, w.told, Result.WRITTEN, time) for w in changed]


def _original(told: Told, want: Want, found: int) -> int:
    if told.is_lost and (want.unit, want.name) not in told.properties:
        return 0 if want.resource in _FLOORS else INFINITY
    return found


def _is_others(told: Told, want: Want, found: int) -> bool:
    """Return whether ``found`` is what goes back one day: what systemd knew before us, or what
    somebody has told it since."""
    place = want.unit, want.name
    ours = told.properties.get(place)
    if ours is None:
        return True
    return place in told.last and found not in (told.last[place], want.told, ours.original)


def _give_back(
    units: UnitProperties, told: Told, ours: Sequence[Property], time: float, observe: bool
) -> list[Outcome]:
    """``ours``: of one unit."""
    unit = ours[0].unit
    result, text = Result.WOULD_RESTORE, ""
    if not observe:
        result = Result.RESTORED
        try:
            with contextlib.suppress(FileNotFoundError):  # it took the values with it
                units.set(unit, {each.name: each.original for each in ours})
            told.store(each for each in told.properties.values() if each not in ours)
        except OSError as error:
            result, text = Result.REFUSED, describe(error, f"systemd unit {unit}")
    return [
        _outcome(each.cgroup, each.name, each.original, result, time, text, _TAKEN_BACK)
        for each in ours
    ]


def _outcome(
    cgroup: str,
    name: str,
    value: int,
    result: Result,
    time: float,
    text: str = "",
    why: Why = _TOLD,
) -> Outcome:
    shown = UNLIMITED if value == INFINITY else value
    written = shown if result in {Result.WRITTEN, Result.RESTORED} else None
    path = f"{name} of systemd unit {cgroup.rpartition('/')[2]}"
    return Outcome(
        time, OWNER, cgroup, _RESOURCE[name], path, shown, None, written, result, why, text
    )
