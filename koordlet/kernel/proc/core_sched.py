"""Core-scheduling cookies of the processes of cgroups, spoken of by the name of their group.

The kernel knows no names: a cookie is a number that processes share (Linux
``admin-guide/hw-vuln/core-scheduling.rst``). Which cgroups are in which group is kept here, from
what is written and, after a restart, from the journal (``adopt``); the cookie of a group is what
its processes hold.

A cgroup stands for the processes in it and in all cgroups below it that have no group of their
own. So ``""``, no group of its own, is no cookie, or that of a cgroup around it. Only processes
are asked: threads have the cookie of the one that made them, and a group is given to all threads
of a process at once. koordlet itself is left out, since it must have none.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from koordlet.decision.cgroups import parent
from koordlet.decision.cookies import Clear, Create, Observed, ShareCookie, Step, steps
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup.cgroups import Cgroups, Place, Unsupported
from koordlet.kernel.host import Host
from koordlet.kernel.proc.members import MOST_BELOW, ids_below, ids_in, vanished
from koordlet.kernel.syscalls import (
    SCHED_CORE_CREATE,
    SCHED_CORE_GET,
    SCHED_CORE_SHARE_FROM,
    SCHED_CORE_SHARE_TO,
    SCOPE_THREAD,
    SCOPE_THREAD_GROUP,
)

_UNNAMED = "cookie:"
"""How the name of a group begins that somebody else made."""

_LACKING = {
    errno.ENODEV: (
        "the kernel sees no hyperthreads (ENODEV)",
        "switch SMT on, or do without: no two groups share a core then anyway",
    ),
    errno.EINVAL: (
        "the kernel has no core scheduling (EINVAL)",
        "use a kernel of 5.14 or later with CONFIG_SCHED_CORE",
    ),
    errno.ENOSYS: ("the machine has no prctl(PR_SCHED_CORE)", "use a kernel of 5.14 or later"),
}


def try_cookie(host: Host) -> None:
    """Ask for our own cookie. Raises Unsupported where core scheduling is not to be had."""
    try:
        host.sched_core(SCHED_CORE_GET, 0, SCOPE_THREAD)
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        raise Unsupported(Resource.CORE_SCHED_GROUP, *_LACKING[error.errno]) from error


class CoreSched:
    resource = Resource.CORE_SCHED_GROUP
    listed_in = Resource.PROCS

    def __init__(self, host: Host, cgroups: Cgroups) -> None:
        self._host = host
        self._cgroups = cgroups
        self._own = os.getpid()
        self._groups: dict[str, str] = {}
        """Cgroup -> group."""
        self._places: dict[str, Place | None] = {}
        """The same cgroups -> which one it was: one made anew has no group. None: it could not be
        looked at yet."""
        self._cookies: dict[str, int] = {}
        """Group -> the cookie that its processes were last seen to hold."""
        self._holders: dict[str, int] = {}
        """Group -> a process that held its cookie when it was last asked."""
        self._works = False

    @property
    def cookies(self) -> Mapping[str, int]:
        """Of every group that has one."""
        return self._cookies

    def ids(self, cgroup: str) -> list[int]:
        """The processes that ``cgroup`` stands for. Raises as ``Cgroups.read_raw``."""
        found = ids_in(self._cgroups, cgroup, self.listed_in)
        below = list(self._cgroups.children(cgroup))
        for number, each in enumerate(below):
            if number >= MOST_BELOW:
                raise OSError(errno.E2BIG, f"more than {MOST_BELOW} cgroups in it", cgroup)
            if not self._own_group(each):
                found += ids_below(self._cgroups, each, self.listed_in)
                below += self._cgroups.children(each)
        # 0 stands for a process of another PID namespace.
        return [pid for pid in found if pid not in (0, self._own)]

    def adopt(self, written: Mapping[str, Sequence[str]]) -> None:
        """Learn from the journal which cgroups are in which group: cgroup -> values that it may
        hold. Where there are several, a kill came between; then the cookie says which it is."""
        doubtful = {}
        for cgroup, values in written.items():
            groups = dict.fromkeys(each for each in values if each)
            if len(groups) == 1:
                self._join(cgroup, next(iter(groups)))
            elif groups:
                doubtful[cgroup] = tuple(groups)
        for group in set(self._groups.values()):
            self._refresh(group)
        for cgroup, candidates in doubtful.items():
            held = set(self._observe(cgroup).cookies.values())
            known = [group for group in candidates if self._cookies.get(group) in held]
            unknown = [group for group in candidates if group not in self._cookies]
            self._join(cgroup, (*known, *unknown, candidates[-1])[0])

    def require(self) -> None:
        """Raises Unsupported. What else may be wrong is told by each read and write."""
        if not self._works:
            with suppress(OSError):
                try_cookie(self._host)
                self._works = True

    def check(self, value: Value) -> str:
        unfit = not isinstance(value, str) or value.startswith(_UNNAMED)
        if unfit or any(each in str(value) for each in ",\n"):
            raise ValueError(f"{value!r} is not the name of a group")
        return str(value)

    def back(self, text: str) -> str:
        return text

    def value(self, text: str) -> Value:
        return text

    def held(self, cgroup: str, ids: Sequence[int]) -> Mapping[int, str]:
        cookies = self._get(ids)
        group = self._groups.get(cgroup)
        deviates = cookies and set(cookies.values()) != {self._cookies.get(group or "")}
        if group and deviates and not self._holder(group):
            self._refresh(group)
        names = {cookie: name for name, cookie in self._cookies.items()}
        names[0] = ""
        if not self._own_group(cgroup) and (around := self._cookies.get(self._around(cgroup))):
            names[around] = ""
        return {pid: names.get(each, f"{_UNNAMED}{each:x}") for pid, each in cookies.items()}

    def give(self, cgroup: str, ids: Sequence[int], text: str) -> None:
        if text and not text.startswith(_UNNAMED):
            self._join(cgroup, text)
        else:
            self._leave(cgroup)
        if not text:
            self._share(self._holder(self._around(cgroup)), ids)
        elif source := self._holder(text):
            self._share(source, ids)
        else:
            self._begin(cgroup, ids, text)

    def _begin(self, cgroup: str, ids: Sequence[int], group: str) -> None:
        """Find, or make, the cookie of a group of which no holder is known."""
        # Also that of a group which these processes were the last to leave.
        taken = self._taken(group)
        self._forget_the_gone()
        for step in steps(cgroup, group, self._observe(cgroup), self._siblings(group), taken):
            self._run(step, set(ids))
        for pid, cookie in self._get(ids).items():
            if cookie:
                self._cookies[group], self._holders[group] = cookie, pid
                return

    def _holder(self, group: str) -> int:
        """A process that has the cookie of the group at this moment; 0 where none is known."""
        pid, cookie = self._holders.get(group, 0), self._cookies.get(group, 0)
        if not (pid and cookie) or cookie in self._taken(group):
            return 0
        return pid if self._get([pid]).get(pid) == cookie else 0

    def _taken(self, group: str) -> set[int]:
        """The cookies of other groups."""
        return {cookie for other, cookie in self._cookies.items() if other != group}

    def _refresh(self, group: str) -> None:
        """Find the cookie that most processes of the group hold."""
        self._forget(group)
        taken = self._taken(group)
        holders: dict[int, list[int]] = {}
        for each in self._siblings(group):
            for pid, cookie in each.cookies.items():
                if cookie and cookie not in taken:
                    holders.setdefault(cookie, []).append(pid)
        if holders:
            cookie = min(holders, key=lambda each: (-len(holders[each]), each))
            self._cookies[group], self._holders[group] = cookie, holders[cookie][0]

    def _join(self, cgroup: str, group: str) -> None:
        self._groups[cgroup] = group
        try:
            self._places[cgroup] = self._cgroups.place(cgroup, self.listed_in)
        except (OSError, Unsupported):
            self._places[cgroup] = None
            self._leave_if_gone(cgroup)

    def _leave_if_gone(self, cgroup: str) -> None:
        """Where it went its processes went too; one that is only out of sight keeps its group."""
        if self._cgroups.has_lost(cgroup, self.listed_in):
            self._leave(cgroup)

    def _leave(self, cgroup: str) -> None:
        self._groups.pop(cgroup, None)
        self._places.pop(cgroup, None)

    def _own_group(self, cgroup: str) -> str:
        """``""``: none, or that of a cgroup that was there before."""
        group = self._groups.get(cgroup, "")
        if not group:
            return ""
        try:
            place = self._cgroups.place(cgroup, self.listed_in)
        except (OSError, Unsupported):
            return ""
        known = self._places[cgroup] = self._places[cgroup] or place
        return group if known == place else ""

    def _around(self, cgroup: str) -> str:
        """The group of the nearest cgroup above that has one."""
        while cgroup:
            cgroup = parent(cgroup)
            if group := self._own_group(cgroup):
                return group
        return ""

    def _forget(self, group: str) -> None:
        self._cookies.pop(group, None)
        self._holders.pop(group, None)

    def _forget_the_gone(self) -> None:
        for cgroup in tuple(self._groups):
            self._leave_if_gone(cgroup)
        alive = set(self._groups.values())
        for group in [*self._cookies]:
            if group not in alive and not group.startswith(_UNNAMED):
                self._forget(group)

    def _siblings(self, group: str) -> list[Observed]:
        """The cgroups of the group, without those that have gone."""
        members = [cgroup for cgroup, each in self._groups.items() if each == group]
        return [self._observe(cgroup) for cgroup in members]

    def _observe(self, cgroup: str) -> Observed:
        try:
            return Observed(cgroup, self._get(self.ids(cgroup)))
        except (OSError, Unsupported):
            self._leave_if_gone(cgroup)
            return Observed(cgroup, {})

    def _get(self, ids: Sequence[int]) -> dict[int, int]:
        cookies = {}
        for pid in ids:
            try:
                cookies[pid] = self._host.sched_core(SCHED_CORE_GET, pid, SCOPE_THREAD)
            except OSError as error:
                if not vanished(error):
                    raise
        return cookies

    def _run(self, step: Step, ids: set[int]) -> None:
        if isinstance(step, Clear):
            self._share(0, [pid for pid in step.pids if pid in ids])
        elif isinstance(step, ShareCookie):
            self._share(step.from_pid, [pid for pid in step.to_pids if pid in ids])
        elif isinstance(step, Create):
            pids = [pid for pid in step.pids if pid in ids]
            for number, pid in enumerate(pids):
                if self._call(SCHED_CORE_CREATE, pid):
                    self._share(pid, pids[number + 1 :])
                    return

    def _share(self, source: int, targets: Sequence[int]) -> None:
        """The cookie of ``source`` (0: none) for all of ``targets``.

        Sharing goes through the cookie of the calling thread, so a thread does it that is made
        for this and ends with it: that of the daemon stays 0.
        """

        def share() -> None:
            if source and not self._call(SCHED_CORE_SHARE_FROM, source, SCOPE_THREAD):
                return
            for pid in targets:
                self._call(SCHED_CORE_SHARE_TO, pid)

        if targets:
            _in_new_thread(share)

    def _call(self, command: int, pid: int, scope: int = SCOPE_THREAD_GROUP) -> bool:
        """False when the process has vanished."""
        try:
            self._host.sched_core(command, pid, scope)
        except OSError as error:
            if not vanished(error):
                raise
            return False
        return True


def _in_new_thread(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread of its own, to the end; what it raises comes out here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # for the thread that waits
            raised.append(error)

    thread = threading.Thread(target=run, name="sched-core")
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
