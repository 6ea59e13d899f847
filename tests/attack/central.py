"""The API servers of `apiserver.py` before the scheduler as a process: its memory and its requests
have a bound, it stays alive, and places pods again soon afterwards, on what is there."""

from __future__ import annotations

import asyncio
import contextlib
import urllib.request
from collections.abc import Awaitable, Callable
from typing import ClassVar

from prometheus_client.parser import text_string_to_metric_families

from tests.attack.apiserver import MANY, STARTS_S, Subject, play_on
from tests.attack.attack import Attack, Trial
from tests.attack.tenants import Stage, _pod
from tests.companion.daemon.cluster import fake_here
from tests.deploy.objects import container, the
from tests.fakekube import FakeKube

NODES, RUNNING = 20, 100
_KNOWN = "koord_scheduler_watched_objects"
_SOON_FORGIVES = (
    "-c",
    """
import sys
from koord_scheduler.cli.main import main
from koordlet.kube import trouble
trouble.STEADY_S = 1.0
sys.exit(main(sys.argv[1:]))
""",
)
"""One attack follows the other."""
PAGE_S = 60.0


class Scheduler(Subject):
    most_requests = 300
    """Of some 30 mirrors, and what it writes. Measured: 45 to 112."""
    right_s = 180.0
    """It plans for all pods that it was told of. Measured: 37 s after 100,000 of them, else 12."""
    spare_bytes: ClassVar = {"100,000 pods in a watch": MANY << 10}
    """It keeps the pods of a cluster, some 700 bytes each."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.process)
        self._stage, self._made = stage, 0

    async def holds(self, kind: str) -> None:
        await stays_alive(kind, self._stage, "scheduler")

    async def change(self, kube: FakeKube, number: int) -> Callable[[], Awaitable[object]]:
        name = f"after-{number}-{self._made}"
        self._made += 1
        self._stage.make(*_pod(name, "default"))
        kube.store.on_write()

        async def lacks() -> object:
            pods = kube.resource("pods")
            if not kube.store.get(pods, ("default", name))["spec"].get("nodeName"):
                return f"{name} has no node"
            known = await self._known()
            there = float(RUNNING + self._made)
            return None if known == there else f"{known:g} pods are known, {there:g} are there"

        return lacks

    async def _known(self) -> float:
        _, text = await page(self._stage.metrics, "metrics")
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.labels.get("resource") == "pods" and sample.name == _KNOWN:
                    return sample.value
        return 0.0


async def stays_alive(kind: str, stage: Stage, role: str) -> None:
    """Raise AssertionError where kubelet would end the role's container, by the probe of its
    Deployment."""
    probe = container(the("Deployment", f"koord-{role}"))["livenessProbe"]
    seen = []
    for _ in range(probe["failureThreshold"]):
        status, _ = await page(stage.health, "healthz", probe["timeoutSeconds"])
        if status == 200:
            return
        seen.append(status)
    raise AssertionError(f"{kind}: /healthz: {seen}")


async def page(port: int, path: str, within_s: float = PAGE_S) -> tuple[int, str]:
    """Return the status and the text; 0 where it does not answer. It is asked for in a thread: the
    fake server takes its time on the event loop."""

    def ask() -> tuple[int, str]:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=within_s) as it:
            return it.status, it.read().decode()
        return 0, ""

    url = f"http://127.0.0.1:{port}/{path}"
    return await asyncio.to_thread(ask)


def play_before(trial: Trial, role: str, subject_of: Callable[[Stage], Subject]) -> None:
    """Play the attacks before a process of this role."""

    async def story() -> None:
        async with fake_here() as (_, fake):
            stage = Stage(fake, trial.directory, _SOON_FORGIVES, role)
            stage.furnish(NODES, RUNNING)
            stage.process.start()
            subject = subject_of(stage)
            try:
                lacks = await subject.change(fake, -1)
                await subject.until(lacks, f"the {role} follows the server", STARTS_S)
                await play_on(trial, fake, subject)
            finally:
                await asyncio.to_thread(stage.process.end)

    asyncio.run(story())


def play(trial: Trial) -> None:
    play_before(trial, "scheduler", Scheduler)


ATTACK = Attack("central", play)
