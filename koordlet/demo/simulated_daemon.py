"""The daemon's engine on a fake kernel, driven by simulated time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from koordlet_fakefs import FakeHost

from koordlet.actuator.journal.journal import Journal
from koordlet.config.load import load
from koordlet.daemon.wakes import ALARM_GAP_S
from koordlet.decision.snapshot import Capability, Wake, WakeKind
from koordlet.demo.managed import write_config
from koordlet.demo.model import Moment
from koordlet.demo.moments import moments_of
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, build
from koordlet.kernel.probe.probe import probe

_PUMP_S = 0.001
# Named in the configuration, never opened: a short path, since those of sockets are limited.
_NO_SOCKETS = Path("/run/koordlet-simulation")


class SimulatedDaemon:
    """Same configuration, collectors, strategies and actuator as ``koordlet run``; only clock,
    sockets and signals are missing. State lives in `directory`."""

    def __init__(self, host: FakeHost, directory: Path) -> None:
        file = directory / "koordlet.toml"
        directory.mkdir()
        write_config(file, directory / "state", _NO_SOCKETS)
        loaded = load(str(file))
        self._host = host
        self._parts = build(
            host,
            loaded.config,
            Callbacks(self._changed, self._alarmed, lambda outcome: self._engine.heard(outcome)),
        )
        self._engine = Engine(self._parts, loaded)
        self._tick_s = loaded.config.daemon.tick_seconds
        self._due = host.monotonic() + self._tick_s
        self._decided = -ALARM_GAP_S
        self._pending: Wake | None = None

    def start(self) -> None:
        self._parts.state.start()
        self._engine.rescan()
        self._engine.tick()
        self._engine.set_capabilities(asyncio.run(self._probe()))
        self._changed()

    def step(self) -> None:
        """To be called after each step of the host's time."""
        now = self._host.monotonic()
        if self._pending is not None and now - self._decided >= ALARM_GAP_S:
            wake, self._pending = self._pending, None
            if wake.kind is WakeKind.CHANGE:
                self._engine.changed()
            self._engine.tick(wake)
            self._decided = now
        if now >= self._due:
            self._due += self._tick_s
            self._engine.tick()
            self._decided = now

    def moments(self, started: float) -> tuple[Moment, ...]:
        """What was decided so far; ``started`` is the host's unix time of the first request."""
        return moments_of(self._parts.decisions.read(newest_first=False), started)

    def stop(self) -> None:
        parts = self._parts
        parts.actuator.restore_all(now=self._host.monotonic(), time=self._host.time())
        parts.alarms.close()
        parts.state.stop()
        parts.runner.close()
        parts.knobs.close_files()
        parts.decisions.close()
        parts.close_stores()
        if isinstance(parts.journal, Journal):
            parts.journal.close()

    def _changed(self) -> None:
        if self._pending is None:
            self._pending = Wake(WakeKind.CHANGE)

    def _alarmed(self, wake: Wake) -> None:
        self._engine.alarmed(wake)
        if self._pending is None or self._pending.kind is WakeKind.CHANGE:
            self._pending = wake

    async def _probe(self) -> tuple[Capability, ...]:
        """System calls go past the fake host, so none is tried. Its events need a hand."""
        found = asyncio.create_task(probe(self._host, self._parts.cgroups.layout))
        while not found.done():
            self._host.deliver()
            await asyncio.sleep(_PUMP_S)
        return found.result()
