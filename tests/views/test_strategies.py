"""What `koordlet strategies` and the metrics page say of each strategy, in each of its states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from koordlet.admin.daemon import NotFoundError
from koordlet.admin.strategies import StrategyRow, StrategyState
from koordlet.config.load import load
from koordlet.config.origins import leaves
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability
from koordlet.qos import STRATEGIES
from koordlet.report.metrics import STRATEGY_STATE
from koordlet.views.publish import publish
from koordlet.views.standings import PARTS
from koordlet.views.switches import matches
from tests.daemon.everything import Fault, furnish, start
from tests.daemon.world import APPLICATIONS, CPUS, NO_ALARMS, World, suppress

MakeWorld = Callable[..., World]
S = StrategyState


def row(world: World, name: str) -> StrategyRow:
    """The same at length and among all others."""
    (found,) = world.views.strategies(name)().strategies
    (short,) = [each for each in world.views.strategies("")().strategies if each.name == name]
    assert (short.state, short.why, short.remedy) == (found.state, found.why, found.remedy)
    return found


def test_every_strategy_is_listed_once_with_its_keys(make_world: MakeWorld) -> None:
    names = [about.name for about in PARTS]
    assert len(set(names)) == len(names)
    assert set(names) == {*STRATEGIES, "cpu-qos", "core-sched", "network-qos", "terway-qos"}
    world = furnish(make_world)
    keys = {leaf.path for leaf in leaves(load(str(world.file)).slo, "slo")}
    for about in PARTS:
        for pattern in about.arguments:
            some = replace(about, arguments=(pattern,))
            assert any(matches(some, key) for key in keys), pattern
        for switch in (each for group in about.switches for each in group):
            assert switch.key in keys


def test_on_a_machine_with_something_for_everybody(make_world: MakeWorld) -> None:
    world = furnish(make_world)
    start(world)
    world.run(15)
    states = {each.name: each.state for each in world.views.strategies("")().strategies}
    off = {"core-sched", "terway-qos"}
    assert {name for name, state in states.items() if state is S.OFF} == off
    # The fake machine has no netlink, which a thread finds out at some time.
    assert states.pop("network-qos") in {S.ACTIVE, S.FAILED}
    odd = {"cpu-means": S.IDLE, "memory-evict": S.IDLE, "interference": S.IDLE}
    assert all(states[name] is odd.get(name, S.ACTIVE) for name in states.keys() - off)
    burst = row(world, "cpu-burst")
    assert burst.settings == burst.changed == 4
    assert burst.last_decision is not None
    assert (burst.last_decision.cgroup, burst.last_decision.resource) == (
        "shop",
        "cpu.cfs_quota_us",
    )
    assert burst.last_decision.result == "written"
    assert "is throttled and the shared CPUs are idle" in burst.last_decision.why.text
    assert burst.runs > 10 and burst.failures == 0
    assert burst.since is not None and burst.since < world.host.time() - 5
    arguments = {each.key: (each.value, each.origin) for each in burst.arguments}
    assert arguments["strategies.cpu-burst.enable"] == ("true", "default")
    assert arguments["slo.cpuBurstStrategy.policy"][0] == '"auto"'
    assert arguments["slo.cpuBurstStrategy.policy"][1].startswith("koordlet.toml:")
    publish(world.engine, world.views)
    shown = world.parts.metrics.scalars[STRATEGY_STATE]
    assert shown.items() >= {(name, state.value): 1.0 for name, state in states.items()}.items()


def furnished(make_world: MakeWorld, body: str) -> World:
    world = make_world(body + NO_ALARMS + APPLICATIONS)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    return world


@pytest.mark.parametrize(
    ("body", "name", "why", "remedy"),
    [
        (
            suppress() + "[strategies.cpu-suppress]\nenable = false\n",
            "cpu-suppress",
            "strategies.cpu-suppress.enable is false (koordlet.toml:",
            "set strategies.cpu-suppress.enable = true",
        ),
        (
            "[hooks.cpu-qos]\nenable = false\n",
            "cpu-qos",
            "hooks.cpu-qos.enable is false (koordlet.toml:",
            "set hooks.cpu-qos.enable = true",
        ),
        (
            "",
            "memory-evict",
            "slo.resourceUsedThresholdWithBE.enable is false (default)",
            "set slo.resourceUsedThresholdWithBE.enable = true",
        ),
        (
            suppress(),
            "cpu-evict",
            "slo.resourceUsedThresholdWithBE.cpuEvictThresholdPercent is not set, nor is any of",
            "set one of them, such as slo.resourceUsedThresholdWithBE.cpuEvictThresholdPercent",
        ),
        (
            "",
            "core-sched",
            'slo.resourceQOSStrategy.policies.cpuPolicy is "groupIdentity" (default)',
            'set slo.resourceQOSStrategy.policies.cpuPolicy = "coreSched"',
        ),
    ],
)
def test_off_names_the_key(
    make_world: MakeWorld, body: str, name: str, why: str, remedy: str
) -> None:
    world = furnished(make_world, body)
    world.start()
    world.run(2)
    found = row(world, name)
    assert found.state is S.OFF
    assert found.why.startswith(why)
    assert found.remedy.startswith(remedy)
    assert found.settings == 0
    assert found.since is not None


def test_since_is_when_the_state_changed(make_world: MakeWorld) -> None:
    world = furnished(make_world, suppress())
    world.start()
    world.run(5)
    assert row(world, "cpu-suppress").state is S.ACTIVE
    world.reload(NO_ALARMS + APPLICATIONS)
    world.run(1)
    changed = world.host.time()
    world.run(5)
    found = row(world, "cpu-suppress")
    assert found.state is S.OFF
    assert found.since == pytest.approx(changed, abs=1.1)


def test_a_kernel_without_says_so_with_the_remedy(make_world: MakeWorld) -> None:
    body = "[slo.resourceQOSStrategy.beClass.resctrlQOS]\nenable = true\n"
    world = furnished(make_world, body)
    world.start()
    lacking = [
        Capability(name, False, "not mounted", "no control of caches", "mount it")
        for name in ("resctrl.l3", "resctrl.mb")
    ]
    world.engine.set_capabilities([*world.parts.capabilities.values(), *lacking])
    world.run(2)
    found = row(world, "resctrl-qos")
    assert found.state is S.UNSUPPORTED
    assert "resctrl.l3: not mounted" in found.why
    assert found.remedy == "mount it"
    assert [each.feature for each in found.lacks] == ["resctrl.l3", "resctrl.mb"]


def test_what_is_wanted_in_vain_is_not_active(make_world: MakeWorld) -> None:
    body = """
