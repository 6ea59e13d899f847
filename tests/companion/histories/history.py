"""One random history of the scheduler and the descheduler on a fake API server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import structlog

from koord_scheduler.balance.job import ENDED
from koord_scheduler.daemon import process
from koord_scheduler.daemon.controller import Context, Options
from koord_scheduler.daemon.parts import chosen
from koord_scheduler.daemon.process import Companion
from koordlet.kube.credentials import Cluster
from koordlet.protocol.objects.times import instant
from tests.companion.histories.checks import Checks
from tests.companion.histories.hands import GANG, GPU, OURS, QUOTA, RATIO, SPACE, Hands, Tree
from tests.companion.running import definitions
from tests.companion.scheduling.rig import scheduler_of
from tests.fakekube import FakeKube, Fault, serving

FASTER = 5.0
"""The clock of back-offs and intervals: seconds of it in a second."""
REST_S = 60.0
"""A machine that others use too may take so long until all is at rest."""
MOVES_S = 5.0
"""Longest wait for moves under way when all is at rest; one may wait for its time limit."""
DESCHEDULER = Path(__file__).with_name("descheduler.yaml")


class Told(NamedTuple):
    """``broken``: what did not hold. ``steps``: what was done, for who repeats it."""

    seed: int
    broken: tuple[str, ...]
    steps: tuple[str, ...]
    seen: Counter[str]


@dataclass
class Clock:
    """``ahead_s``: how wrong the wall clock of the role is."""

    ahead_s: float = 0.0

    def wall(self) -> float:
        return time.time() + self.ahead_s

    def steady(self) -> float:
        return time.monotonic() * FASTER


class World:
    def __init__(self, fake: FakeKube, chance: random.Random) -> None:
        self.fake, self.chance, self.clock = fake, chance, Clock()
        self.hands = Hands(fake, chance, time.time)
        self.checks = Checks(self.hands)
        self.made: Companion | None = None
        self._task: asyncio.Task[None] | None = None
        fake.store.now = lambda: instant(time.time())
        wake = fake.store.on_write

        def written() -> None:
            self.checks.look()
            wake()

        fake.store.on_write = written

    async def start(self) -> None:
        options = Options(
            elect=False,
            metrics_address="127.0.0.1:0",
            health_address="127.0.0.1:0",
            requests_per_s=1000.0,
            requests_burst=1000,
            extra={"descheduler_config": str(DESCHEDULER)},
        )
        made = functools.partial(Context, wall=self.clock.wall, clock=self.clock.steady)
        with mock.patch.object(process, "Context", made):
            cluster = Cluster(self.fake.url, "a history")
            self.made = Companion(cluster, options, chosen(("scheduler", "descheduler"), ("*",)))
        self.checks.watch(scheduler_of(self.made))
        self._task = asyncio.create_task(self.made.run())

    async def kill(self) -> None:
        """Nothing that it sends from now on arrives. What was under way has ended before another
        begins, as the lease sees to."""
        assert self._task is not None
        self.fake.faults.down = True
        self._task.cancel()
        try:
            await self._task
        except asyncio.CancelledError:
            pass
        except BaseExceptionGroup as error:
            self.checks.broken.append(f"the role ended by itself: {error!r}")
        self.fake.faults.cut_watches()
        await asyncio.sleep(0.02)
        self.fake.faults.down = False

    def alive(self) -> None:
        if self._task is not None and self._task.done() and not self._task.cancelled():
            self.checks.broken.append(f"the role ended by itself: {self._task.exception()!r}")


# What may happen. Each does one thing, or nothing where there is nothing to do it to.


def plain(world: World) -> None:
    chance, hands = world.chance, world.hands
    for _ in range(chance.randint(1, 4)):
        labels = {QUOTA: chance.choice(("red", "blue"))} if chance.random() < 0.5 else {}
        cpu = chance.choice(("500m", "1", "2"))
        hands.pod(hands.next("p"), cpu, labels=labels, priority=chance.choice((0, 0, 100)))


def gang(world: World) -> None:
    chance, hands = world.chance, world.hands
    name, least = hands.next("g"), chance.randint(2, 4)
    hands.gangs[name] = least
    mode = chance.choice(("Strict", "NonStrict"))
    if mode == "Strict":
        hands.strict.add(name)
    notes = {GANG + "name": name, GANG + "min-available": str(least), GANG + "mode": mode}
    labels = {QUOTA: "red"} if chance.random() < 0.3 else {}
    for _ in range(least + chance.choice((0, 0, 1))):
        hands.pod(hands.next(name), "1", annotations=notes, labels=labels)


def share(world: World) -> None:
    part = world.chance.choice(("30", "50", "100"))
    world.hands.pod(world.hands.next("gpu"), "500m", extra={GPU: part, RATIO: part})


def urgent(world: World) -> None:
    world.hands.pod(world.hands.next("high"), "2", priority=1000)


def reservation(world: World) -> None:
    name = world.hands.next("r")
    part = world.chance.choice(("", "", "50", "100"))
    extra = {GPU: part, RATIO: part} if part else {}
    amounts = {"cpu": "2", "memory": "64Mi", **extra}
    container = {"name": "c", "resources": {"requests": amounts}}
    spec = {
        "template": {"spec": {"schedulerName": OURS, "containers": [container]}},
        "owners": [{"labelSelector": {"matchLabels": {"for": name}}}],
        "ttl": world.chance.choice(("1s", "1h")),
    }
    world.hands.create("reservations", {"metadata": {"name": name}, "spec": spec})
    world.hands.pod(world.hands.next("own"), "1", labels={"for": name}, extra=extra)


def gone(world: World) -> None:
    if pods := world.hands.all("pods"):
        name = world.chance.choice(pods)["metadata"]["name"]
        world.hands.delete("pods", name)


def foreign(world: World) -> None:
    """Another scheduler takes room that it sees."""
    hands, chance = world.hands, world.chance
    for node in chance.sample(found := hands.all("nodes"), len(found)):
        name = node["metadata"]["name"]
        if hands.on_node(name) + 1000 <= int(node["status"]["allocatable"]["cpu"]) * 1000:
            hands.pod(hands.next("other"), "1", scheduler="default-scheduler", nodeName=name)
            return


def node_lost(world: World) -> None:
    nodes = world.hands.all("nodes")
    if len(nodes) > 2:
        name = world.chance.choice(nodes)["metadata"]["name"]
        world.hands.delete("nodes", name)
        world.hands.control()


def node_back(world: World) -> None:
    there = {each["metadata"]["name"] for each in world.hands.all("nodes")}
    if missing := sorted(world.hands.lost.keys() - there):
        name = world.chance.choice(missing)
        world.hands.control()
        world.hands.node(name, **world.hands.lost[name])


def cut(world: World) -> None:
    world.fake.faults.cut_watches()


def forget(world: World) -> None:
    world.fake.store.compact()
    world.fake.faults.cut_watches()


def fault(world: World) -> None:
    chance = world.chance
    word = chance.choice(
        ("/binding", "/status", "DELETE ", "/eviction", "podmigrationjobs", "GET ")
    )
    what = chance.choice(
        (
            {"status": 500},
            {"status": 429},
            {"status": 409},
            {"drop": True},
            {"before_s": 0.03},
            {"after_s": 0.05},
        )
    )
    kept = {k: v for k, v in what.items() if not (word == "GET " and v == 409)}
    world.fake.faults.add(Fault(lambda text: word in text, times=chance.randint(1, 4), **kept))


def clock(world: World) -> None:
    world.checks.clocks_moved = True
    world.clock.ahead_s += world.chance.choice((-100.0, -2.0, 2.0, 100.0))


def hot(world: World) -> None:
    world.hands.replicas_on = True
    for node in world.hands.all("nodes"):
        world.hands.heat(node["metadata"]["name"], world.chance.choice((0, 20, 100)))


def by_hand(world: World) -> None:
    """Somebody asks that a pod moves."""
    hands = world.hands
    pods = [
        each
        for each in hands.all("pods")
        if each["metadata"].get("ownerReferences") and each["spec"].get("nodeName")
    ]
    if pods:
        pod = {"namespace": SPACE, "name": world.chance.choice(pods)["metadata"]["name"]}
        mode = world.chance.choice(("EvictDirectly", "ReservationFirst"))
        spec = {"podRef": pod, "mode": mode, "ttl": "5m"}
        body = {"metadata": {"name": hands.next("job")}, "spec": spec}
        hands.create("podmigrationjobs", body)


def quota(world: World) -> None:
    least, most = world.chance.choice(((1, 4), (3, 9), (6, 12)))
    amounts = {"min": {"cpu": str(least)}, "max": {"cpu": str(most)}}
    name = world.chance.choice(("red", "blue"))
    world.hands.merge("elasticquotas", name, {"spec": amounts})


STEPS: dict[Callable[[World], None], int] = {
    plain: 6, gang: 4, share: 3, urgent: 2, reservation: 2, gone: 3, foreign: 3, node_lost: 1,
    node_back: 2, cut: 2, forget: 1, fault: 4, clock: 1, hot: 2, by_hand: 2, quota: 2,
}  # fmt: skip
KILLS = 0.08
"""The chance of a step that the role is killed after it."""


async def play(seed: int) -> Told:
    chance = random.Random(seed)
    steps: list[str] = []
    async with serving(*DEFINITIONS) as fake:
        world = World(fake, chance)
        world.hands.begin()
        await world.start()
        try:
            await asyncio.sleep(chance.random() * 0.3)
            for _ in range(chance.randint(15, 40)):
                (step,) = chance.choices(list(STEPS), list(STEPS.values()))
                steps.append(step.__name__)
                step(world)
                if chance.random() < 0.5:
                    await asyncio.sleep(chance.choice((0.0, 0.005, 0.03, 0.1)))
                    world.hands.control()
                if chance.random() < KILLS:
                    steps.append("kill")
                    await world.kill()
                    await world.start()
            await _rescue(world)
        finally:
            await world.kill()
    return Told(seed, tuple(world.checks.broken), tuple(steps), world.checks.seen)


async def _rescue(world: World) -> None:
    """Faults end and room comes: now everybody who may have a node gets one."""
    world.alive()
    hands = world.hands
    world.fake.faults.pending.clear()
    world.clock.ahead_s = 0.0
    hands.control()
    for name in ("red", "blue"):
        much = {"cpu": "500", "memory": "500Gi"}
        hands.merge("elasticquotas", name, {"spec": {"min": much, "max": much}})
    for number in range(4):
        hands.node(f"big{number}", 300, 8)
    try:
        async with asyncio.timeout(REST_S):
            while _waiting(world) or not _agree(world):
                hands.control()
                await asyncio.sleep(0.05)
    except TimeoutError:
        world.checks.broken += [
            f"pod {each} never got a node: {_said(world, each)}" for each in _waiting(world)
        ]
        if not _agree(world):
            world.checks.broken.append("the scheduler counts other pods than the server has")
    # How far a move has come by now is up to the machine; some must come to an end on all.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(MOVES_S):
            while any(_is_under_way(job) for job in hands.all("podmigrationjobs")):
                hands.control()
                await asyncio.sleep(0.05)
    world.alive()


def _is_under_way(job: Tree) -> bool:
    return (job.get("status") or {}).get("phase", "") not in ENDED


def _waiting(world: World) -> list[str]:
    """Pods that should have a node and have none."""
    pods = world.hands.all("pods")
    members: Counter[str] = Counter(
        name for each in pods if (name := each["metadata"]["annotations"].get(GANG + "name"))
    )
    return [
        each["metadata"]["name"]
        for each in pods
        if not each["spec"].get("nodeName")
        and each["spec"]["schedulerName"] == OURS
        and not (
            (name := each["metadata"]["annotations"].get(GANG + "name"))
            and members[name] < world.hands.gangs[name]
        )
    ]


def _said(world: World, name: str) -> str:
    for pod in world.hands.all("pods"):
        if pod["metadata"]["name"] == name:
            return str(pod.get("status", {}).get("conditions", ""))
    return "gone"


def _agree(world: World) -> bool:
    """What the scheduler counts on each node, and what the server has there."""
    assert world.made is not None
    scheduler = scheduler_of(world.made)
    counted = {k: each.node for k, each in scheduler.cluster.claims.items() if not each.pod.holds}
    there = {
        f"{SPACE}/{each['metadata']['name']}": each["spec"]["nodeName"]
        for each in world.hands.all("pods")
        if each["spec"].get("nodeName")
    }
    return counted == there and not scheduler.assumed


async def play_all(seeds: list[int], together: int = 8) -> list[Told]:
    """So many at once on one loop: most of a history is waiting."""
    turns = asyncio.Semaphore(together)

    async def one(seed: int) -> Told:
        async with turns:
            return await play(seed)

    return await asyncio.gather(*map(one, seeds))


def play_now(seeds: list[int]) -> list[Told]:
    """In a process of a pool."""
    return asyncio.run(play_all(seeds))


def prepare() -> None:
    """Such a process: it logs nothing, and those who test beside it go first."""
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    os.nice(10)


DEFINITIONS = definitions()
