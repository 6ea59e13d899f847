"""Traffic classes by the whole daemon: on a kernel without, and on the real one's netlink."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from koordlet.actuator.outcome import Outcome
from koordlet.actuator.traffic.writer import Wanted
from koordlet.admin.strategies import StrategyState
from koordlet.decision.plan import Result
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.decision.why import Why
from koordlet.engine.engine import HOOKS_EVERY_S
from koordlet.engine.traffic import CHECK_EVERY_S
from koordlet.kernel.linux import LinuxHost
from tests.daemon.world import APPLICATIONS, World
from tests.kernel.net.pairs import Pair, features, pair

NET_EGRESS = Resource.NET_EGRESS
BODY = """
[alarms]
psi = false
throttled = false
[hooks.network-qos]
enable = {enable}
[daemon]
mode = "{mode}"
[slo.systemStrategy]
totalNetworkBandwidth = "40M"
[slo.resourceQOSStrategy.policies]
netQOSPolicy = "{policy}"
[slo.resourceQOSStrategy.lsClass.networkQOS]
enable = true
egressRequest = 50
ingressRequest = 50
[slo.resourceQOSStrategy.beClass.networkQOS]
enable = true
egressRequest = 30
egressLimit = "20M"
"""


def body(policy: str = "tc", mode: str = "enforce", *, enable: bool = True) -> str:
    return BODY.format(policy=policy, mode=mode, enable=str(enable).lower())


def until(world: World, true: Callable[[], bool]) -> None:
    """Ticks until it is so: the worker takes real time."""
    ends = time.monotonic() + 20
    while not true():
        assert time.monotonic() < ends, "\n".join(world.texts())
        world.run(1.0)
        time.sleep(0.01)


def problems(world: World) -> dict[str, str]:
    return {each.part: each.why for each in world.views.status().problems}


def test_a_host_that_cannot_is_told(make_world: Callable[..., World]) -> None:
    world = make_world(body())
    world.start()
    until(world, lambda: "network-qos" in problems(world))
    assert "Operation not supported" in problems(world)["network-qos"]
    world.reload(body(policy="terway-qos"))
    world.run(12)
    assert not world.parts.traffic.capabilities


def test_nobody_asks_and_nothing_is_tried(make_world: Callable[..., World]) -> None:
    world = make_world(body(policy="terway-qos"))

    def never() -> None:
        raise AssertionError("nobody asked for it")

    world.host.traffic = never
    world.start()
    world.run(130)
    assert "network-qos" not in problems(world)


class Worker:
    """Stands for the kernel, and has done its work when a tick ends."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.world, self.calls = world, 0
        self.wanted: list[tuple[Wanted, bool]] = []
        """(what was wanted, whether it was only to be shown) of each call."""
        self.outcomes: tuple[Outcome, ...] = ()
        closed = SimpleNamespace(close=lambda: None)
        world.host.traffic = lambda: (closed, closed)
        monkeypatch.setattr("koordlet.engine.traffic.apply", self._apply)

    def _apply(
        self, _: object, __: object, wanted: Wanted, ___: object, *, time: float, observe: bool
    ) -> tuple[Outcome, ...]:
        self.calls += 1
        self.wanted.append((wanted, observe))
        return self.outcomes

    def run(self, seconds: float) -> None:
        ends = self.world.host.monotonic() + seconds
        while self.world.host.monotonic() < ends:
            self.world.run(5.0)
            self.world.parts.traffic.close()
            self.world.parts.traffic._pool = None


