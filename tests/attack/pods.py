"""Hostile pods through the whole engine: best-effort pods with whatever an API server lets into
labels and annotations. They cost a bounded time, nothing raises, and their neighbours keep what
they have."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from koordlet.decision.facts import ContainerFacts, PodFacts
from koordlet.decision.record import Kind, Record
from koordlet.decision.resource import Resource, Value
from koordlet.protocol import keys, limits
from koordlet.protocol.qos import KubeQoS
from tests.attack.attack import Attack, Trial
from tests.daemon import everything
from tests.daemon.world import World
from tests.protocol.test_fuzz import HOSTILE
from tests.protocol.test_limits import shapes

PODS = 12
WAVES = 10
TICK_S = 0.1
"""Of CPU, the least of three ticks. Measured: 9 ms beside calm pods, 14 ms beside hostile ones."""
HOSTILE_UIDS = "00000000-0000-0000-0002"
LONG = 250 << 10
GOOD = (
    "0-3",
    "LSR",
    "LSE",
    "SYSTEM",
    "koord-prod",
    "2147483647",
    "-1000",
    "true",
    '{"cpuset":"0-2","numaNodeResources":[{"node":0,"resources":{"cpu":"2"}}]}',
    '{"policy":"auto","cpuBurstPercent":1000,"cfsQuotaBurstPercent":300}',
    '{"containers":{"main":{"limits":{"kubernetes.io/batch-cpu":"999999"}}}}',
    '{"containers":{"main":{"requests":{"kubernetes.io/batch-memory":"1Pi"}}}}',
    '{"llc":{"schemata":{"range":[0,100]}},"mb":{"schemata":{"percent":100}}}',
    '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":"100"}}]}',
    '{"policy":"evictByRealLimit"}',
    '[{"socket":0,"node":0,"cpuset":"0-7"}]',
)
"""What the protocol knows, in whatever key it stands."""


def play(trial: Trial) -> None:
    for _ in trial.cycles:
        with tempfile.TemporaryDirectory(dir=trial.directory) as directory:
            world = _furnish(Path(directory), core_sched=trial.chance.random() < 0.5)
            try:
                _waves(world, trial)
            finally:
                world.stop()


def _furnish(directory: Path, *, core_sched: bool) -> World:
    def make(*arguments: str, **options: object) -> World:
        return World(directory, *arguments, **options)

    world = everything.furnish(make, core_sched=core_sched)
    for number in range(PODS):
        groups = world.host.make_pod("cgroupfs", "besteffort", _uid(number), (f"{number:064x}",))
        world.processes[_uid(number)] = world.host.spawn(groups.containers[0], demand_cores=0.05)
    everything.start(world)
    return world


def _waves(world: World, trial: Trial) -> None:
    for number in range(PODS):
        _tell(world, number, {}, {})
    world.run(12)
    before = _settings_of_neighbours(world)
    assert before
    records = _records(world)
    for _ in range(WAVES):
        for number in range(PODS):
            names = trial.chance.sample(sorted(keys.KEYS), trial.chance.randint(1, 12))
            texts = {name: _text(trial.chance, keys.KEYS[name]) for name in names}
            labels = {n: t for n, t in texts.items() if keys.KEYS[n].kind is keys.Kind.POD_LABEL}
            _tell(world, number, labels, {n: t for n, t in texts.items() if n not in labels})
            trial.counts["texts"] += len(texts)
        trial.counts["pods told"] += PODS
        took_s = min(_second(world) for _ in range(3))
        assert took_s < TICK_S, f"a tick takes {took_s:.3f} s of CPU"
        after = _settings_of_neighbours(world)
        changed = {k: (before.get(k), after.get(k)) for k in before if before[k] != after.get(k)}
        assert not changed, changed
        trial.counts["files compared"] += len(before)
        faults = world.engine.faults()
        assert len(faults) <= PODS * (limits.PROBLEMS_PER_POD + 1)
        trial.counts["refusals told"] += len(faults)
    raised = [each for each in records if each.why.rule.endswith(".failed")]
    assert not raised, raised
    evicted = [each for each in records if each.kind is Kind.EVICTION]
    assert all(HOSTILE_UIDS in each.cgroup for each in evicted), evicted


def _records(world: World) -> list[Record]:
    """All that is told from now on."""
    records: list[Record] = []
    tell = world.parts.tell

    def told(record: Record) -> None:
        records.append(record)
        tell(record)

    world.parts.tell = told  # type: ignore[method-assign]
    return records


def _second(world: World) -> float:
    world.host.advance(1.0)
    began = time.thread_time()
    world.answer()
    world.engine.tick()
    return time.thread_time() - began


def _uid(number: int) -> str:
    return f"{HOSTILE_UIDS}-{number:012}"


def _tell(world: World, number: int, labels: dict[str, str], annotations: dict[str, str]) -> None:
    container = f"{number:064x}"
    cgroup = f"kubepods/besteffort/pod{_uid(number)}"
    world.parts.reported["nri"].upsert(
        PodFacts(
            _uid(number),
            cgroup=cgroup,
            kube_qos=KubeQoS.BEST_EFFORT,
            name=f"evil-{number}",
            namespace="ns",
            labels=labels,
            annotations=annotations,
            containers=(ContainerFacts(container, f"{cgroup}/{container}", "main"),),
        )
    )


def _text(chance: random.Random, key: keys.Key[object]) -> str:
    makers: tuple[Callable[[], str], ...] = (
        lambda: chance.choice(GOOD),
        lambda: _mutated(chance, chance.choice(GOOD)),
        lambda: chance.choice(HOSTILE),
        lambda: chance.choice(list(shapes(key.limit)))[: key.limit.characters],
        lambda: chance.choice(("x", "[", '{"a":', "0-4095,", "\\u0000", "\u202e")) * (LONG // 8),
        lambda: "".join(chr(chance.randrange(1, 0xD800)) for _ in range(chance.randrange(40))),
    )
    return chance.choice(makers)()


def _mutated(chance: random.Random, text: str) -> str:
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(text) + 1)
        piece = chance.choice(("", "-", "9" * 20, '"', "{}", "[]", "null", ",", "\0", "e9", "main"))
        text = text[:at] + piece + text[at + chance.randrange(3) :]
    return text


def _settings_of_neighbours(world: World) -> dict[tuple[str, Resource], Value]:
    """What is wanted of other pods and of applications: not of the tiers, which the pods share."""
    return {
        (each.cgroup, each.resource): each.value
        for decision in world.engine.wanted
        for each in decision.plan.settings
        if "/pod" in f"/{each.cgroup}" and HOSTILE_UIDS not in each.cgroup
    }


ATTACK = Attack("pods", play)
