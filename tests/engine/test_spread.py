"""Threads of best-effort work under a whole daemon on the fake kernel."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from koordlet_fakefs.machine import Process

from koordlet.decision.resource import Resource
from koordlet.kernel.proc import spread
from tests.daemon.world import APPLICATIONS, CPU_QOS, CPUS, World

MakeWorld = Callable[..., World]
BODY = CPU_QOS + APPLICATIONS
SPREAD = Resource.CPU_SPREAD
EVERYWHERE = frozenset(range(CPUS))


def _kept(world: World, process: Process) -> list[int]:
    """CPUs of the threads that are kept on one."""
    held = [world.host.thread_cpus(tid) for tid in process.threads]
    return sorted(min(cpus) for cpus in held if len(cpus) == 1)


def _started(world: World) -> tuple[Process, Process]:
    shop, batch = world.application("shop", 1.0), world.application("batch", 2 * CPUS, 2 * CPUS)
    world.start()
    world.run(4)
    return shop, batch


def test_best_effort_is_spread_and_services_are_not_touched(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    shop, batch = _started(world)
    assert _kept(world, batch) == sorted([*range(CPUS), *range(CPUS)])
    assert _kept(world, shop) == []
    texts = [d.why.text for d in world.views.explain("batch", 50)().decisions]
    assert any("each thread is kept on one of" in text for text in texts)


def test_a_pause_lets_them_go_and_a_resume_takes_them_back(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    _, batch = _started(world)
    world.views.pause(("cpu-spread",), (), for_s=None, reason="", by="")
    assert _kept(world, batch) == []
    world.run(3)
    assert _kept(world, batch) == []
    world.views.resume(("cpu-spread",), (), by="")
    world.run(3)
    assert len(_kept(world, batch)) == 2 * CPUS


def test_a_daemon_after_a_kill_knows_whom_it_kept(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    _, batch = _started(world)
    world.stop()
    assert len(_kept(world, batch)) == 2 * CPUS, "they stay while nobody is there"
    off = "[strategies.cpu-spread]\nenable = false\n"
    world.file.write_text(world.file.read_text() + off)
    world.start()
    assert _kept(world, batch) == []


def test_too_many_threads_are_told(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spread, "MOST_THREADS", CPUS)
    world = make_world(BODY)
    _, batch = _started(world)
    assert _kept(world, batch) == []
    assert any("none is kept on one CPU" in text for text in world.texts())


def test_a_refusal_is_told(make_world: MakeWorld) -> None:
    world = make_world(BODY)
    world.host.faults.add("sched_setaffinity*", op="affinity", errno=errno.EPERM, times=None)
    _, batch = _started(world)
    assert _kept(world, batch) == []
    assert any("CAP_SYS_NICE" in text for text in world.texts())