def test_what_the_kernel_lacked_is_tried_again(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module may have been loaded meanwhile; once all is there, it is not tried any more."""
    world, times = make_world(body()), []

    def probe_traffic() -> tuple[Capability, ...]:
        times.append(world.host.monotonic())
        return (Capability("tc.htb", len(times) > 1, "tried"),)

    monkeypatch.setattr("koordlet.engine.traffic.probe_traffic", probe_traffic)
    monkeypatch.setattr("koordlet.engine.traffic.TRY_AGAIN_S", 1.5 * CHECK_EVERY_S)
    worker = Worker(world, monkeypatch)
    world.start()
    for tries, checks in ((1, 0.1), (1, 1), (2, 1), (2, 2)):
        seconds = checks * CHECK_EVERY_S
        worker.run(seconds)
        assert len(times) == tries


def test_a_unit_that_starts_again_is_marked_at_the_next_pass(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its cgroup has the same name and another inode."""
    world = make_world(body() + APPLICATIONS)
    monkeypatch.setattr("koordlet.engine.traffic.probe_traffic", lambda: ())
    worker = Worker(world, monkeypatch)
    world.host.make_cgroup("batch")
    world.start()
    worker.run(5)
    before = worker.calls
    worker.run(HOOKS_EVERY_S + 1)
    assert worker.calls == before
    world.host.remove_cgroup("batch")
    world.host.make_cgroup("batch")
    worker.run(HOOKS_EVERY_S + 1)
    assert worker.calls > before


def test_a_link_that_nobody_may_divide_is_not_called_divided(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(body())
    monkeypatch.setattr("koordlet.engine.traffic.probe_traffic", lambda: ())
    worker = Worker(world, monkeypatch)
    world.start()

    def state(*results: Result) -> tuple[StrategyState, str, int]:
        why, text = Why("test", ""), "a root qdisc of somebody else"
        worker.outcomes = tuple(
            Outcome(1.0, "network-qos", dev, NET_EGRESS, dev, "", None, None, each, why, text)
            for dev, each in zip(("v0", "v1"), results, strict=False)
        )
        worker.run(CHECK_EVERY_S + 5)
        row = next(r for r in world.views.strategies("")().strategies if r.name == "network-qos")
        return row.state, row.why, row.settings

    assert state(Result.REFUSED) == (StrategyState.IDLE, "a root qdisc of somebody else", 0)
    assert state(Result.REFUSED, Result.WRITTEN)[0] is StrategyState.ACTIVE
    assert state(Result.REFUSED)[0] is StrategyState.IDLE


def test_what_the_kernel_refused_is_tried_again_soon_and_then_less_often(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then rates of before and of now stand side by side."""
    world = make_world(body())
    monkeypatch.setattr("koordlet.engine.traffic.probe_traffic", lambda: ())
    worker = Worker(world, monkeypatch)
    world.start()

    def calls(result: Result, seconds: float) -> int:
        why = Why("test", "")
        worker.outcomes = (
            Outcome(1.0, "x", "v0", NET_EGRESS, "v0", "", None, None, result, why, "EBUSY"),
        )
        before = worker.calls
        worker.run(seconds)
        return worker.calls - before

    calls(Result.WRITTEN, CHECK_EVERY_S)
    assert calls(Result.REFUSED, 3 * CHECK_EVERY_S) in (6, 7)  # after 2, 4, 8, 16 and 32 s
    assert calls(Result.REFUSED, 10 * CHECK_EVERY_S) in (10, 11)
    assert calls(Result.WRITTEN, 10 * CHECK_EVERY_S) in (10, 11)


def test_a_pause_takes_it_all_away_and_only_shows_it(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(body() + APPLICATIONS)
    monkeypatch.setattr("koordlet.engine.traffic.probe_traffic", lambda: ())
    taken: list[bool] = []
    monkeypatch.setattr(
        "koordlet.engine.traffic.restore_devices",
        lambda *_, dry_run=False: taken.append(dry_run) or (),
    )
    worker = Worker(world, monkeypatch)
    for name in ("shop", "batch"):
        world.host.make_cgroup(name)
    world.start()
    worker.run(5)

    def members() -> list[str]:
        plan = worker.wanted[-1][0].plan
        return [each.cgroup for each in plan.members] if plan is not None else []

    assert members() == ["batch", "shop"] and not worker.wanted[-1][1]
    how = {"for_s": None, "reason": "", "by": "root"}
    world.views.pause((), ("batch",), **how)
    worker.run(5)
    assert members() == ["shop"] and not worker.wanted[-1][1] and not taken
    for owners in (("network-qos",), ()):
        world.views.pause(owners, (), **how)
        assert taken.pop() is False
        worker.run(5)
        assert members() == ["batch", "shop"] and worker.wanted[-1][1]
        world.views.resume((), (), by="root")
        worker.run(5)
        assert members() == ["batch", "shop"] and not worker.wanted[-1][1]


def test_what_an_earlier_run_divided_goes_at_a_start_that_is_paused(
    make_world: Callable[..., World], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(body())
    monkeypatch.setattr("koordlet.engine.traffic.probe_traffic", lambda: ())
    worker = Worker(world, monkeypatch)
    world.start()
    world.views.pause(("network-qos",), (), for_s=None, reason="", by="root")
    worker.run(5)
    world.stop()
    boot = world.host.read("/proc/sys/kernel/random/boot_id").decode().strip()
    (world.directory / "state" / "devices").write_text(
        f'{{"boot_id": "{boot}", "devices": [{{"device": "v0", "index": 7, "qdisc": "mq", '
        '"arrivals": "", "since": 1.0}]}'
    )
    worker.wanted.clear()
    world.start()
    worker.run(5)
    assert [(wanted.plan, observe) for wanted, observe in worker.wanted[:1]] == [(None, False)]


@pytest.fixture
def net() -> Iterator[Pair]:
    with pair() as made:
        features(made.node, "tc.htb", "tc.ifb", "nft.priority")
        yield made


def shaped(world: World) -> list[str]:
    return [text for text in world.texts() if "net." in text.partition(":")[0]]


@pytest.mark.kernel
def test_from_the_slo_to_the_kernel_and_back(make_world: Callable[..., World], net: Pair) -> None:
    """The daemon runs in the network namespace of the test."""

    def start(text: str) -> World:
        world = make_world(text)
        world.host.traffic = LinuxHost().traffic
        world.start()
        return world

    def inside(work: Callable[[], Any]) -> Any:
        return net.node.run(work)

    def classes() -> list[str]:
        return net.node.shell(["tc", "class", "show", "dev", "v0"]).splitlines()

    before = net.node.shell(["tc", "qdisc"])
    world = inside(lambda: start(body(mode="observe")))
    inside(lambda: until(world, lambda: len(shaped(world)) == 3))
    assert all("(would-write)" in text for text in shaped(world))
    assert net.node.shell(["tc", "qdisc"]) == before

    inside(lambda: world.reload(body()))
    inside(lambda: until(world, lambda: len(shaped(world)) == 6))
    assert all("(written)" in text for text in shaped(world)[3:])
    assert "class htb 6b64:4 parent 6b64:c prio 3 rate 12Mbit ceil 20Mbit" in "\n".join(classes())
    told = [each.resource for each in world.views.explain("v0", 10)().decisions]
    assert sorted(set(told)) == ["net.egress", "net.ingress"]
    known = {each.feature for each in world.views.status().capabilities if each.supported}
    assert {"tc.htb", "tc.ifb", "nft.priority"} <= known
    inside(lambda: world.run(125))
    assert len(shaped(world)) == 6, "a steady state is told once"

    shown = inside(lambda: world.views.restore(dry_run=True))
    assert {each.result for each in shown.values if each.cgroup == "v0"} == {"would-restore"}
    inside(lambda: world.reload(body(enable=False)))
    inside(lambda: until(world, lambda: not classes()))
    inside(lambda: until(world, lambda: "(restored)" in shaped(world)[-1]))
    assert net.node.shell(["tc", "qdisc"]) == before

    inside(lambda: world.reload(body()))
    inside(lambda: until(world, lambda: bool(classes())))
    back = inside(lambda: world.views.restore(dry_run=False))
    assert back.complete
    assert ("v0", "noqueue", "restored") in [
        (each.cgroup, each.original, each.result) for each in back.values
    ]
    assert net.node.shell(["tc", "qdisc"]) == before
    inside(lambda: world.run(70))
    assert net.node.shell(["tc", "qdisc"]) == before, "nothing is written after a restore"
