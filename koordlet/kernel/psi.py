"""Pressure triggers (``Documentation/accounting/psi.rst``).

asyncio cannot wait for POLLPRI, and an epoll nested below it loses events, so one daemon thread
polls all armed files and hands each event to the loop that asked for it. The thread lives only
while something is armed.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio


class _Trigger:
    """One armed pressure file. Its descriptor is closed by the watcher thread alone, so that
    its number cannot be reused while that thread still polls it."""

    def __init__(
        self,
        descriptor: int,
        on_fire: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
        wake: Callable[[], None],
    ) -> None:
        self.descriptor = descriptor
        self.closed = False
        self._on_fire = on_fire
        self._loop = loop
        self._wake = wake

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._wake()

    def fire(self) -> None:
        """Called on the watcher thread."""
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody is left to tell
            self.closed = True

    def _deliver(self) -> None:
        if not self.closed:
            self._on_fire()


class PsiWatcher:
    """All triggers of one host."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._triggers: dict[int, _Trigger] = {}
        self._thread: threading.Thread | None = None
        self._wake_descriptor = -1

    def arm(
        self,
        path: str,
        trigger: str,
        on_fire: Callable[[], None],
        loop: asyncio.AbstractEventLoop,
    ) -> _Trigger:
        """See ``Host.psi_trigger``."""
        descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            # The kernel overwrites the last byte with the terminator.
            os.write(descriptor, trigger.encode() + b"\0")
        except OSError as error:
            os.close(descriptor)
            error.filename = path
            raise
        armed = _Trigger(descriptor, on_fire, loop, self._wake)
        with self._lock:
            self._triggers[descriptor] = armed
            if self._thread is None:
                self._wake_descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                self._thread = threading.Thread(
                    target=self._watch, args=(self._wake_descriptor,), name="psi", daemon=True
                )
                self._thread.start()
        self._wake()
        return armed

    def _wake(self) -> None:
        with self._lock:
            if self._thread is not None:
                os.eventfd_write(self._wake_descriptor, 1)

    def _armed(self, wake_descriptor: int) -> dict[int, _Trigger]:
        """What to poll now. Empty: nothing is left, and the thread has been signed off."""
        with self._lock:
            closed = [number for number, trigger in self._triggers.items() if trigger.closed]
            for number in closed:
                del self._triggers[number]
            armed = dict(self._triggers)
            if not armed:
                os.close(wake_descriptor)
                self._thread = None
        # Outside the lock: the kernel waits for a grace period here, the event loop must not.
        for number in closed:
            os.close(number)
        return armed

    def _watch(self, wake_descriptor: int) -> None:
        while triggers := self._armed(wake_descriptor):
            poller = select.poll()
            poller.register(wake_descriptor, select.POLLIN)
            for descriptor in triggers:
                poller.register(descriptor, select.POLLPRI | select.POLLERR)
            for descriptor, events in poller.poll():
                if descriptor == wake_descriptor:
                    os.eventfd_read(wake_descriptor)
                elif events & select.POLLERR:  # the cgroup was removed
                    triggers[descriptor].closed = True
                else:
                    triggers[descriptor].fire()
