"""The description of hooks says what combining and reconciling them would do."""

from __future__ import annotations

from dataclasses import replace

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Capability, DeviceNode, Snapshot
from koordlet.decision.strategy import (
    Action,
    Adjustment,
    Device,
    EnvVar,
    Hook,
    Level,
    Mount,
    Need,
    ResctrlGroup,
    Stage,
    Subject,
)
from koordlet.decision.why import Why
from koordlet.hooks import HOOKS, describe
from koordlet.protocol import keys
from tests.hooks.build import made
from tests.qos.build import app, node, pod, snapshot

WHY = Why("t", "the test wants it")
QUOTA = Resource.CPU_QUOTA_US
LEVELS = (Level.POD, Level.CONTAINER)
STAGES = (Stage.RUN_POD_SANDBOX, Stage.CREATE_CONTAINER, Stage.UPDATE_CONTAINER)


def hook(name: str, found: Adjustment, **fields: object) -> Hook:
    common = {"writes": (QUOTA,), "stages": STAGES}
    one = made(name, LEVELS, lambda subject, snapshot: found, **common)
    return replace(one, **fields)  # type: ignore[arg-type]


SCALED = hook("scaled", Adjustment(((QUOTA, 5000, WHY),)))
UNSET = hook("unset", Adjustment(((QUOTA, -1, WHY),)), overrides=("scaled",))
POD = pod("p", containers=("c",), name="web", namespace="shop")


def there(*features: str) -> dict[str, Capability]:
    return {feature: Capability(feature, True, "tried") for feature in features}


def act(*found: Hook, taken: Snapshot | None = None) -> tuple[Action, ...]:
    return describe.actions(found, taken or snapshot(node(4), pods=(POD,)), describe.of_pod("p"))


def test_a_value_that_is_overridden_is_shown_with_the_winner() -> None:
    shown = [(a.level, a.hook, a.value, a.overridden_by) for a in act(SCALED, UNSET)]
    assert shown == [
        (Level.POD, "scaled", "5000", "unset"),
        (Level.POD, "unset", "-1", ""),
        (Level.CONTAINER, "scaled", "5000", "unset"),
        (Level.CONTAINER, "unset", "-1", ""),
    ]


def test_stages_are_those_at_which_a_runtime_asks_about_the_level() -> None:
    assert [action.stages for action in act(SCALED)] == [
        (Stage.RUN_POD_SANDBOX,),
        (Stage.CREATE_CONTAINER, Stage.UPDATE_CONTAINER),
    ]


def test_where_a_value_goes_on_the_wire() -> None:
    first = act(SCALED)[0]
    assert (first.name, first.cri, first.nri) == (QUOTA, "cpu_quota", "resources.cpu.quota")


def test_everything_a_hook_can_want_is_shown() -> None:
    full = Adjustment(
        settings=((Resource.RESCTRL_GROUP, "g", WHY),),
        notes=(WHY,),
        env=(EnvVar("A", "1", WHY),),
        mounts=(Mount("/lib/a", "/lib/b", WHY),),
        devices=(Device(DeviceNode("/dev/x", 10, 2), WHY),),
        groups=(ResctrlGroup("g", "L3:0=f\n", WHY),),
    )
    wants = hook("all", full, levels=(Level.CONTAINER,), writes=(Resource.RESCTRL_GROUP,))
    assert [(a.kind, a.name, a.value) for a in act(wants)] == [
        ("group", "g", "L3:0=f\n"),
        ("setting", Resource.RESCTRL_GROUP, "g"),
        ("env", "A", "1"),
        ("mount", "/lib/b", "/lib/a"),
        ("device", "/dev/x", "10:2"),
        ("note", "", ""),
    ]


def test_a_hook_that_raises_is_shown_as_failed_and_others_go_on() -> None:
    def broken(subject: Subject, taken: Snapshot) -> Adjustment:
        raise ZeroDivisionError("by nothing")

    kinds = [
        (a.hook, a.kind)
        for a in act(
            replace(
                SCALED, name="bad", function=lambda subject, snapshot, _: broken(subject, snapshot)
            ),
            SCALED,
        )
    ]
    assert kinds == [("bad", "failed"), ("scaled", "setting")] * 2


def test_only_the_one_asked_about() -> None:
    taken = snapshot(node(4), pods=(POD,), apps=(app("batch", "BE"),))
    everywhere = replace(SCALED, levels=tuple(Level))
    assert {a.cgroup for a in act(everywhere, taken=taken)} == {POD.cgroup, f"{POD.cgroup}/c"}
    found = describe.actions((everywhere,), taken, describe.of_application("batch"))
    assert [a.cgroup for a in found] == ["batch"]
    assert describe.actions((everywhere,), taken, describe.of_pod("nobody")) == ()


def test_the_table() -> None:
    needy = replace(SCALED, needs=("a", "b"), without="nothing is scaled")
    rows = describe.table((needy, UNSET), node(4, capabilities=there("b")), (UNSET,))
    assert [(row.name, row.enabled, row.available) for row in rows] == [
        ("scaled", False, True),
        ("unset", True, True),
    ]
    assert [(need.feature, need.available) for need in rows[0].needs] == [("a", False), ("b", True)]
    (row,) = describe.table((needy,), node(4, capabilities={}), ())
    assert not row.available
    assert row.needs[0] == Need("a", False, "not tried")
    assert row.without == "nothing is scaled"


def test_a_hook_whose_needs_are_missing_does_nothing() -> None:
    assert act(replace(SCALED, needs=("a",))) == ()


def test_every_hook_of_ours_can_be_described() -> None:
    bad = {keys.CPU_QOS.name: "no JSON", keys.RESOURCE_STATUS.name: "{"}
    annotated = pod("p", containers=("c",), annotations=bad)
    every = tuple(HOOKS.values())
    able = there(*(need for each in every for need in each.needs))
    taken = snapshot(node(4, capabilities=able), pods=(annotated,))
    for action in act(*every, taken=taken):
        assert action.why.text
    assert [row.name for row in describe.table(every, taken.node, every)] == [h.name for h in every]


def test_why_nothing_is_set_for_containers_in_a_guest() -> None:
    inside = pod("p", containers=("c",), name="web", namespace="shop", runtime_handler="kata-fc")
    taken = snapshot(node(4), pods=(inside,))
    shown = act(replace(SCALED, stages=(Stage.RUN_POD_SANDBOX,)), taken=taken)
    assert [(a.level, a.kind) for a in shown] == [(Level.POD, "setting"), (Level.CONTAINER, "note")]
    assert shown[1].why.rule == "scaled.in-guest"
    assert "pod shop/web" in shown[1].why.text and "kata-fc" in shown[1].why.text
    # What the runtime gets when it asks is shown all the same.
    asked = [(a.level, a.hook, a.kind, a.overridden_by) for a in act(SCALED, UNSET, taken=taken)]
    assert asked[2:] == [
        (Level.CONTAINER, "scaled", "setting", "unset"),
        (Level.CONTAINER, "scaled", "note", ""),
        (Level.CONTAINER, "unset", "setting", ""),
        (Level.CONTAINER, "unset", "note", ""),
    ]
