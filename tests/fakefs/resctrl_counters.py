"""Counters of memory traffic that are given to groups (mode ``mbm_event`` of fs/resctrl, since
Linux 6.18): AMD's assignable ones, and Arm's where there are fewer than groups."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from koordlet_fakefs.parse import refuse, strip
from koordlet_fakefs.tree import Directory, Leaf, add_directory

if TYPE_CHECKING:
    from koordlet_fakefs.resctrl import Root
    from koordlet_fakefs.resctrl_monitor import Counters

UNASSIGNED = "Unassigned"
TRANSACTIONS = (
    "local_reads",
    "remote_reads",
    "local_non_temporal_writes",
    "remote_non_temporal_writes",
    "local_reads_slow_memory",
    "remote_reads_slow_memory",
    "dirty_victim_writes_all",
)
_OFF = "mbm_event counter assignment mode is not enabled"

Slot = tuple[int, str]
"""(domain, event)."""


class CounterPool:
    """So many counters in each domain; ``number`` 0: there is one for every group."""

    def __init__(self, number: int, domains: Sequence[int], events: Iterable[str]) -> None:
        self.number = number
        self.domains = domains
        self.events = [each for each in events if each.startswith("mbm")]
        self.enabled = number > 0
        self.on_mkdir = True
        self.given: dict[Counters, set[Slot]] = {}
        self.filters = {each: _usual(each) for each in self.events}

    def counts(self, group: Counters, slot: Slot) -> bool:
        return not self.enabled or slot[1] not in self.events or slot in self.given.get(group, ())

    def free(self, domain: int) -> int:
        used = sum(slot[0] == domain for slots in self.given.values() for slot in slots)
        return self.number - used

    def assign(self, group: Counters, event: str, domains: Iterable[int]) -> str:
        """What could not be given, as the kernel says it; it goes on after a failure since 7.2."""
        failed = ""
        mine = self.given.setdefault(group, set())
        for domain in domains:
            if (domain, event) not in mine and not self.free(domain):
                failed += f"Failed to allocate counter for {event} in domain {domain}\n"
            elif (domain, event) not in mine:
                mine.add((domain, event))
                group.values[domain, event] = 0
        return failed

    def begin(self, group: Counters) -> str:
        """A new group gets a counter for each event, as far as there are some."""
        if not (self.enabled and self.on_mkdir):
            return ""
        return "".join(self.assign(group, event, self.domains) for event in self.events)

    def end(self, group: Counters) -> None:
        self.given.pop(group, None)


def add_counter_info(about: Directory, pool: CounterPool, root: Root) -> None:
    """What ``info/L3_MON`` has of it."""

    def mode() -> str:
        if not pool.number:
            return "[default]\n"
        return "[mbm_event]\ndefault\n" if pool.enabled else "[default]\nmbm_event\n"

    def set_mode(text: str) -> None:
        if strip(text) not in ("mbm_event", "default"):
            root.fail("Unsupported assign mode")
        if strip(text) == "mbm_event" and not pool.number:
            root.fail("mbm_event mode is not supported")
        pool.enabled = strip(text) == "mbm_event"
        pool.given.clear()

    def by_domain(what: dict[int, int]) -> str:
        return ";".join(f"{domain}={number}" for domain, number in what.items()) + "\n"

    def available() -> str:
        _require(pool, root)
        return by_domain({each: pool.free(each) for each in pool.domains})

    def on_mkdir() -> str:
        _require(pool, root)
        return f"{int(pool.on_mkdir)}\n"

    def set_on_mkdir(text: str) -> None:
        _require(pool, root)
        pool.on_mkdir = strip(text) == "1"

    about.entries["mbm_assign_mode"] = Leaf(mode, set_mode)
    if not pool.number:
        return
    total = dict.fromkeys(pool.domains, pool.number)
    about.entries["num_mbm_cntrs"] = Leaf(lambda: by_domain(total), open_errno=errno.EACCES)
    about.entries["available_mbm_cntrs"] = Leaf(available, open_errno=errno.EACCES)
    about.entries["mbm_assign_on_mkdir"] = Leaf(on_mkdir, set_on_mkdir)
    for event in pool.events:
        directory = add_directory(about, f"event_configs/{event}")
        directory.entries["event_filter"] = _filter(event, pool, root)


def assignments(group: Counters, pool: CounterPool, root: Root) -> Leaf:
    """``mbm_L3_assignments`` of a group."""

    def show() -> str:
        _require(pool, root)
        mine = pool.given.get(group, set())
        return "".join(
            f"{event}:{';'.join(f'{d}={_state((d, event) in mine)}' for d in pool.domains)}\n"
            for event in pool.events
        )

    def change(text: str) -> None:
        _require(pool, root)
        root.status = ""
        for line in strip(text).split("\n"):
            event, _, domains = line.partition(":")
            for domain, state in _changes(domains):
                wanted = pool.domains if domain == "*" else [int(domain)]
                if event not in pool.events or not set(wanted) <= set(pool.domains):
                    raise refuse(errno.EINVAL)
                if state == "_":
                    pool.given[group] = pool.given.get(group, set()) - {(d, event) for d in wanted}
                elif failed := pool.assign(group, event, wanted):
                    root.fail(failed.rstrip(), errno.ENOSPC)

    return Leaf(show, change)


def _changes(text: str) -> Iterator[tuple[str, str]]:
    for each in text.split(";"):
        domain, _, state = each.partition("=")
        if state not in ("e", "_") or not (domain == "*" or domain.isdigit()):
            raise refuse(errno.EINVAL)
        yield domain, state


def _state(given: bool) -> str:
    return "e" if given else "_"


def _filter(event: str, pool: CounterPool, root: Root) -> Leaf:
    def show() -> str:
        _require(pool, root)
        return ",".join(pool.filters[event]) + "\n"

    def change(text: str) -> None:
        _require(pool, root)
        wanted = strip(text).split(",")
        for each in wanted:
            if each not in TRANSACTIONS:
                root.fail(f"Invalid memory transaction type {each}")
        pool.filters[event] = [each for each in TRANSACTIONS if each in wanted]
        for group, slots in pool.given.items():
            group.values |= {slot: 0 for slot in slots if slot[1] == event}

    return Leaf(show, change)


def _usual(event: str) -> list[str]:
    return [each for each in TRANSACTIONS if "total" in event or each.startswith("local")]


def _require(pool: CounterPool, root: Root) -> None:
    if not pool.enabled:
        root.fail(_OFF)