[slo.resourceQOSStrategy.beClass.blkioQOS]
enable = true
[[slo.resourceQOSStrategy.beClass.blkioQOS.blocks]]
name = "vda"
type = "device"
ioCfg = {readBPS = 1000}
"""
    world = furnished(make_world, body)
    world.start()
    world.run(2)
    assert row(world, "blkio-qos").state is S.ACTIVE
    lacking = [Capability(name, False, "no blkio") for name in STRATEGIES["blkio-qos"].needs]
    world.engine.set_capabilities([*world.parts.capabilities.values(), *lacking])
    world.run(2)
    found = row(world, "blkio-qos")
    assert found.settings > 0
    assert found.state is S.UNSUPPORTED
    assert "blkio.throttle.read_bps_device: no blkio" in found.why


def test_observe_mode_says_what_it_would_do(make_world: MakeWorld) -> None:
    world = furnished(make_world, suppress() + '[daemon]\nmode = "observe"\n')
    world.start()
    world.run(5)
    found = row(world, "cpu-suppress")
    assert (found.state, found.changed) == (S.OBSERVING, 0)
    assert found.settings > 0
    assert found.last_decision is not None
    assert found.last_decision.result == "would-write"
    assert found.remedy == 'set daemon.mode = "enforce"'


def test_waiting_names_what_is_missing(make_world: MakeWorld) -> None:
    world = furnished(make_world, suppress())
    world.host.faults.add("/proc/stat", op="read", times=None)
    world.start()
    world.run(5)
    found = row(world, "cpu-suppress")
    assert found.state is S.WAITING
    assert "no sample of node_cpu_usage" in found.why


def test_idle_says_why(make_world: MakeWorld) -> None:
    world = make_world(suppress() + NO_ALARMS)
    world.start()
    world.run(3)
    found = row(world, "cpu-suppress")
    assert found.state is S.IDLE
    assert "no best-effort cgroup on this node" in found.why


def test_memory_qos_of_the_system_class_alone_is_not_off(make_world: MakeWorld) -> None:
    world = make_world("[slo.resourceQOSStrategy.systemClass.memoryQOS]\nenable = true\n")
    world.start()
    world.run(2)
    assert row(world, "memory-qos").state is S.IDLE


@pytest.mark.parametrize("name", ["cpu-suppress", "cpu-qos"])
def test_failed_names_the_exception(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fault = Fault(monkeypatch, name)
    fault.on = True
    world = furnish(make_world)
    start(world)
    world.run(12)
    found = row(world, name)
    assert found.state is S.FAILED
    assert found.why.startswith(f"ZeroDivisionError: injected into {name}")
    assert found.failures > 0
    fault.on = False
    world.run(12)
    assert row(world, name).state is S.ACTIVE


def test_after_a_restart_the_log_tells_of_the_last_decision(make_world: MakeWorld) -> None:
    world = furnished(make_world, "[slo.systemStrategy]\nwatermarkScaleFactor = 150\n")
    world.start()
    world.run(2)
    world.stop()
    world.start()
    world.run(2)
    (short,) = [s for s in world.views.strategies("")().strategies if s.name == "system-knobs"]
    assert short.last_decision is None
    found = row(world, "system-knobs").last_decision
    assert found is not None
    assert (found.resource, found.wanted) == (Resource.SYSCTL_WATERMARK_SCALE_FACTOR, 150)


def test_an_unknown_name_is_answered_with_those_there_are(make_world: MakeWorld) -> None:
    world = furnished(make_world, "")
    world.start()
    with pytest.raises(
        NotFoundError, match=r"'nobody' is no strategy; there are: cpu-means, cpu-suppress"
    ):
        world.views.strategies("nobody")()


def test_json_of_the_view_has_no_surprises(make_world: MakeWorld) -> None:
    """What the wire cannot carry would break the answer about all."""
    from koordlet.admin import wire
    from koordlet.admin.pb import admin_pb2 as pb
    from koordlet.admin.strategies import StrategiesView

    world = furnish(make_world)
    start(world)
    world.run(3)
    view: Any = world.views.strategies("")()
    message = wire.to_message(pb.StrategiesView(), view)
    assert wire.from_message(message, StrategiesView) == view
