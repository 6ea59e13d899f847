"""A leader that stood still while its lease ran out writes nothing when it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from koord_scheduler.daemon.parts import chosen
from tests.companion.accounts import needs_of, permits
from tests.companion.running import kubeconfig
from tests.companion.scheduling import real
from tests.companion.scheduling.rig import SPACE, Rig, told
from tests.fakekube.faults import Fault
from tests.runtime.process import Process
from tools.rbac import NAMESPACE

READS = {"get", "list", "watch"}
STILL_S = 3.0
"""In which a leader with work to do would long have written something."""


def _binding(name: str) -> str:
    return f"POST /api/v1/namespaces/{SPACE}/pods/{name}/binding"


async def _until_asked(rig: Rig, account: str, verb: str, resource: str) -> None:
    async with asyncio.timeout(60):
        while not any(
            (each.account, each.verb, each.resource) == (account, verb, resource)
            for each in rig.fake.access.asked
        ):
            await asyncio.sleep(0.05)


@pytest.mark.slow
def test_the_old_leader_goes_on_and_writes_nothing(tmp_path: Path) -> None:
    """Its bindings are under way when it stops, and one that failed waits for it."""

    async def story(rig: Rig) -> None:
        await rig.node("a", cpu="64")
        old, new = (_process(rig, tmp_path, name) for name in ("old", "new"))
        try:
            old.start()
            await rig.pod("before")
            await rig.until_bound("before")
            new.start()
            await _until_asked(rig, "new", "get", "leases")
            slow, fails = (
                rig.fake.faults.add(Fault(_binding(name).__eq__, before_s=1.0, status=status))
                for name, status in (("slow", 0), ("fails", 500))
            )
            for name in ("slow", "fails"):
                await rig.pod(name)
            async with asyncio.timeout(60):
                while not (slow.met and fails.met):
                    await asyncio.sleep(0.01)
            os.kill(old.pid, signal.SIGSTOP)
            await rig.pod("late")
            await rig.until_bound("slow", "fails", "late")
            rig.fake.access.asked.clear()
            os.kill(old.pid, signal.SIGCONT)
            more = [f"more-{i}" for i in range(5)]
            for name in more:
                await rig.pod(name)
            await rig.pod("huge", cpu="99")
            await rig.until_bound(*more)
            await rig.until_said("huge", "Insufficient cpu")
            await _until_asked(rig, "old", "get", "leases")
            await asyncio.sleep(STILL_S)
            written = {
                each
                for each in rig.fake.access.asked
                if each.account == "old" and each.verb not in READS
            }
            assert not written
            assert "no longer leading" in old.said() and "no longer leading" not in new.said()
            twice = [name for name in ("slow", *more) if rig.fake.requests[_binding(name)] != 1]
            assert not twice and rig.fake.requests[_binding("fails")] == 2
        finally:
            for process in (old, new):
                process.end(signal.SIGKILL)

    told(story)


def _process(rig: Rig, work: Path, name: str) -> Process:
    fake = rig.fake
    fake.access.permit(name, permits(needs_of(chosen(("scheduler",), ("*",)))))
    config = kubeconfig(work / f"{name}.kubeconfig", fake.url, name)
    return real.scheduler(config, work / f"{name}.log", lease_in=NAMESPACE)
