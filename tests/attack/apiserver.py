"""An API server that is broken in every way that was thought of, before a node: it costs the node a
bounded memory and few requests, the node forgets nothing, and is right again soon afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from tests.attack.attack import Attack, Trial
from tests.attack.member import Seen, seen_in
from tests.cluster.joined import NODE, definitions, kubeconfig, node, pod, slo
from tests.fakekube import FakeKube, broken, serving
from tests.fakekube.broken import MIB, Break, deep
from tests.runtime.process import Process

MOST_BYTES = 48 * MIB
"""More than the process had before, under each attack. Measured: 1 to 27 MiB."""
LASTS_S, REST_S, STARTS_S = 3.0, 1.5, 60.0
RIGHT_S = 60.0
"""Until the node is right again. Measured on a calm machine: less than 5 s."""
MOST_REQUESTS = 120
"""Of the six mirrors of a node, and what it reports."""
PODS = 3
MANY = 100_000


def _padded(number: int, _limit: int) -> Iterator[str]:
    return (_pod(f"p{number}-{each}", "x" * MIB) for each in range(200))


def _tiny(_number: int, _limit: int) -> list[str]:
    return ["{}"] * (2 * MIB)


def _pods(number: int, limit: int) -> Iterator[str]:
    return (_pod(f"p{number:06}-{each}") for each in range(limit))


def _pod(name: str, text: str = "", levels: int = 1) -> str:
    tree = pod(name)
    meta = {"annotations": {"a": text}}
    found = deep(name, "Pod", levels, spec=tree["spec"], status=tree["status"])
    return found.replace('{"name"', json.dumps(meta)[1:-1].join(("{", ', "name"')), 1)


def _large(name: str, size_bytes: int) -> str:
    selector = {"matchLabels": {"app": "x" * size_bytes}}
    return deep(name, "PodDisruptionBudget", 1, spec={"selector": selector})


def _deep(_number: int, _limit: int) -> list[str]:
    return [_pod(f"p{number}", levels=9000) for number in range(PODS)]


KINDS: dict[str, Break] = {
    "says nothing": broken.silent,
    "errors of 250 MiB": broken.wordy,
    "another answer": broken.another,
    "brackets": broken.brackets,
    "a gzip bomb": broken.bomb,
    "watches that end at once": broken.short_watches,
    "lines without end": broken.long_lines,
    "a page of 200 MiB": broken.pages("Pod", _padded, last=0),
    "a page of millions of objects": broken.pages("Pod", _tiny, last=0),
    "pages without end": broken.pages("Pod", _pods),
    "empty pages without end": broken.pages("Pod", lambda *_: []),
    "100,000 pods in a watch": broken.events("Pod", lambda: (_pod(f"e{n}") for n in range(MANY))),
    "1,500 large objects in a watch": broken.events(
        "PodDisruptionBudget", lambda: (_large(f"l{n}", 80 << 10) for n in range(1500))
    ),
    "a deep object in each page": broken.pages("Pod", _deep, last=0),
    "deep objects in a watch": broken.events(
        "Pod", lambda: (_pod(f"d{n}", levels=9000) for n in range(200))
    ),
}


class Subject:
    """A process before the API server. ``most_requests``: while an attack lasts and until it is
    right again."""

    most_requests = MOST_REQUESTS
    right_s = RIGHT_S
    spare_bytes: Mapping[str, int] = {}
    """By attack: what it may take besides, because it cannot be told from an honest server's."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def forget_peak(self) -> int:
        """Resident bytes now, from which on the peak counts."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self._of("VmRSS")

    def peak(self) -> int:
        return self._of("VmHWM")

    def _of(self, name: str) -> int:
        assert self.process.is_running, self.process.said()
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"no {name}")

    async def holds(self, kind: str) -> None:
        """Raise AssertionError where it has forgotten something under the attack."""
        raise NotImplementedError

    async def change(self, kube: FakeKube, number: int) -> Callable[[], Awaitable[object]]:
        """Change something. What is returned is None once the process follows the server, or what
        is seen instead."""
        raise NotImplementedError

    async def until(
        self, lacks: Callable[[], Awaitable[object]], what: str, within_s: float
    ) -> float:
        """How long it took."""
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        while (seen := await lacks()) is not None:
            said = f"{what} within {within_s:g} s: {seen}\n{self.process.said()}"
            assert loop.time() - begun_s < within_s, said
            await asyncio.sleep(0.02)
        return loop.time() - begun_s


class Node(Subject):
    def __init__(self, process: Process, directory: Path) -> None:
        super().__init__(process)
        self._directory = directory

    async def lacks(self, wanted: Seen) -> Seen | None:
        seen = seen_in(self._directory)
        return None if seen == wanted else seen

    async def holds(self, kind: str) -> None:
        seen = seen_in(self._directory)
        assert seen.pods >= PODS, f"{kind}: {seen}"

    async def change(self, kube: FakeKube, number: int) -> Callable[[], Awaitable[object]]:
        percent = 40 + number % 50
        patch = {"spec": {"resourceUsedThresholdWithBE": {"cpuSuppressThresholdPercent": percent}}}
        kube.store.merge(kube.resource("nodeslos"), ("", NODE), patch)
        return functools.partial(self.lacks, Seen(percent, PODS))


def play(trial: Trial) -> None:
    async def story() -> None:
        async with _joined(trial.directory) as (kube, subject):
            await play_on(trial, kube, subject)

    asyncio.run(story())


async def play_on(trial: Trial, kube: FakeKube, subject: Subject) -> None:
    order = trial.chance.sample([*KINDS], len(KINDS))
    for number in trial.cycles:
        await _attack(trial, kube, subject, order[number % len(order)], number)


async def _attack(trial: Trial, kube: FakeKube, subject: Subject, kind: str, number: int) -> None:
    await asyncio.sleep(REST_S)
    before, requests = subject.forget_peak(), kube.requests.total()
    kube.faults.breaks = KINDS[kind]
    kube.store.version += 1
    kube.store.compact()  # so that it lists anew
    kube.faults.cut_watches()
    await asyncio.sleep(LASTS_S)
    await subject.holds(kind)
    kube.faults.breaks = None
    kube.faults.cut_watches()
    lacks = await subject.change(kube, number)
    took_s = await subject.until(lacks, f"{kind}: right again", subject.right_s)
    more, asked = subject.peak() - before, kube.requests.total() - requests
    told = f"{kind}: {more / MIB:.0f} MiB more than before, {asked} requests, {took_s:.1f} s"
    assert more <= MOST_BYTES + subject.spare_bytes.get(kind, 0), told
    assert asked <= subject.most_requests, told
    trial.counts[f"{kind}: attacks"] += 1
    for what, value in (
        ("most MiB more", round(more / MIB)),
        ("most requests", asked),
        ("longest ms until right", round(1000 * took_s)),
    ):
        trial.counts[f"{kind}: {what}"] = max(trial.counts[f"{kind}: {what}"], value)


@contextlib.asynccontextmanager
async def _joined(directory: Path) -> AsyncIterator[tuple[FakeKube, Node]]:
    async with serving(*definitions()) as kube:
        store = kube.store
        store.create(kube.resource("nodes"), "", node())
        threshold = {"enable": True, "cpuSuppressThresholdPercent": 39}
        store.create(kube.resource("nodeslos"), "", slo(resourceUsedThresholdWithBE=threshold))
        for number in range(PODS):
            store.create(kube.resource("pods"), "default", pod(f"p{number}"))
        path = kubeconfig(directory, kube.url)
        command = [sys.executable, "-m", "tests.attack.member", str(path), str(directory)]
        process = Process(command, directory / "log")
        process.start()
        try:
            subject = Node(process, directory)
            joined = functools.partial(subject.lacks, Seen(39, PODS))
            await subject.until(joined, "the node joins", STARTS_S)
            yield kube, subject
        finally:
            await asyncio.to_thread(process.end)


ATTACK = Attack("apiserver", play)
