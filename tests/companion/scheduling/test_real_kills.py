"""The scheduler as a process on a real API server: killed again and again, and its rate."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.companion.daemon.cluster import NAMESPACES, NODES
from tests.companion.scheduling import real
from tests.realkube.control_plane import ControlPlane
from tests.runtime.process import Process

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(3600)]
KILLS = int(os.environ.get("KOORDLET_KILLS", "5"))
PODS = int(os.environ.get("KOORDLET_KILLS_PODS", "2000"))
PER_NODE = 20
NODE_COUNT = 1000
PRELOADED = 2000
OFFERED_PER_S, OFFERED_S = 300, 6
WITHIN_S = 600.0


async def _until_bound(
    plane: ControlPlane, space: str, count: int, process: Process
) -> dict[str, str]:
    until_s = time.monotonic() + WITHIN_S
    while True:
        found: dict[str, str] = {}
        with contextlib.suppress(OSError):  # a busy server may not answer in time
            found = {k: v for k, v in real.nodes_of(plane, space).items() if v}
        if len(found) >= count:
            return found
        assert process.is_running, process.said()
        assert time.monotonic() < until_s, f"{len(found)} of {count}: {process.said()}"
        await asyncio.sleep(0.05 if count < 500 else 0.3)


def test_nothing_is_lost_and_nothing_twice_however_often_it_is_killed(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """The pods fill the nodes exactly: one that is counted twice or forgotten would show."""
    chance, space = random.Random(7), f"kills-{time.time_ns()}"
    nodes = [f"kills-{i}" for i in range(-(-PODS // PER_NODE))]

    async def story() -> None:
        async with real.client_of(plane) as client:
            await client.create(NAMESPACES, {"metadata": {"name": space}})
            await real.many(real.make_node(client, name, str(PER_NODE)) for name in nodes)
            try:
                await kills(client)
            finally:
                await real.many(client.delete(NODES, name) for name in nodes)

    async def kills(client: real.Client) -> None:
        process, made = real.ours(plane, tmp_path), 0
        try:
            for number in range(KILLS):
                process.start()
                goal = PODS * (number + 1) // KILLS
                names = [f"p{i}" for i in range(made, goal)]
                making = asyncio.create_task(
                    real.many(
                        real.make_pod(client, space, each, "koord-scheduler") for each in names
                    )
                )
                before = sum(map(bool, real.nodes_of(plane, space).values()))
                want = before + chance.randint(1, max((goal - before) * 3 // 4, 1))
                await _until_bound(plane, space, want, process)
                await asyncio.sleep(chance.random() * 0.05)
                real.kill(process)
                await making
                made = goal
            process.start()
            await _until_bound(plane, space, PODS, process)
        finally:
            process.end(9)

    asyncio.run(story())
    found = real.audited(plane, space)
    # A binding whose client was killed may be written, and still count as failed in the audit log.
    lost = [name for name, node in real.nodes_of(plane, space).items() if not node]
    twice = [name for name, each in found.items() if each.times > 1]
    on_node = Counter(real.nodes_of(plane, space).values())
    print(f"\n{PODS} pods, kill -9 x {KILLS}: {len(lost)} lost, {len(twice)} twice")
    assert len(found) == PODS and not lost and not twice
    assert set(on_node.values()) == {PER_NODE} and len(on_node) == len(nodes)


def test_rate_beside_kube_scheduler(plane: ControlPlane, tmp_path: Path) -> None:
    """Figures are printed; what must hold is that each pod costs one write."""

    async def story() -> None:
        async with real.client_of(plane) as client:
            nodes = [f"rate-{i}" for i in range(NODE_COUNT)]
            await real.many(real.make_node(client, name, "32") for name in nodes)
            try:
                print(f"\n{real.version()}; {NODE_COUNT} nodes, {PRELOADED} pods preloaded")
                mine = await measure(client, "koord-scheduler")
                kube = await measure(client, "default-scheduler")
                print(f"ratio of the rates: {mine / kube:.2f}")
            finally:
                await real.many(client.delete(NODES, name) for name in nodes)

    async def measure(client: real.Client, scheduler: str) -> float:
        is_ours = scheduler == "koord-scheduler"
        space = f"rate-{scheduler}-{time.time_ns()}"
        await client.create(NAMESPACES, {"metadata": {"name": space}})
        await real.many(
            real.make_pod(client, space, f"p{i}", scheduler, "100m") for i in range(PRELOADED)
        )
        process = (real.ours if is_ours else real.theirs)(plane, tmp_path)
        before = plane.writes()
        process.start()
        try:
            await _until_bound(plane, space, PRELOADED, process)
            times_s = sorted(each.bound_s for each in real.audited(plane, space).values())
            rate: float = (len(times_s) - 1) / (times_s[-1] - times_s[0])
            late = f"{space}-offered"
            await client.create(NAMESPACES, {"metadata": {"name": late}})
            begun_s, count = time.monotonic(), OFFERED_PER_S * OFFERED_S
            making = []
            for i in range(count):
                await asyncio.sleep(max(begun_s + i / OFFERED_PER_S - time.monotonic(), 0))
                making.append(
                    asyncio.create_task(real.make_pod(client, late, f"p{i}", scheduler, "100m"))
                )
            await asyncio.gather(*making)
            await _until_bound(plane, late, count, process)
            waits_s = sorted(e.bound_s - e.made_s for e in real.audited(plane, late).values())
        finally:
            process.end(9)
        agent = "koord-scheduler" if is_ours else "kube-scheduler"
        written = Counter({w: n for w, n in (plane.writes() - before).items() if w.agent == agent})
        pods = PRELOADED + count
        of_pods = sum(n for w, n in written.items() if w.resource.startswith("pods"))
        print(
            f"{agent}: {rate:.0f} pods/s; at {OFFERED_PER_S}/s offered p50"
            f" {waits_s[len(waits_s) // 2]:.3f} s, p99 {waits_s[len(waits_s) * 99 // 100]:.3f} s;"
            f" {sum(written.values()) / pods:.3f} mutating calls per pod,"
            f" {of_pods / pods:.3f} of them on pods"
        )
        if is_ours:
            assert pods * 0.99 <= of_pods <= pods * 1.01, written
        return rate

    asyncio.run(story())
