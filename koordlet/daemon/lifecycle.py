"""The daemon as a process: start, timers, signals, reload, stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine, Sequence

import structlog

from koordlet import __version__
from koordlet.actuator.journal.journal import Journal
from koordlet.actuator.restore import restore_all, together
from koordlet.config.errors import ConfigError, ConfigErrors
from koordlet.config.load import Loaded
from koordlet.config.schema import Config
from koordlet.daemon.guard import Guard
from koordlet.daemon.membership import Membership
from koordlet.daemon.own_cpus import OwnCpus
from koordlet.daemon.reload import ConfigFiles, until_restart
from koordlet.daemon.runtimes import Runtimes
from koordlet.daemon.servers import Servers
from koordlet.daemon.wakes import Wakes
from koordlet.decision.record import Kind, Record
from koordlet.decision.snapshot import Capability, Wake, WakeKind
from koordlet.decision.why import Why
from koordlet.engine.changes import log_restored
from koordlet.engine.engine import Engine
from koordlet.engine.parts import Callbacks, CannotStartError, build
from koordlet.engine.prediction.predictions import UPKEEP_S
from koordlet.kernel.host import Host
from koordlet.kernel.probe.probe import grounds, probe
from koordlet.report.health import Health
from koordlet.serving.garbage import collect_seldom
from koordlet.serving.notify import Notifier
from koordlet.serving.unix_socket import SocketError
from koordlet.views.views import Views

log = structlog.get_logger()

SECOND_LOOK_S = 0.3
"""After the first tick. A rate needs two readings, and what rests on rates, such as the first
limit, need not wait for the second tick. A rate over less is noise."""
CONFIG_LOOK_S = 2.0
RUNTIME_LOOK_S = 2.0
"""Between two looks for the socket of a runtime, until there is one."""
STORE_MAINTAIN_S = 5.0
MODELS_AFTER_S = 5.0
"""The first limit must not wait for some hundred files."""
GARBAGE_AFTER_S = 15.0
"""From the start; by then the pods are known and the parts have what they keep."""
STALE_TICKS = 10
"""Alive means that the last tick ended at most this many intervals ago."""
SERVERS_STOP_S = 1.0


class Daemon:
    """One run, from ``run`` to its end. ``read`` reads the configuration anew.

    Raises CannotStartError where there is nothing to start with.
    """

    def __init__(
        self,
        host: Host,
        loaded: Loaded,
        read: Callable[[], Loaded],
        notifier: Notifier,
        about_self: Sequence[Capability] = (),
        own_cpus: OwnCpus | None = None,
    ) -> None:
        """``about_self``: what this process got of the kernel for itself, shown with the rest.
        ``own_cpus``: None where the process stays on the CPUs that it has."""
        self._host = host
        self._about_self = tuple(about_self)
        self._notifier = notifier
        self._files = ConfigFiles(read, loaded)
        self._stopping = asyncio.Event()
        self._summary = ""
        self._wakes = Wakes(self._answer, lambda wake: self.engine.alarmed(wake), host.monotonic)
        self.parts = build(
            host,
            loaded.config,
            Callbacks(
                self._wakes.changed,
                self._wakes.alarmed,
                lambda outcome: self.engine.heard(outcome),
                self._written,
            ),
        )
        self._guard = Guard(self.parts.problems)
        self.engine = Engine(self.parts, loaded)
        self.views = Views(self.engine, self.reload)
        self.runtimes = Runtimes(self.engine)
        if self.runtimes.plugin is not None:
            self.views.nri_status = self.runtimes.plugin.status
        self.servers = Servers(self.engine, self.views, self.health)
        self.membership = self.views.joined = Membership(self.engine, self._wakes.changed)
        if own_cpus is not None:
            self.engine.after_turn.append(
                lambda _: own_cpus.follow(self.engine.node(), self.parts.state.pods())
            )
        self._started_s = host.monotonic()

    async def run(self) -> None:
        """Until a signal. What can fail alone has its own task and its own line in `status`;
        nothing here waits for it."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stopping.set)
        loop.add_signal_handler(
            signal.SIGHUP, lambda: self._guard.run("configuration", self.reload)
        )
        self._guard.run("cluster", self.membership.begin)
        self._guard.run("sources", self.parts.state.start)
        self._guard.run("rescan", self.engine.rescan)
        # What no decision waits for, such as containers and pressure, is measured a tick later.
        self._guard.run("tick", lambda: self.engine.tick(early=True))
        tasks = [asyncio.create_task(part) for part in self._beside()]
        self._tell(
            Kind.LIFECYCLE,
            "koordlet",
            f"koordlet {__version__} started, mode {self._config.daemon.mode}",
        )
        try:
            await self._stopping.wait()
        finally:
            self._notifier.send("STOPPING=1")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._stop()

    def reload(self) -> None:
        """Read the configuration again; a bad one is kept out and `status` says why."""
        known = self.views.config_state.error
        old = self.engine.loaded
        try:
            read = self._files.read()
            loaded, found = until_restart(old, self.membership.laid(read))
            self._reconfigure(loaded)
            self.membership.took(read, loaded)
        except ConfigErrors as errors:
            self.views.keep_out(errors)
            why = self.views.config_state.error
            if why != known:
                log.warning("new configuration kept out", error=why)
                self._tell(Kind.CONFIG, "configuration", f"kept out: {why}")
            return
        self.views.took(loaded, found)
        if known or found.changed:
            taken = [key for key in found.changed if key not in found.needs_restart]
            log.info("configuration taken up", changed=taken, restart=found.needs_restart)
            text = f"taken up: {', '.join(taken) or 'nothing new'}"
            if found.needs_restart:
                text += f"; only after a restart: {', '.join(found.needs_restart)}"
            self._tell(Kind.CONFIG, "configuration", text)
        self._wakes.changed()

    def health(self) -> Health:
        last = self.engine.last_tick if self.engine.last_tick is not None else self._started_s
        return Health(
            tick_age_s=self._host.monotonic() - last,
            limit_s=STALE_TICKS * self._config.daemon.tick_seconds,
            not_ready=self.views.not_ready(),
            notes=self.views.unreadable(),
        )

    def _reconfigure(self, loaded: Loaded) -> None:
        """Raises ConfigErrors also for what only this machine at this time refuses."""
        try:
            self.engine.reconfigure(loaded)
        except CannotStartError as error:
            raise ConfigErrors([ConfigError(loaded.file, "daemon.mode", str(error))]) from error

    def _answer(self, wake: Wake, changed: bool, asked_s: float) -> None:
        if changed:
            self._guard.run("changes", self.engine.changed)
            if self.parts.cri is not None:
                self.parts.cri.refresh()
        written = self.parts.actuator.writes
        self._guard.run("tick", lambda: self.engine.tick(wake))
        self._guard.run("nri", self.runtimes.push)
        if wake.kind is not WakeKind.CHANGE and self.parts.actuator.writes != written:
            self.engine.answered(self._host.monotonic() - asked_s)

    @property
    def _config(self) -> Config:
        """As it is in force now."""
        return self.engine.loaded.config

    def _beside(self) -> tuple[Coroutine[None, None, object], ...]:
        """What runs beside the answers to alarms."""
        parts, guard = self.parts, self._guard
        loops = [
            guard.run_async("api", self.servers.start_api),
            guard.run_async("metrics", self.servers.start_metrics),
            guard.run_async("hook server", self._serve_hooks),
            guard.run_async("nri", self.runtimes.talk_nri),
            guard.run_async("cluster", self.membership.run),
            self._probe(),
            self._ticks(),
            self._every("alarms", lambda: parts.alarms.options.sample_interval_s, self._sample),
            self._every("rescan", lambda: self._config.sources.rescan_seconds, self.engine.rescan),
            self._every("configuration", lambda: CONFIG_LOOK_S, self._look_at_files),
            self._every("runtime", lambda: RUNTIME_LOOK_S, parts.find_runtime),
            self._maintain_store(),
            self._keep_models(),
            _collect_seldom(),
        ]
        watchdog_s = self._notifier.watchdog_s
        if watchdog_s is not None:
            loops.append(self._every("watchdog", lambda: watchdog_s / 2, self._keep_alive))
        return tuple(loops)

    async def _every(
        self, part: str, seconds: Callable[[], float], work: Callable[[], object]
    ) -> None:
        """``work`` in a fixed rhythm, whatever it raises. After a stall or a suspended machine it
        goes on from there and does not catch up."""
        due = self._host.monotonic()
        while True:
            due = max(due + seconds(), self._host.monotonic())
            await asyncio.sleep(due - self._host.monotonic())
            self._guard.run(part, work)

    async def _ticks(self) -> None:
        await asyncio.sleep(min(SECOND_LOOK_S, self._config.daemon.tick_seconds))
        self._guard.run("tick", lambda: self.engine.tick(early=True))
        await self._every("tick", lambda: self._config.daemon.tick_seconds, self._tick)

    def _tick(self) -> None:
        self.engine.tick()
        if self.parts.state.awaiting and self.parts.cri is not None:
            self.parts.cri.refresh()
        self.runtimes.push()
        summary = self.views.summary()
        if summary != self._summary:
            self._summary = summary
            self._notifier.send(f"STATUS={summary}")

    async def _serve_hooks(self) -> None:
        try:
            await self.runtimes.start_hook_server()
        except (SocketError, OSError) as error:
            self.views.listening("hooks", self._config.hook_server.socket, error=str(error))
            raise
        if self.runtimes.hook_server is not None:
            self.views.listening("hooks", self._config.hook_server.socket)
        self.runtimes.advertise()

    def _sample(self) -> None:
        if self.parts.alarms.sampling:
            self.parts.alarms.sample()

    def _written(self) -> None:
        loop = asyncio.get_running_loop()
        loop.call_soon(self._guard.run, "rewritten files", self.engine.rewritten.look)

    def _look_at_files(self) -> None:
        if self._files.changed():
            self.reload()

    def _keep_alive(self) -> None:
        """A loop that hangs is silent by itself; one whose ticks all fail is silent here."""
        health = self.health()
        if health.tick_age_s <= health.limit_s:
            self._notifier.send("WATCHDOG=1")

    async def _maintain_store(self) -> None:
        async def maintain() -> None:
            await asyncio.to_thread(self.parts.maintain, int(self._host.time() * 1000))

        while True:
            await asyncio.sleep(STORE_MAINTAIN_S)
            await self._guard.run_async("store", maintain)

    async def _keep_models(self) -> None:
        """What was learned goes to disk, and comes back after a restart."""
        predictions, host = self.parts.predictions, self._host

        async def keep() -> None:
            if predictions.is_waiting:
                loaded = await asyncio.to_thread(predictions.load(host.time()))
                predictions.took(loaded, host.time(), host.monotonic())
            await asyncio.to_thread(predictions.upkeep(host.monotonic()))

        await asyncio.sleep(MODELS_AFTER_S)
        while True:
            await self._guard.run_async("models on disk", keep)
            await asyncio.sleep(UPKEEP_S)

    async def _probe(self) -> None:
        """Find out what the kernel can do, again after a probe that failed and when something
        came or went that features rest on; ready is the daemon without it too."""
        paths, layout = self._config.paths, self.parts.cgroups.layout
        tried: frozenset[str] | None = None

        async def find() -> None:
            nonlocal tried
            there = grounds(self._host, layout, paths.sys_root)
            if there == tried:
                return
            found = await probe(
                self._host, layout, proc_root=paths.proc_root, sys_root=paths.sys_root
            )
            tried = None if any(each.for_now for each in found) else there
            self.engine.set_capabilities((*found, *self._about_self))
            self._wakes.changed()

        await self._guard.run_async("probe", find)
        self.engine.probed = True
        self._notifier.send("READY=1", f"STATUS={self.views.summary()}")
        self._tell(Kind.LIFECYCLE, "koordlet", "ready")
        while True:
            await asyncio.sleep(self._config.sources.rescan_seconds)
            await self._guard.run_async("probe", find)

    def _tell(self, kind: Kind, subject: str, text: str) -> None:
        if kind is Kind.LIFECYCLE:
            log.info(text)
        self.parts.tell(Record(self._host.time(), kind, subject, Why(str(kind), text)))

    async def _stop(self) -> None:
        """Callers first, then what is in force, then the files. A step that fails is logged and
        keeps no other from running."""
        parts = self.parts
        self._wakes.close()

        async def servers() -> None:
            async with asyncio.timeout(SERVERS_STOP_S):
                await self.servers.stop()

        def restore() -> None:
            if self._config.daemon.on_stop == "restore" and not parts.observing:
                now, time = self._host.monotonic(), self._host.time()
                found = restore_all(parts.actuator, parts.knobs, parts.journal, now=now, time=time)
                held = frozenset(parts.journal.entries)
                found = together(found, parts.units.restore(held, time))
                found = together(found, parts.traffic.restore(time))
                log_restored(found, why='daemon.on_stop = "restore"')

        await self._guard.run_async("servers", servers)
        self._guard.run("api worker", self.views.worker.close)
        await self._guard.run_async("hook server", self.runtimes.stop)
        self._guard.run("on_stop", restore)
        self._tell(Kind.LIFECYCLE, "koordlet", "stopped")
        for part, close in (
            ("alarms", parts.alarms.close),
            ("rewritten files", self.engine.rewritten.close),
            ("traffic", parts.traffic.close),
            ("systemd units", parts.units.close),
            ("spread threads", parts.spreading.close),
            ("sources", parts.state.stop),
            ("collectors", parts.runner.close),
            ("quotas", parts.knobs.close_files),
            ("GPU health", parts.gpu_health.stop),
            ("decisions", parts.decisions.close),
            ("models on disk", parts.predictions.close),
        ):
            self._guard.run(part, close)
        await self._guard.run_async("store", lambda: asyncio.to_thread(parts.close_stores))
        if isinstance(parts.journal, Journal):
            self._guard.run("journal", parts.journal.close)
        self._notifier.close()


async def _collect_seldom() -> None:
    """Begin when the start is over. Walking through all objects took 0.5 % of a core at 300 pods;
    once more at this moment would hold up the ticks for 0.2 s, to find what the start has left."""
    await asyncio.sleep(GARBAGE_AFTER_S)
    collect_seldom()
