"""The daemon of a history: started, stopped, killed and started again on one machine, with its
files in one directory."""

from __future__ import annotations

import asyncio
import errno
import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from koordlet_fakefs import FakeHost

from koordlet.actuator.evict.executor import EvictOutcome
from koordlet.actuator.journal import journal as journals
from koordlet.actuator.journal.journal import Journal
from koordlet.actuator.outcome import Outcome
from koordlet.actuator.restore import RestoreReport, restore, together
from koordlet.config.load import Loaded
from koordlet.config.schema import Config
from koordlet.daemon.reload import until_restart
from koordlet.decision.record import Record
from koordlet.decision.snapshot import Capability, Wake
from koordlet.decision.strategy import Strategy
from koordlet.engine import options
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, build, journal_path
from koordlet.engine.prediction.keeper import UnsavedError
from koordlet.engine.traffic import devices_path, restore_devices
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.probe.probe import probe
from koordlet.kernel.proc.files import boot_id
from koordlet.views.views import Views
from tests.daemon.world import World
from tests.histories import rival
from tests.histories.machine import Machine
from tests.histories.wants import Wants

FOUND: dict[tuple[object, ...], list[Capability]] = {}
"""What the probe found on a kind of machine: the same each time."""


class KilledError(BaseException):
    """Not an Exception: nothing in the daemon may survive it."""


