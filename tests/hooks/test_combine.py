"""All hooks for one subject: order, overrides, stages, failures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from koordlet.decision.answer import Wanted
from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import DeviceNode
from koordlet.decision.strategy import (
    Adjustment,
    Device,
    EnvVar,
    Hook,
    Level,
    Mount,
    ResctrlGroup,
    Stage,
    Subject,
)
from koordlet.decision.why import Why
from koordlet.hooks.combine import check, combine
from koordlet.protocol import keys
from tests.hooks.build import made
from tests.qos.build import capabilities, node, pod, snapshot

WHY = Why("t", "the test wants it")
SHARES = Resource.CPU_SHARES
QUOTA = Resource.CPU_QUOTA_US


def setting(name: str, resource: Resource, value: int, **fields) -> Hook:
    def evaluate(_subject: Subject, _snapshot) -> Adjustment:
        return Adjustment(((resource, value, WHY),), (Why(f"{name}.note", "told"),))

    return made(name, (Level.POD, Level.CONTAINER), evaluate, writes=(resource,), **fields)


FIRST = setting("first", SHARES, 10, stages=(Stage.RUN_POD_SANDBOX,))
SECOND = setting("second", QUOTA, 1000)


def ask(*hooks: Hook, stage: Stage | None = None, level: Level = Level.POD, **fields):
    found = pod("p", namespace="ns", name="web", **fields)
    subject = Subject(level, found.cgroup, pod=found)
    return combine(hooks, subject, snapshot(node(4)), stage)


def test_each_hook_owns_what_it_wants() -> None:
    found = ask(FIRST, SECOND)
    assert found.settings == (
        Wanted("first", SHARES, 10, WHY),
        Wanted("second", QUOTA, 1000, WHY),
    )
    assert [(owner, note.rule) for owner, note in found.notes] == [
        ("first", "first.note"),
        ("second", "second.note"),
    ]
    assert not found.is_empty
    assert ask().is_empty


def test_of_two_values_the_later_hooks_counts() -> None:
    over = setting("over", SHARES, 20, overrides=("first",))
    check((FIRST, over))
    assert ask(FIRST, over).settings == (Wanted("over", SHARES, 20, WHY),)
    assert ask(FIRST, replace(over, levels=(Level.CONTAINER,))).settings == (
        Wanted("first", SHARES, 10, WHY),
    )


def test_only_hooks_of_the_level_and_the_stage_are_asked() -> None:
    assert [w.owner for w in ask(FIRST, SECOND, stage=Stage.RUN_POD_SANDBOX).settings] == ["first"]
    assert ask(FIRST, SECOND, stage=Stage.CREATE_CONTAINER).settings == ()
    assert ask(FIRST, SECOND, level=Level.SANDBOX).is_empty


def test_a_hook_without_any_of_its_needs_is_not_asked() -> None:
    needy = replace(FIRST, needs=("cpu.magic", "cpu.shares"))
    subject = Subject(Level.POD, "p", pod=pod("p"))
    for supported, count in ((True, 1), (False, 0)):
        machine = node(4, capabilities=capabilities(cpu_shares=supported))
        assert len(combine((needy,), subject, snapshot(machine)).settings) == count


def test_what_only_a_runtime_can_give_is_merged_by_its_name() -> None:
    def gives(value: str) -> Hook:
        node_ = DeviceNode("/dev/x", 1, 2)
        adjustment = Adjustment(
            env=(EnvVar("A", value, WHY),),
            mounts=(Mount("/src", "/dst", WHY, (value,)),),
            devices=(Device(node_, WHY),),
            groups=(ResctrlGroup("g", value, WHY),),
        )
        return made(value, (Level.POD,), lambda _subject, _snapshot: adjustment)

    found = ask(gives("1"), gives("2"))
    assert [each.value for each in found.env] == ["2"]
    assert [each.options for each in found.mounts] == [("2",)]
    assert len(found.devices) == 1
    assert [(owner, group.schemata) for owner, group in found.groups] == [("1", "1"), ("2", "2")]


def test_a_refused_annotation_costs_its_hook_alone_and_is_told() -> None:
    def reading(subject: Subject, _snapshot) -> Adjustment:
        keys.CPU_QOS.read(subject.pod.annotations)
        raise AssertionError("must not get here")

    hook = made("reader", (Level.POD,), reading)
    found = ask(FIRST, hook, SECOND, annotations={keys.CPU_QOS.name: '{"groupIdentity":9}'})
    assert [wanted.owner for wanted in found.settings] == ["first", "second"]
    assert found.failed == ()
    ((owner, text),) = found.refused
    assert owner == "reader"
    assert "$.groupIdentity" in text
    (note,) = (note for owner, note in found.notes if owner == "reader")
    assert note.rule == "reader.bad-annotation"
    assert "pod ns/web" in note.text
    assert keys.CPU_QOS.name in note.text


def test_a_broken_hook_costs_itself_alone_and_is_told() -> None:
    def broken(_subject: Subject, _snapshot) -> Adjustment:
        raise ZeroDivisionError("by zero")

    found = ask(FIRST, made("broken", (Level.POD,), broken), SECOND)
    assert [wanted.owner for wanted in found.settings] == ["first", "second"]
    assert found.failed == (("broken", "ZeroDivisionError: by zero"),)
    assert ("broken", Why("broken.failed", "ZeroDivisionError: by zero")) in found.notes


def test_hooks_that_fit_together_pass() -> None:
    check(())
    check((FIRST, SECOND))
    check((FIRST, replace(FIRST, name="other", levels=(Level.SANDBOX,))))
    check((FIRST, replace(FIRST, name="other", levels=())))
    check((FIRST, setting("over", SHARES, 1, overrides=("first", "switched-off"))))


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ((FIRST, FIRST), "two hooks are named first"),
        (
            (FIRST, setting("other", SHARES, 1)),
            r"hooks first and other both set cpu\.shares at level pod; .* other must declare",
        ),
        (
            (FIRST, replace(FIRST, name="b", overrides=("first",)), setting("c", SHARES, 1)),
            "hooks first and c both set",
        ),
        (
            (setting("over", SHARES, 1, overrides=("first",)), FIRST),
            "over overrides first, which must come before it",
        ),
        ((setting("own", SHARES, 1, overrides=("own",)),), "own overrides own"),
    ],
)
def test_hooks_that_contradict_each_other_are_refused(hooks, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check(hooks)


@pytest.mark.parametrize(
    ("handler", "guest"), [("kata-qemu", True), ("kata", True), ("runc", False)]
)
def test_containers_in_a_guest_get_values_from_the_runtime_alone(handler: str, guest: bool) -> None:
    hook = replace(SECOND, stages=(Stage.CREATE_CONTAINER,))
    inside = ask(hook, level=Level.CONTAINER, runtime_handler=handler)
    assert bool(inside.settings) is not guest
    assert [note.rule for _, note in inside.notes] == (
        ["second.in-guest", "second.note"] if guest else ["second.note"]
    )
    created = ask(
        hook, level=Level.CONTAINER, stage=Stage.CREATE_CONTAINER, runtime_handler=handler
    )
    assert [wanted.value for wanted in created.settings] == [1000]
    assert ask(hook, runtime_handler=handler).settings, "the machine itself is in the pod's cgroup"
