"""Everything is killed at random while the pods of the story run: nothing is lost, no value is
wrong, and nobody answers with a storm of writes."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.cluster.whole import look
from tests.cluster.whole.cluster import Whole, wait
from tests.cluster.whole.story import Story, as_written
from tests.realkube.control_plane import Write
from tests.realkube.node import NODE

MOST_PER_MINUTE = {"koordlet": 60, "koord-scheduler": 60}
"""Writes, averaged over the time. A report each 5 s is 12; a restart tells events and reports."""
DOWN_S = (0.5, 10.0)
REST_S = (1.0, 8.0)
"""Between two kills."""
_METRIC = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{NODE}"
_SLO = f"/apis/slo.koordinator.sh/v1alpha1/nodeslos/{NODE}"


@dataclass
class Victim:
    """``back_s``: on the monotonic clock, when it is started again; 0: it runs."""

    name: str
    kill: Callable[[], None]
    start: Callable[[], None]
    back_s: float = 0.0


@dataclass
class Seen:
    kills: Counter[str] = field(default_factory=Counter)
    looks: int = 0
    wrong: list[str] = field(default_factory=list)


def run(story: Story, seconds: float, seed: int | None = None) -> Seen:
    """Raises AssertionError with all that went wrong."""
    whole = story.whole
    seed = random.randrange(10**6) if seed is None else seed
    chance = random.Random(seed)
    pods = [*story.running(), *whole.pods("web")]
    slo = whole.plane.get(_SLO)["spec"]
    before = whole.plane.writes()
    story.tell(f"for {seconds:.0f} s each of them is killed at random (seed {seed})")
    begun_s = time.monotonic()
    seen = _havoc(whole, pods, seconds, chance)
    told = ", ".join(f"{name} {count} times" for name, count in sorted(seen.kills.items()))
    story.tell(f"killed: {told}; {seen.looks} looks at the pods' cgroups meanwhile")
    _settled(story, pods, slo)
    story.tell("all are back: the same pods run, their values and the NodeSLO are as before")
    minutes = (time.monotonic() - begun_s) / 60
    writes = whole.plane.writes() - before
    for agent, most in MOST_PER_MINUTE.items():
        rate = _rate(writes, agent, minutes)
        story.tell(f"{agent} wrote {rate:.1f} times a minute: {_most(writes, agent)}")
        if rate > most:
            seen.wrong.append(f"{agent} wrote {rate:.1f} times a minute, not {most}")
    assert not seen.wrong, f"seed {seed}: {'; '.join(seen.wrong[:10])}"
    return seen


def _havoc(whole: Whole, pods: list[Any], seconds: float, chance: random.Random) -> Seen:
    seen = Seen()
    victims = _victims(whole)
    end_s = time.monotonic() + seconds
    next_s = time.monotonic()
    while (now_s := time.monotonic()) < end_s:
        for each in victims:
            if each.back_s and now_s >= each.back_s:
                each.start()
                each.back_s = 0.0
        if now_s >= next_s:
            up = [each for each in victims if not each.back_s]
            if up:
                victim = chance.choice(up)
                victim.kill()
                victim.back_s = now_s + chance.uniform(*DOWN_S)
                seen.kills[victim.name] += 1
            next_s = now_s + chance.uniform(*REST_S)
        whole.controllers.revive()
        _look(pods, seen)
        time.sleep(0.5)
    for each in victims:
        if each.back_s:
            each.start()
    return seen


def _victims(whole: Whole) -> tuple[Victim, ...]:
    kubelet, manager, koordlet = (
        whole.node.kubelet,
        whole.manager.process,
        whole.koordlet.process,
    )
    return (
        Victim("kube-apiserver", lambda: whole.plane.end_server(9), whole.plane.start_server),
        Victim("manager", lambda: manager.end(9), manager.start),
        Victim("koordlet", lambda: koordlet.end(9), koordlet.start),
        Victim("kubelet", lambda: kubelet.end(9), kubelet.start),
    )


def _look(pods: list[Any], seen: Seen) -> None:
    """At what must never change, whoever is away."""
    seen.looks += 1
    for pod in pods:
        name, group = pod["metadata"]["name"], look.cgroup(pod)
        try:
            found = look.limits(group)
        except OSError:
            seen.wrong.append(f"{name} is gone")
            continue
        if look.BATCH_CPU in look.requests(pod) and not as_written(found):
            seen.wrong.append(f"{name} has {found}")


def _settled(story: Story, pods: list[Any], slo: Any) -> None:
    whole = story.whole
    whole.node.wait_ready()
    back = whole.plane.get(_METRIC)["status"]["updateTime"]
    wait("koordlet reports again", lambda: whole.plane.get(_METRIC)["status"]["updateTime"] > back)
    wait("the NodeSLO is as before", lambda: whole.plane.get(_SLO)["spec"] == slo)
    wait(
        "batch resources are offered",
        lambda: int(whole.node_object()["status"]["allocatable"][look.BATCH_CPU]) > 0,
    )
    names = sorted((p["metadata"]["uid"], look.cgroup(p)) for p in pods)

    def same() -> bool:
        now = [*story.running(), *whole.pods("web")]
        return sorted((p["metadata"]["uid"], look.cgroup(p)) for p in now) == names

    wait("the same pods and containers run", same, lambda: whole.kubectl("get", "pods", "-A"))


def _rate(writes: Counter[Write], agent: str, minutes: float) -> float:
    return sum(count for write, count in writes.items() if write.agent == agent) / minutes


def _most(writes: Counter[Write], agent: str) -> str:
    mine = Counter({w: count for w, count in writes.items() if w.agent == agent})
    return ", ".join(f"{w.verb} {w.resource} {count}" for w, count in mine.most_common(6)) or "none"