class Disk:
    """The one that the daemon's files are on. ``full``: nothing more goes onto it. ``bomb``: the
    process is killed in the middle of that many writes to it from now."""

    def __init__(self) -> None:
        self.full = False
        self.bomb: int | None = None

    @contextmanager
    def in_place(self) -> Iterator[None]:
        write, pwrite = os.write, os.pwrite

        def check() -> None:
            if self.full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def full_write(fd: int, data: Any) -> int:
            check()
            return write(fd, data)

        def full_pwrite(fd: int, data: Any, offset: int) -> int:
            if self.bomb is not None:
                self.bomb -= 1
                if self.bomb < 0:
                    self.bomb = None
                    if offset:  # the kernel tears no write inside a page that is there
                        pwrite(fd, data[: len(data) // 2], offset)
                    raise KilledError
            check()
            return pwrite(fd, data, offset)

        with (
            mock.patch.object(os, "write", full_write),
            mock.patch.object(os, "pwrite", full_pwrite),
            mock.patch.object(os, "fsync", lambda fd: check()),  # nobody pulls the plug here
        ):
            yield


class InThisThread:
    """An executor that has done its work when it returns. Nothing survives a kill."""

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self) -> None:
        """There is no thread."""


class Daemon(World):
    """``outcomes`` (each with whether something hindered the daemon then), ``records``,
    ``evictions``: what was heard since the last look. ``alive``: it runs."""

    def __init__(
        self,
        machine: Machine,
        directory: Path,
        loaded: Loaded,
        count: Callable[[str], None],
        is_troubled: Callable[[], bool],
    ) -> None:
        self.machine = machine
        self.host: FakeHost = machine.real
        self.directory = directory
        self.boot_id = boot_id(self.host)
        self.changed = self.written = False
        self.alarms = []
        self.woken = []
        self.processes = {}
        self.loaded = loaded
        self.outcomes: list[tuple[Outcome, bool]] = []
        self.evictions: list[EvictOutcome] = []
        self._is_troubled = is_troubled
        self.records: list[Record] = []
        self.alive = False
        self.restored = False
        """By order of an administrator: it writes nothing until a reload or a restart."""
        self.starts = 0
        self.wants = Wants(count)
        self.is_replayed = False
        """What it decides is decided again in the end: its samples and inputs must all get to the
        disk."""
        self.rival = 0
        """Seed of what the rival wants; 0: there is none."""

    def start(self, features: tuple[str, ...] = ()) -> None:
        """As `Daemon.run` does, with the probe made at once."""
        self.changed = self.written = False
        self.alarms.clear()
        self.parts = build(self.host, self.loaded.config, self._callbacks())
        self.alive, self.restored = True, False
        self.starts += 1
        self._follow_actuator()
        with self._with_rival():
            self.engine = Engine(self.parts, self.loaded)
        # In this thread: a history is the same each time.
        self.engine.reclaims._reclaimer._start = lambda work: work()
        traffic = self.parts.traffic
        traffic._pool = InThisThread()  # type: ignore[assignment]
        traffic.capabilities, traffic._tried = self.machine.network.capabilities, math.inf
        self.views = Views(self.engine, lambda: None)
        self._hear()
        predictions, now = self.parts.predictions, self.host.monotonic()
        predictions.took(predictions.load(self.host.time())(), self.host.time(), now)
        self.parts.state.start()
        self.engine.rescan()
        self.engine.tick()
        self.engine.set_capabilities(self._probe())
        self.engine.probed = True
        self.changed = True
        self.answer()

    def take(self, loaded: Loaded) -> None:
        """A configuration that was read again."""
        loaded, found = until_restart(self.engine.loaded, loaded)
        with self._with_rival():
            self.engine.reconfigure(loaded)
        self.engine.reclaims._reclaimer._start = lambda work: work()
        self.views.took(loaded, found)
        self.loaded, self.restored = loaded, False
        self.changed = True

    def second(self) -> None:
        """A second passes, with the tick at its end."""
        self.machine.advance(1.0)
        if not self.alive:
            return
        if self.parts.alarms.sampling:
            self.parts.alarms.sample()
        self.answer()
        if round(self.host.monotonic()) % 10 == 0:
            self.engine.rescan()
            with suppress(OSError, UnsavedError):  # a full disk is a problem in `status`
                self.parts.predictions.upkeep(self.host.monotonic())()
        self.engine.tick()
        if self.is_replayed:
            self.parts.maintain(int(self.host.time() * 1000))

    def sound(self, wake: Wake) -> None:
        """An alarm, and the answer to it."""
        self._alarm(wake)
        self.answer()

    def stop(self, *, restoring: bool = False) -> None:
        """In order, as `Daemon` does it."""
        if restoring and not self.parts.observing:
            now, time = self.host.monotonic(), self.host.time()
            self.parts.actuator.restore_all(now=now, time=time)
            self.parts.traffic.restore(time)
        super().stop()
        self._dead()

    def die(self) -> None:
        """As kill -9: nothing is flushed, restored or told; the kernel closes what was open."""
        parts = self.parts
        for close in (parts.alarms.close, parts.state.stop, parts.runner.close, parts.close_stores):
            with suppress(OSError):
                close()
        parts.decisions.close()
        if isinstance(parts.journal, Journal):
            parts.journal.close()
        for file in tuple(self.host.open_files):
            file.close()
        self._dead()

    def restore_offline(self, *, dry_run: bool = False) -> RestoreReport:
        """`koordlet restore` with no daemon there."""
        time = self.host.time()
        path = devices_path(self.loaded.config.paths.state_dir)
        found = restore(
            Knobs(self.host, Cgroups(self.host, detect(self.host))),
            self.journal_path,
            boot_id=self.boot_id,
            now=self.host.monotonic(),
            time=time,
            dry_run=dry_run,
        )
        return together(
            found, restore_devices(self.host, path, self.boot_id, time, dry_run=dry_run)
        )

    @property
    def journal_path(self) -> str:
        return journal_path(self.loaded.config)

    def journal_on_disk(self) -> journals.Contents:
        return journals.load(self.journal_path, self.boot_id)

    def _dead(self) -> None:
        self.alive = False

    def _callbacks(self) -> Callbacks:
        def heard(outcome: Outcome) -> None:
            self.outcomes.append((outcome, self._is_troubled()))
            self.engine.heard(outcome)

        return Callbacks(self._change, self._alarm, heard, self._written)

    def _hear(self) -> None:
        tell = self.parts.tell

        def told(record: Record) -> None:
            self.records.append(record)
            tell(record)

        heard = self.engine.heard

        def heard_of(outcome: Outcome) -> None:
            if outcome.resource.startswith("net."):  # others are heard at the actuator
                self.outcomes.append((outcome, self._is_troubled()))
            heard(outcome)

        evictor = self.engine.evictions._evictor
        heard_evictor = evictor._heard

        def heard_of_eviction(outcome: EvictOutcome) -> None:
            self.evictions.append(outcome)
            heard_evictor(outcome)

        evictor._heard = heard_of_eviction
        self.engine.heard = heard_of  # type: ignore[method-assign]
        self.parts.tell = told  # type: ignore[method-assign]
        self.engine.reclaims._tell = told

    def _follow_actuator(self) -> None:
        """Whichever there will be: a change of the mode makes another."""
        act = self.parts._act

        def again(*journal: Any, **mode: Any) -> None:
            act(*journal, **mode)
            self.wants.follow(self.parts)

        self.parts._act = again  # type: ignore[method-assign]
        self.wants.follow(self.parts)

    @contextmanager
    def _with_rival(self) -> Iterator[None]:
        enabled = options.enabled_strategies

        def with_rival(config: Config) -> tuple[Strategy, ...]:
            return (*enabled(config), *rival.strategies(self.rival))

        with mock.patch.object(options, "enabled_strategies", with_rival):
            yield

    def _probe(self) -> list[Capability]:
        options = self.host.options
        kind = (
            self.machine.layout,
            *(getattr(options, name) for name in ("anolis", "resctrl", "core_sched", "terway")),
            options.cap_sys_resource,
            options.topology,
        )
        if kind not in FOUND:
            host = FakeHost(self.machine.layout, **msgspec_options(options))
            FOUND[kind] = list(asyncio.run(probe(host, detect(host))))
        return FOUND[kind]


def msgspec_options(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__dataclass_fields__}
