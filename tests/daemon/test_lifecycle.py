"""`Daemon.run` from start to stop, on the fake kernel and its time, with real sockets and files."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from koordlet_fakefs import FakeHost, resctrl, shape
from koordlet_fakefs.tree import Directory, resolve

from koordlet.actuator.journal.journal import Journal
from koordlet.actuator.journal.journal import load as load_journal
from koordlet.config.load import load
from koordlet.daemon import lifecycle
from koordlet.daemon.lifecycle import CONFIG_LOOK_S, Daemon
from koordlet.decision.resource import UNLIMITED, Resource
from koordlet.decision.snapshot import Capability
from koordlet.serving.notify import Notifier
from tests.daemon.virtual import run_virtually
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, suppress, write_config

BODY = suppress("cfsQuota") + CPU_QOS + APPLICATIONS + '[metrics]\nlisten = "off"\n'
Scene = Callable[[Daemon], Awaitable[None]]


class Stage:
    """A machine with one LS and one BE application, and a service manager that listens."""

    def __init__(self, directory: Path, layout: str = "hybrid") -> None:
        self.directory = directory
        self.host = FakeHost(layout, topology=shape(cores_per_l3=CPUS), step_s=0.05)
        for name, cores in (("shop", 1.0), ("batch", float(CPUS))):
            self.host.make_cgroup(name)
            self.host.spawn(name, demand_cores=cores, threads=CPUS)
        self.file = write_config(directory, BODY)
        self._manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._manager.bind(str(directory / "notify"))
        self._manager.setblocking(False)

    def play(self, scene: Scene, *, watchdog_us: int = 0) -> list[str]:
        """Start, play, stop. What the service manager heard."""
        environ = {
            "NOTIFY_SOCKET": str(self.directory / "notify"),
            "WATCHDOG_USEC": str(watchdog_us),
        }

        async def main() -> None:
            loaded = load(str(self.file))
            daemon = Daemon(self.host, loaded, lambda: load(str(self.file)), Notifier(environ))
            running = asyncio.create_task(daemon.run())
            try:
                await asyncio.sleep(0.5)
                await scene(daemon)
            finally:
                os.kill(os.getpid(), signal.SIGTERM)
                await running

        run_virtually(self.host, main())
        return self._heard()

    def quota(self) -> int:
        return int(self.host.read("/sys/fs/cgroup/cpu/batch/cpu.cfs_quota_us"))

    def _heard(self) -> list[str]:
        messages = []
        while True:
            try:
                messages.append(self._manager.recv(4096).decode())
            except BlockingIOError:
                return messages

    def close(self) -> None:
        self._manager.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def test_start_work_and_stop(stage: Stage) -> None:
    async def scene(daemon: Daemon) -> None:
        assert daemon.views.status().ready
        assert daemon.views.status().endpoints[0].listening
        await asyncio.sleep(5)
        assert stage.quota() != UNLIMITED

    heard = stage.play(scene)
    assert heard[0] == "READY=1\nSTATUS=ok; 0 pods and 2 applications"
    assert heard[-1] == "STOPPING=1"
    assert not any("WATCHDOG" in message for message in heard)
    assert stage.quota() != UNLIMITED  # on_stop = "keep"
    assert load_journal(str(stage.directory / "state/journal"), _boot(stage)).entries
    assert not (stage.directory / "run/koordlet.sock").exists()
    # What stays open is what the fake counts for the process itself.
    assert stage.host.open_files == set()


def test_on_stop_restore(stage: Stage) -> None:
    write_config(stage.directory, BODY + '[daemon]\non_stop = "restore"\n')

    async def scene(daemon: Daemon) -> None:
        await asyncio.sleep(3)
        assert stage.quota() != UNLIMITED

    stage.play(scene)
    assert stage.quota() == UNLIMITED
    assert not load_journal(str(stage.directory / "state/journal"), _boot(stage)).entries


def test_on_stop_restore_tells_systemd_too(tmp_path: Path) -> None:
    """Else it writes our limit again, long after we are gone."""
    stage = Stage(tmp_path, "v2")
    stage.host.systemd.boot()
    stage.host.make_cgroup("system.slice/batch.service")
    stage.host.spawn("system.slice/batch.service", demand_cores=1.0, threads=CPUS)
    unit = 'name = "unit"\nsystemd_unit = "batch.service"\nqos = "BE"\nthrough_systemd = true\n'
    more = f'[[applications]]\n{unit}[daemon]\non_stop = "restore"\n'
    write_config(stage.directory, BODY + more)

    def told() -> int:
        known = stage.host.systemd.get("batch.service", ("CPUQuotaPerSecUSec",))
        return known["CPUQuotaPerSecUSec"]

    async def scene(daemon: Daemon) -> None:
        await asyncio.sleep(12)
        assert told() < 2**64 - 1

    stage.play(scene)
    stage.close()
    assert told() == 2**64 - 1


def test_the_service_manager_is_told_of_a_pause_and_of_its_end(stage: Stage) -> None:
    async def scene(daemon: Daemon) -> None:
        await asyncio.sleep(3)
        assert stage.quota() != UNLIMITED
        how = {"for_s": 5.0, "reason": "disk swap", "by": "root (pid 7)"}
        daemon.views.pause((), (), **how)
        assert stage.quota() == UNLIMITED
        await asyncio.sleep(3)
        assert stage.quota() == UNLIMITED
        await asyncio.sleep(4)
        assert stage.quota() != UNLIMITED

    heard = [message for message in stage.play(scene) if message.startswith("STATUS=")]
    paused = [message for message in heard if message.startswith("STATUS=paused by root (pid 7) s")]
    assert len(paused) == 1
    assert ": disk swap; 0 pods and 2 applications" in paused[0]
    assert heard[-1] == "STATUS=ok; 0 pods and 2 applications"


def test_the_watchdog_is_fed_while_ticks_end_and_starved_when_they_do_not(stage: Stage) -> None:
    async def well(daemon: Daemon) -> None:
        await asyncio.sleep(5)

    heard = stage.play(well, watchdog_us=2_000_000)
    assert heard.count("WATCHDOG=1") >= 4

    async def stuck(daemon: Daemon) -> None:
        stage._heard()
        daemon.engine.tick = _raise
        await asyncio.sleep(12)
        stage._heard()
        await asyncio.sleep(10)
        assert "WATCHDOG=1" not in stage._heard()
        assert daemon.views.status().problems[0].part == "tick"

    stage.play(stuck, watchdog_us=2_000_000)


def test_a_tick_that_raises_once_is_shown_and_the_next_one_works(stage: Stage) -> None:
    async def scene(daemon: Daemon) -> None:
        tick, raised = daemon.engine.tick, []

        def once(wake: object = None) -> None:
            if not raised:
                raised.append(wake)
                raise RuntimeError("once")
            tick(wake)

        daemon.engine.tick = once
        while not raised:
            await asyncio.sleep(0.01)
        assert [(p.part, p.why) for p in daemon.views.status().problems] == [
            ("tick", "RuntimeError: once")
        ]
        await asyncio.sleep(2)
        assert daemon.views.status().problems == ()
        assert stage.quota() != UNLIMITED

    stage.play(scene)


def test_a_changed_file_is_taken_up_a_bad_one_kept_out(stage: Stage) -> None:
    async def scene(daemon: Daemon) -> None:
        await asyncio.sleep(2)
        write_config(stage.directory, BODY + "[daemon]\ntick_seconds = 0.05\n")
        await asyncio.sleep(CONFIG_LOOK_S + 0.1)
        assert "tick_seconds" in daemon.views.status().config.error
        await asyncio.sleep(3 * CONFIG_LOOK_S)
        kept_out = [e for e in daemon.parts.events.recent() if "kept out" in e.text]
        assert len(kept_out) == 1
        write_config(stage.directory, BODY + "[daemon]\ntick_seconds = 0.5\n")
        await asyncio.sleep(CONFIG_LOOK_S + 0.1)
        status = daemon.views.status()
        assert status.config.error == ""
        assert status.config.in_force_since > status.started
        assert daemon.engine.loaded.config.daemon.tick_seconds == 0.5
        assert daemon.parts.events.recent()[-1].text == "taken up: daemon.tick_seconds"

    stage.play(scene)


def test_a_bad_slo_file_is_read_again_when_it_is_mended(stage: Stage) -> None:
    slo = stage.directory / "slo.yaml"

    async def scene(daemon: Daemon) -> None:
        slo.write_text("resourceUsedThresholdWithBE: {enable: 7}\n")
        write_config(stage.directory, '[slo]\nfile = "slo.yaml"\n' + APPLICATIONS)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.1)
        assert "slo.yaml" in daemon.views.status().config.error
        assert daemon.engine.loaded.slo.resource_used_threshold_with_be.enable is True
        slo.write_text("resourceUsedThresholdWithBE: {enable: false}\n")
        await asyncio.sleep(CONFIG_LOOK_S + 0.1)
        assert daemon.views.status().config.error == ""
        assert daemon.engine.loaded.slo.resource_used_threshold_with_be.enable is False
        await asyncio.sleep(1.1)
        assert stage.quota() == UNLIMITED

    stage.play(scene)


def test_a_reload_that_cannot_take_the_journal_is_kept_out(stage: Stage) -> None:
    write_config(stage.directory, '[daemon]\nmode = "observe"\n' + BODY)

    async def scene(daemon: Daemon) -> None:
        other = Journal(str(stage.directory / "state/journal"), boot_id=_boot(stage))
        try:
            write_config(stage.directory, BODY)
            view = daemon.views.reload()
            assert not view.ok
            assert "another koordlet runs" in view.errors[0].message
            assert daemon.engine.observing
            assert "another koordlet runs" in daemon.views.status().config.error
        finally:
            other.close()
        assert daemon.views.reload().ok
        await asyncio.sleep(1.1)
        assert stage.quota() != UNLIMITED

    stage.play(scene)


def test_a_probe_that_fails_is_tried_again_and_stops_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, calls = lifecycle.probe, []

    async def flaky(*args: object, **named: object) -> object:
        calls.append(args)
        if len(calls) < 3:
            raise OSError(errno.EROFS, "Read-only file system", "/sys/fs/cgroup")
        return await probe(*args, **named)

    monkeypatch.setattr(lifecycle, "probe", flaky)

    async def scene(daemon: Daemon) -> None:
        status = daemon.views.status()
        assert status.ready
        assert [p.part for p in status.problems] == ["probe"]
        assert status.capabilities == ()
        await asyncio.sleep(3)
        assert stage.quota() != UNLIMITED
        await asyncio.sleep(65)
        assert daemon.views.status().problems == ()
        assert daemon.views.status().capabilities != ()

    heard = stage.play(scene)
    assert heard[0].startswith("READY=1")


def test_what_was_only_too_slow_is_probed_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    async def slow(*args: object, **named: object) -> list[Capability]:
        calls.append(args)
        return [Capability("inotify-cgroup", len(calls) > 1, "tried", for_now=len(calls) == 1)]

    monkeypatch.setattr(lifecycle, "probe", slow)

    async def scene(daemon: Daemon) -> None:
        assert not daemon.views.status().capabilities[0].supported
        await asyncio.sleep(100)
        assert daemon.views.status().capabilities[0].supported and len(calls) == 2

    stage.play(scene)


def test_what_is_mounted_later_is_found(stage: Stage) -> None:
    """resctrl, without another start; and gone again."""

    def supported(daemon: Daemon) -> bool:
        found = {each.feature: each.supported for each in daemon.views.status().capabilities}
        return found["resctrl.l3"]

    async def scene(daemon: Daemon) -> None:
        assert not supported(daemon)
        sys, mounts = (resolve(stage.host.root, path) for path in ("/sys", "/sys/fs"))
        assert isinstance(sys, Directory) and isinstance(mounts, Directory)
        resctrl.mount(stage.host.machine, sys)
        await asyncio.sleep(35)
        assert supported(daemon)
        del mounts.entries["resctrl"]
        await asyncio.sleep(35)
        assert not supported(daemon)

    stage.play(scene)


def test_an_address_in_use_does_not_stop_the_start(stage: Stage) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        body = BODY.replace('"off"', f'"127.0.0.1:{port}"')
        write_config(stage.directory, body)

        async def scene(daemon: Daemon) -> None:
            ends = {e.name: e for e in daemon.views.status().endpoints}
            assert ends["api"].listening
            assert not ends["metrics"].listening
            assert str(port) in ends["metrics"].error
            await asyncio.sleep(2)
            assert stage.quota() != UNLIMITED

        stage.play(scene)


def test_pods_that_come_are_managed_within_a_tenth_of_a_second(stage: Stage) -> None:
    async def scene(daemon: Daemon) -> None:
        await asyncio.sleep(3.3)
        pod = stage.host.make_pod("cgroupfs", "besteffort")
        await asyncio.sleep(0.1)
        assert [view.cgroup for view in daemon.views.pods()() if view.kind == "pod"] == [pod.pod]
        quota = daemon.parts.cgroups.read("kubepods/besteffort", Resource.CPU_QUOTA_US)
        assert quota != UNLIMITED

    stage.play(scene)


def test_health_and_pages_over_a_socket(stage: Stage) -> None:
    address = stage.directory / "metrics.sock"
    write_config(stage.directory, BODY.replace('"off"', f'"unix:{address}"'))

    async def get(path: str) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(address))
        writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer

    async def scene(daemon: Daemon) -> None:
        await asyncio.sleep(3)
        assert b" 200 " in (await get("/healthz")).splitlines()[0]
        assert b'"ready":true' in await get("/readyz")
        page = await get("/metrics")
        assert b"koordlet_ready 1" in page
        assert b'koordlet_node_used_cpu_cores{node="node-1"}' in page
        daemon.engine.tick = _raise
        await asyncio.sleep(12)
        assert b" 503 " in (await get("/healthz")).splitlines()[0]

    stage.play(scene)


def _raise(wake: object = None) -> None:
    raise RuntimeError("stuck")


def _boot(stage: Stage) -> str:
    return stage.host.read("/proc/sys/kernel/random/boot_id").decode().strip()


async def _until(holds: Callable[[], bool]) -> None:
    """Models are read and saved by a thread, in real time; that of the loop is virtual."""
    end_s = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.01)
        await asyncio.sleep(0.01)


def test_models_of_peaks_outlive_a_restart(stage: Stage) -> None:
    """Also in the middle of a run they go to disk; a disk that refuses is a problem in `status`."""
    directory = stage.directory / "state" / "prediction"

    async def first(daemon: Daemon) -> None:
        await asyncio.sleep(150)
        await _until(lambda: "app:shop" in os.listdir(directory))
        assert daemon.views.predict("shop", 60.0)().peaks[0].peak is not None

    async def second(daemon: Daemon) -> None:
        await asyncio.sleep(20)
        await _until(lambda: "app:shop" in daemon.parts.predictions.models)
        watched_s = daemon.views.predict("shop", 60.0)().peaks[0].watched_s
        assert watched_s > 150 - 60

    async def refused(daemon: Daemon) -> None:
        await asyncio.sleep(10)
        for each in directory.iterdir():
            each.unlink()
        directory.rmdir()
        directory.touch()
        await asyncio.sleep(130)
        await _until(lambda: "models on disk" in daemon.parts.problems)
        problem = daemon.parts.problems["models on disk"]
        assert problem.startswith("FileExistsError")
        assert "app:shop" in daemon.parts.predictions.models
        directory.unlink()
        await asyncio.sleep(130)
        await _until(lambda: "models on disk" not in daemon.parts.problems)
        await _until(lambda: "app:shop" in os.listdir(directory))

    stage.play(first)
    saved = {each.name: each.stat().st_mtime_ns for each in directory.iterdir()}
    assert "__node__" in saved
    stage.play(second)
    # The stop has saved all of them.
    assert all(each.stat().st_mtime_ns > saved[each.name] for each in directory.iterdir())
    stage.play(refused)
