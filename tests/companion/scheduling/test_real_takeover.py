"""Two schedulers with a lease on a real API server: the leader is killed again and again while pods
come, and the other one takes over."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from koordlet.kube.lease import DURATION_S, RENEW_S
from tests.companion.daemon.cluster import NAMESPACES, NODES
from tests.companion.scheduling import real
from tests.realkube.control_plane import ControlPlane
from tests.runtime.process import Process

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("KOORDLET_KILLS", "5"))
PER_NODE = 20
NODE_COUNT = 60
PODS_PER_S = 8.0
SETTLED_S = 3.0
"""For which a new leader binds before it is killed, and up to twice that."""
WITHIN_S = 60.0


def _holder(plane: ControlPlane, space: str) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/koord-scheduler"
    lease: dict[str, Any] | None = plane.get(path)
    return str(lease["spec"]["holderIdentity"]) if lease is not None else ""


def _leads(log: Path) -> bool:
    words = log.read_text(errors="replace") if log.exists() else ""
    return "leading" in words and "no longer leading" not in words


async def _until_leads(
    plane: ControlPlane, space: str, running: dict[Path, Process], before: str
) -> tuple[Path, str]:
    """The log and the identity of the leader; ``before``: of who held the lease until now."""
    until_s = time.monotonic() + WITHIN_S
    while True:
        holder = await asyncio.to_thread(_holder, plane, space)
        leaders = [log for log in running if _leads(log)]
        if holder not in ("", before) and leaders:
            (leader,) = leaders
            return leader, holder
        for log, process in running.items():
            assert process.is_running, log.read_text()
        assert time.monotonic() < until_s, f"{before} is dead, and nobody leads"
        await asyncio.sleep(0.1)


def test_the_other_one_takes_over_and_nothing_is_lost_or_twice(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """The pods fill the nodes exactly: one that is counted twice or forgotten would show."""
    chance, space = random.Random(7), f"takeover-{time.time_ns()}"
    nodes = [f"takeover-{i}" for i in range(NODE_COUNT)]
    names = [f"p{i}" for i in range(NODE_COUNT * PER_NODE)]
    numbers, killed_s = itertools.count(), list[float]()
    taken_s: list[float] = []

    def one() -> tuple[Path, Process]:
        log = tmp_path / f"scheduler-{next(numbers)}.log"
        process = real.scheduler(plane.kubeconfig, log, lease_in=space)
        process.start()
        return log, process

    async def story() -> None:
        async with real.client_of(plane) as client:
            await client.create(NAMESPACES, {"metadata": {"name": space}})
            await real.many(real.make_node(client, name, str(PER_NODE)) for name in nodes)
            over = asyncio.Event()
            coming = asyncio.create_task(come(client, over))
            running = dict(one() for _ in range(2))
            try:
                await kills(running)
                over.set()
                await coming
                await until_bound(running)
            finally:
                coming.cancel()
                for process in running.values():
                    process.end(9)
                await real.many(client.delete(NODES, name) for name in nodes)

    async def come(client: real.Client, over: asyncio.Event) -> None:
        """One after the other, and what is left at once when there are no more kills."""
        for number, name in enumerate(names):
            await real.make_pod(client, space, name, "koord-scheduler")
            if over.is_set():
                await real.many(
                    real.make_pod(client, space, each, "koord-scheduler")
                    for each in names[number + 1 :]
                )
                return
            await asyncio.sleep(1.0 / PODS_PER_S)

    async def kills(running: dict[Path, Process]) -> None:
        leader, holder = await _until_leads(plane, space, running, "")
        for _ in range(KILLS):
            await asyncio.sleep(SETTLED_S * (1.0 + chance.random()))
            killed_s.append(time.time())
            running.pop(leader).end(9)
            leader, holder = await _until_leads(plane, space, running, holder)
            taken_s.append(time.time() - killed_s[-1])
            running.update([one()])

    async def until_bound(running: dict[Path, Process]) -> None:
        until_s = time.monotonic() + WITHIN_S
        while len([n for n in real.nodes_of(plane, space).values() if n]) < len(names):
            assert time.monotonic() < until_s, [each.said() for each in running.values()]
            await asyncio.sleep(0.3)

    asyncio.run(story())
    found = real.audited(plane, space)
    on_node = Counter(real.nodes_of(plane, space).values())
    bound_s = sorted(each.bound_s for each in found.values())
    gaps_s = [next(s for s in bound_s if s > at_s) - at_s for at_s in killed_s]
    twice = [name for name, each in found.items() if each.times > 1]
    print(f"\n{len(names)} pods, the leader killed {KILLS} times by kill -9, {len(twice)} twice")
    print(f"a lease lasts {DURATION_S} s and is looked at every {RENEW_S:.0f} s")
    for words, seconds in (("leads", taken_s), ("binds", gaps_s)):
        print(f"the other one {words} after {', '.join(f'{s:.1f}' for s in seconds)} s")
    assert len(found) == len(names) and not twice
    assert on_node == dict.fromkeys(nodes, PER_NODE)
    assert len(taken_s) == KILLS
