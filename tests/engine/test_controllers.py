"""cgroup v2 controllers that come and go while the daemon runs."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from koordlet_fakefs import FakeHost, shape

from koordlet.config.load import load
from koordlet.daemon.lifecycle import Daemon
from koordlet.decision.resource import Resource
from koordlet.serving.notify import Notifier
from tests.daemon.virtual import run_virtually
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, write_config

ROOT = "/sys/fs/cgroup"
BODY = CPU_QOS + APPLICATIONS + '[metrics]\nlisten = "off"\n'


def test_a_controller_that_is_enabled_later_is_used(tmp_path: Path) -> None:
    host = FakeHost("v2", topology=shape(cores_per_l3=CPUS), step_s=0.05)
    control = f"{ROOT}/cgroup.subtree_control"
    for name in host.read(control).decode().split():
        host.write(control, f"-{name}".encode())
    host.mkdir(f"{ROOT}/batch")
    file = write_config(tmp_path, BODY)

    async def main() -> None:
        daemon = Daemon(host, load(str(file)), lambda: load(str(file)), Notifier({}))
        running = asyncio.create_task(daemon.run())
        try:
            await asyncio.sleep(2)
            before = daemon.engine.parts.capabilities[Resource.CPU_IDLE]
            assert not before.supported and before.remedy.startswith(f"echo +cpu > {control}")
            host.write(control, b"+cpu")
            await asyncio.sleep(40)
            assert daemon.engine.parts.capabilities[Resource.CPU_IDLE].supported
            assert host.read(f"{ROOT}/batch/cpu.idle") == b"1\n"
            assert host.subdirs(ROOT) == ["batch"]
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await running

    run_virtually(host, main())
