"""prctl(PR_SCHED_CORE) as kernel/sched/core_sched.c has it: cookies of threads."""

from __future__ import annotations

import errno
import threading
from itertools import count
from weakref import WeakKeyDictionary

from koordlet_fakefs.cgroup import SELF_PID
from koordlet_fakefs.machine import Machine, Thread
from koordlet_fakefs.parse import refuse

_GET, _CREATE, _SHARE_TO, _SHARE_FROM = range(4)
_THREAD, _THREAD_GROUP, _PROCESS_GROUP = range(3)


class Cookies:
    """The thread that made the fake is the daemon's own. Any other caller is a thread of its own
    that the fake does not list; it begins without a cookie and takes it away with it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._daemon = threading.current_thread()
        self._others: WeakKeyDictionary[threading.Thread, Thread] = WeakKeyDictionary()
        self._new = count(0x1000)

    def call(self, command: int, pid: int, scope: int) -> int:
        if not self._machine.options.core_sched:
            raise refuse(errno.EINVAL)
        if command not in range(4) or scope not in range(3) or pid < 0:
            raise refuse(errno.EINVAL)
        caller = self._caller()
        task = self._machine.thread(pid) if pid else caller
        if command in (_GET, _SHARE_FROM) and scope != _THREAD:
            raise refuse(errno.EINVAL)
        if command == _GET:
            return task.cookie
        if command == _SHARE_FROM:
            caller.cookie = task.cookie
            return 0
        cookie = next(self._new) if command == _CREATE else caller.cookie
        for each in self._in_scope(task, scope):
            each.cookie = cookie
        return 0

    def _caller(self) -> Thread:
        thread = threading.current_thread()
        own = self._machine.process(SELF_PID)
        if thread is self._daemon:
            return own.threads[SELF_PID]
        return self._others.setdefault(thread, Thread(0, own))

    @staticmethod
    def _in_scope(task: Thread, scope: int) -> list[Thread]:
        """The fake has no process groups: each process is one."""
        return [task] if scope == _THREAD else list(task.process.threads.values())
