"""``koord-scheduler run`` as a process: it ends well when asked, and badly without harm."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.companion.daemon.cluster import METRICS, NODES, ON, SLOS, Here, fake_here
from tests.companion.running import kubeconfig
from tests.fakekube import FakeKube

BATCH_CPU = "kubernetes.io/batch-cpu"


@contextlib.asynccontextmanager
async def process(
    here: Here, directory: Path, *more: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    log = directory / f"log-{len(list(directory.iterdir()))}"
    with log.open("wb") as output:
        made = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "koord_scheduler.cli", "run"),
            *("--kubeconfig", kubeconfig(directory / "kubeconfig", here.cluster.server)),
            *("--config-namespace", here.namespace),
            *("--leader-election-namespace", here.namespace),
            *("--controllers", "nodemetric,nodeslo,noderesource"),
            *("--metrics-addr", "127.0.0.1:0", "--health-probe-addr", "127.0.0.1:0"),
            *more,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()
        sys.stdout.write(log.read_text(errors="replace"))


def _holder(fake: FakeKube, here: Here) -> str:
    lease = fake.store.get(fake.resource("leases"), (here.namespace, "koordinator-manager"))
    return str(lease["spec"]["holderIdentity"])


def test_it_ends_when_asked_and_gives_the_lease_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            await here.configure(ON)
            await here.node()
            async with process(here, tmp_path) as made:
                await here.until(METRICS, lambda m: True)
                assert _holder(fake, here)
                made.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(made.wait(), 60) == 0
                assert _holder(fake, here) == ""

    asyncio.run(story())


def test_one_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    async def story() -> None:
        async with fake_here() as (here, _fake):
            await here.configure(ON)
            await here.node()
            async with process(here, tmp_path) as first:
                await here.until(METRICS, lambda m: True)
                await here.until(SLOS, lambda s: True)
                first.send_signal(signal.SIGKILL)
                await first.wait()
            # What happens while nobody leads is not forgotten either.
            await here.report()
            async with process(here, tmp_path) as second:
                await here.until(NODES, lambda n: BATCH_CPU in n.status["allocatable"])
                assert second.returncode is None

    asyncio.run(story())


def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    async def story() -> None:
        async with fake_here() as (here, fake):
            port = fake.url.rpartition(":")[2]
            address = f"127.0.0.1:{port}"
            async with process(here, tmp_path, "--health-probe-addr", address) as made:
                assert await asyncio.wait_for(made.wait(), 60) == 1
        text = "".join(path.read_text() for path in tmp_path.glob("log*"))
        assert f"('127.0.0.1', {port})" in text and "Traceback" not in text

    asyncio.run(story())
