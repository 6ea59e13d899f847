"""What hooks cost the event loop on a node of 300 pods with 600 containers: passes, answers, ticks.

The real engine, journal and decision log on the fake kernel, all hooks switched on. A pass from
scratch, which asks every hook about every cgroup, is what to compare with, and the ticks of a node
without hooks. The fake kernel reads a file in some 20 us, a real one in 4.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench.figures import Figure, quantile
from bench.hooks_node import Node
from koordlet.decision.answer import Combined
from koordlet.decision.facts import PodFacts
from koordlet.decision.snapshot import Snapshot, Wake, WakeKind
from koordlet.decision.strategy import Level, Stage
from koordlet.engine.answers import Asked
from koordlet.engine.updates import Updates
from koordlet.hooks.reconcile import reconcile
from koordlet.hooks.reconcile import run as reconcile_after
from koordlet.protocol import keys

_TICK_S = 1.0
_PASS_MS, _ANSWER_MS = 10.0, 2.0
_EVALUATIONS = 1000
_CALM, _PINNED = 6, 2
"""Numbers of a pod without CPUs of its own, and of one with some."""


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    pods, times, seconds = (30, 5, 2) if smoke else (300, 200, 20)
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-hooks-") as directory:
        say(f"{pods} pods without hooks")
        node = Node(_made(directory, "none"), pods, hooks=False)
        without = _ticks(node, times)
        node.stop()
        say(f"{pods} pods with hooks")
        node = Node(_made(directory, "all"), pods)
        try:
            _settle(node)
            owned = Figure("values of hooks in force", len(node.parts.actuator.owned()), "")
            figures = [owned, *_passes(node, times), *_answers(node, times)]
            say("ticks")
            figures += _compared(_ticks(node, times), without)
            say(f"as many answers as possible for {seconds} s")
            return [*figures, *_together(node, seconds)]
        finally:
            node.stop()


def _made(directory: str, name: str) -> Path:
    path = Path(directory) / name
    path.mkdir()
    return path


def _passes(node: Node, times: int) -> list[Figure]:
    hooks, done = node.engine.hooks, reconcile_after(node.engine.hooks, _taken(node))
    found: dict[str, list[float]] = {}

    def measure(name: str, work: Callable[[Snapshot], object]) -> None:
        taken = _taken(node)
        found.setdefault(name, []).append(_ms(work, taken))

    def next_pass(taken: Snapshot) -> None:
        nonlocal done
        done = reconcile_after(hooks, taken, done)

    for number in range(times):
        if number % 10 == 0:
            measure("pass from scratch", lambda taken: reconcile(hooks, taken))
            _annotate(
                node, _PINNED, keys.RESOURCE_STATUS.name, f'{{"cpuset": "{40 + number % 8}"}}'
            )
            measure("pass, shared CPUs changed", next_pass)
        measure("pass, nothing changed", next_pass)
        _annotate(node, _CALM, keys.OOM_SCORE_ADJ.name, str(number))
        measure("pass, one pod changed", next_pass)
    scratch, changed = found["pass from scratch"], found["pass, one pod changed"]
    return [
        _figure(scratch, 0.5, "pass from scratch"),
        _figure(found["pass, shared CPUs changed"], 0.5, "pass, shared CPUs changed"),
        *_both(found["pass, nothing changed"], "pass, nothing changed", _PASS_MS),
        *_both(changed, "pass, one pod changed", _PASS_MS),
        Figure("from scratch / one changed", quantile(scratch, 0.5) / quantile(changed, 0.5), "x"),
    ]


def _pushes() -> Callable[[str, str, Combined], None]:
    """What remembers the answers, to push later what differs from them."""
    updates = Updates()

    def answered(origin: str, container_id: str, combined: Combined) -> None:
        updates.answered(container_id, combined)

    return answered


def _answers(node: Node, times: int) -> list[Figure]:
    """Pods come, as kubelet and the runtime bring them, and go."""
    asked = Asked(node.engine, node.parts.reported, _pushes())
    sandboxes, containers, changes = [], [], []
    for number in range(len(node.pods), len(node.pods) + times):
        pod = node.make(number)
        node.host.deliver()
        early = msgspec.structs.replace(pod, containers=())
        sandboxes.append(_ms(asked.pod, "nri", Stage.RUN_POD_SANDBOX, early))
        containers += _ask_for_containers(asked, pod)
        node.parts.reported["nri"].upsert(pod)
        changes.append(_ms(_change, node))
        asked.pod("nri", Stage.REMOVE_POD_SANDBOX, pod)
        node.host.remove_cgroup(pod.cgroup or "")
        node.host.deliver()
        _change(node)
    return [
        *_both(sandboxes, "answer to RunPodSandbox", _ANSWER_MS),
        *_both(containers, "answer to CreateContainer", _ANSWER_MS),
        *_both(changes, "a pod that came, seen to"),
    ]


def _change(node: Node) -> None:
    node.engine.changed()
    node.engine.tick(Wake(WakeKind.CHANGE))


def _ask_for_containers(asked: Asked, pod: PodFacts) -> list[float]:
    took = []
    for container in pod.containers:
        if not container.is_sandbox:
            new = msgspec.structs.replace(container, id="", cgroup=None)
            took.append(_ms(asked.container, "nri", Stage.CREATE_CONTAINER, pod, new))
    return took


def _ticks(node: Node, times: int) -> list[float]:
    _settle(node)
    took = []
    for _ in range(times):
        node.host.advance(_TICK_S)
        took.append(_ms(node.engine.tick))
    return took


def _compared(ticks: list[float], without: list[float]) -> list[Figure]:
    return [
        *_both(without, "tick without hooks"),
        *_both(ticks, "tick with hooks"),
        Figure("with / without hooks, p50", quantile(ticks, 0.5) / quantile(without, 0.5), "x"),
    ]


def _together(node: Node, seconds: int) -> list[Figure]:
    """One answer after the other on one thread, and a tick each second, as the loop would."""
    asked, level = Asked(node.engine, node.parts.reported, _pushes()), Level.CONTAINER
    stage = Stage.CREATE_CONTAINER
    hooks = sum(level in hook.levels and stage in hook.stages for hook in node.engine.hooks)
    answers: list[float] = []
    late_ms: list[float] = []
    began = due = time.perf_counter()
    while due - began < seconds:
        due += _TICK_S
        for pod in _around(node.pods):
            if time.perf_counter() >= due:
                break
            answers += _ask_for_containers(asked, pod)
        late_ms.append(1000 * (time.perf_counter() - due))
        node.host.advance(_TICK_S)
        node.engine.tick()
    took_s = time.perf_counter() - began
    missed = sum(late >= 1000 * _TICK_S for late in late_ms)
    return [
        Figure(
            "evaluations of hooks a second",
            hooks * len(answers) / took_s,
            "",
            _EVALUATIONS,
            at_most=False,
        ),
        Figure("ticks missed meanwhile", missed, "", 0),
        Figure("latest tick meanwhile", max(late_ms), "ms"),
        *_both(answers, "answer meanwhile", _ANSWER_MS),
    ]


def _around(pods: list[PodFacts]) -> Iterator[PodFacts]:
    while True:
        yield from pods


def _annotate(node: Node, number: int, key: str, text: str) -> None:
    pod = node.pods[number]
    annotations = {**(pod.annotations or {}), key: text}
    node.parts.reported["nri"].upsert(msgspec.structs.replace(pod, annotations=annotations))


def _taken(node: Node) -> Snapshot:
    return node.engine.snapshot(Wake())


def _settle(node: Node) -> None:
    """Until all values are in force."""
    for _ in range(20):
        node.host.advance(_TICK_S)
        node.engine.tick()


def _ms(work: Callable[..., object], *arguments: object) -> float:
    began = time.perf_counter()
    work(*arguments)
    return 1000 * (time.perf_counter() - began)


def _both(took_ms: list[float], name: str, goal_ms: float | None = None) -> list[Figure]:
    return [_figure(took_ms, 0.5, name), _figure(took_ms, 0.99, name, goal_ms)]


def _figure(took_ms: list[float], share: float, name: str, goal_ms: float | None = None) -> Figure:
    return Figure(f"{name}, p{100 * share:.0f}", quantile(took_ms, share), "ms", goal_ms)
