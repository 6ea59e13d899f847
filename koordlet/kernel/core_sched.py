"""Core-scheduling cookies of the processes of cgroups, spoken of by the name of their group.

The kernel knows no names: a cookie is a number that processes share (Linux
``admin-guide/hw-vuln/core-scheduling.rst``). Which cgroups are in which group is kept here, from
what is written and, after a restart, from the journal (``adopt``); the cookie of a group is what
its processes hold.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping, Sequence

from koordlet.decision.cookies import Clear, Create, Observed, Share, Step, steps
from koordlet.decision.resource import Resource, Value
from koordlet.kernel.cgroup import Cgroups, Unsupported
from koordlet.kernel.host import Host
from koordlet.kernel.members import ids_in, vanished
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
        "switch SMT on in the firmware, or do without",
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
        self._groups: dict[str, str] = {}
        """Cgroup -> group."""
        self._cookies: dict[str, int] = {}
        """Group -> the cookie that its processes were last seen to hold."""
        self._works = False

    def adopt(self, written: Mapping[str, Sequence[str]]) -> None:
        """Learn from the journal which cgroups are in which group: cgroup -> values that it may
        hold. Where there are several, a kill came between; then the cookie says which it is."""
        doubtful = {}
        for cgroup, values in written.items():
            groups = dict.fromkeys(each for each in values if each)
            if len(groups) == 1:
                self._groups[cgroup] = next(iter(groups))
            elif groups:
                doubtful[cgroup] = tuple(groups)
        for group in set(self._groups.values()):
            self._refresh(group)
        for cgroup, candidates in doubtful.items():
            held = set(self._observe(cgroup).cookies.values())
            known = [group for group in candidates if self._cookies.get(group) in held]
            unknown = [group for group in candidates if group not in self._cookies]
            self._groups[cgroup] = (*known, *unknown, candidates[-1])[0]

    def require(self) -> None:
        if not self._works:
            try_cookie(self._host)
            self._works = True

    def check(self, value: Value) -> str:
        unfit = not isinstance(value, str) or value.startswith(_UNNAMED)
        if unfit or any(each in str(value) for each in ",\n"):
            raise ValueError(f"{value!r} is not the name of a group")
        return str(value)

    def value(self, text: str) -> Value:
        return text

    def held(self, cgroup: str, ids: Sequence[int]) -> Mapping[int, str]:
        cookies = self._get(ids)
        group = self._groups.get(cgroup)
        if cookies and group and set(cookies.values()) != {self._cookies.get(group)}:
            self._refresh(group)
        names = {cookie: name for name, cookie in self._cookies.items()}
        names[0] = ""
        return {pid: names.get(each, f"{_UNNAMED}{each:x}") for pid, each in cookies.items()}

    def give(self, cgroup: str, ids: Sequence[int], text: str) -> None:
        # Also that of a group which these processes were the last to leave.
        taken = {cookie for group, cookie in self._cookies.items() if group != text}
        if text and not text.startswith(_UNNAMED):
            self._groups[cgroup] = text
        else:
            self._groups.pop(cgroup, None)
        self._forget_the_gone()
        plan = steps(cgroup, text, self._observe(cgroup), self._siblings(text), taken)
        for step in plan:
            self._run(step, set(ids))
        if text and plan:
            held = [cookie for cookie in self._get(ids).values() if cookie]
            self._cookies.update((text, cookie) for cookie in held[:1])

    def _refresh(self, group: str) -> None:
        """Find the cookie that most processes of the group hold."""
        self._cookies.pop(group, None)
        taken = set(self._cookies.values())
        counts: dict[int, int] = {}
        for each in self._siblings(group):
            for cookie in each.cookies.values():
                if cookie and cookie not in taken:
                    counts[cookie] = counts.get(cookie, 0) + 1
        if counts:
            self._cookies[group] = min(counts, key=lambda cookie: (-counts[cookie], cookie))

    def _forget_the_gone(self) -> None:
        for cgroup in [each for each in self._groups if not self._cgroups.exists(each)]:
            del self._groups[cgroup]
        alive = set(self._groups.values())
        self._cookies = {
            group: cookie
            for group, cookie in self._cookies.items()
            if group in alive or group.startswith(_UNNAMED)
        }

    def _siblings(self, group: str) -> list[Observed]:
        """The cgroups of the group, without those that have gone."""
        members = [cgroup for cgroup, each in self._groups.items() if each == group]
        return [self._observe(cgroup) for cgroup in members]

    def _observe(self, cgroup: str) -> Observed:
        try:
            ids = ids_in(self._cgroups, cgroup, self.listed_in)
        except (OSError, Unsupported):
            self._groups.pop(cgroup, None)  # it went with its processes
            ids = []
        return Observed(cgroup, self._get([each for each in ids if each]))

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
        elif isinstance(step, Share):
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
