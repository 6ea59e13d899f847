"""Core-scheduling groups: docs/reference/hooks.md 2.5."""

from __future__ import annotations

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Level, Subject
from koordlet.hooks import cpu_qos
from koordlet.hooks.combine import check, combine
from koordlet.hooks.core_sched import HOOK, reference_name
from koordlet.hooks.cpu_qos import CpuQosOptions
from koordlet.protocol.slo import CPUQOS
from tests.hooks.build import ALL, ON, container_of, slo, supports
from tests.qos.build import app, node, pod, snapshot

GROUP = "koordinator.sh/core-sched-group-id"
POLICY = "koordinator.sh/core-sched-policy"
MAINLINE = ("core-sched",)
EVERY = slo("coreSched", lsr=ON, ls=ON, be=ON)
QUIET = CPUQOS(enable=True, core_expeller=False)


def asked(found, spec=EVERY, level: Level = Level.CONTAINER, features=MAINLINE):
    subject = container_of(found, level=level) if level is not Level.NODE else Subject(level, "")
    return combine((HOOK,), subject, snapshot(node(4, capabilities=supports(*features)), spec=spec))


def asked_of(application, *pods):
    subject = Subject(Level.APPLICATION, application.cgroup, application=application)
    machine = node(4, capabilities=supports(*MAINLINE))
    found = snapshot(machine, pods=pods, apps=(application,), spec=EVERY)
    return combine((HOOK,), subject, found)


def group(combined) -> str | None:
    found = [s.value for s in combined.settings if s.resource is Resource.CORE_SCHED_GROUP]
    return found[0] if found else None


@pytest.mark.parametrize(
    ("qos", "kube", "labels", "expected"),
    [
        ("LS", "Burstable", {GROUP: "web"}, "web-expeller"),
        ("LSR", "Guaranteed", {GROUP: "web"}, "web-expeller"),
        ("LSE", "Guaranteed", {}, "-expeller"),
        ("BE", "BestEffort", {GROUP: "batch"}, "batch"),
        ("BE", "BestEffort", {}, "-"),
        ("BE", "BestEffort", {GROUP: ""}, "-"),
        (None, "Guaranteed", {}, "-expeller"),
        (None, "BestEffort", {}, "-"),
        ("LS", "Burstable", {POLICY: "exclusive", GROUP: "web"}, "pod/p-expeller"),
        ("BE", "BestEffort", {POLICY: "exclusive"}, "pod/p"),
        ("LS", "Burstable", {POLICY: ""}, "-expeller"),
        ("LS", "Burstable", {POLICY: "none", GROUP: "web"}, None),
        ("SYSTEM", "Burstable", {GROUP: "web"}, None),
    ],
)
@pytest.mark.parametrize("level", [Level.CONTAINER, Level.SANDBOX])
def test_the_group_of_a_pod(qos, kube, labels, expected, level) -> None:
    assert group(asked(pod("p", qos, kube, labels=labels), level=level)) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (slo("coreSched", ls=QUIET), "web"),
        (slo("coreSched", be=ON), None),
        (slo("coreSched"), None),
        (slo("groupIdentity", ls=ON), None),
        (ALL, None),
    ],
)
def test_only_enabled_classes_under_the_policy(spec, expected) -> None:
    assert group(asked(pod("p", "LS", labels={GROUP: "web"}), spec)) == expected


@pytest.mark.parametrize(
    ("qos", "expected"),
    [("LSE", "-expeller"), ("LS", "-expeller"), ("BE", "-"), ("SYSTEM", None), (None, None)],
)
def test_an_application_is_with_what_has_no_label(qos: str | None, expected: str | None) -> None:
    assert group(asked_of(app("a", qos))) == expected


def test_an_application_that_holds_pods_leaves_the_cookies_to_them() -> None:
    inside = pod("p", "BE", "BestEffort")
    outer = app("a", "LS", inside.cgroup.rpartition("/")[0])
    combined = asked_of(outer, inside)
    assert group(combined) is None
    assert [note.rule for _, note in combined.notes] == ["core-sched.holds-pods"]
    assert group(asked_of(app("a", "LS", f"{inside.cgroup}x"), inside)) == "-expeller"


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (ALL, "policies.cpuPolicy is groupIdentity: koordlet gives no cookies"),
        (slo("coreSched"), "no class of resourceQOSStrategy has cpuQOS enabled"),
    ],
)
def test_why_it_is_off_is_said_once_for_the_node(spec, says) -> None:
    ((_, note),) = asked(None, spec, Level.NODE).notes
    assert note.rule == "core-sched.off" and says in note.text
    assert not asked(pod("p"), spec).notes


@pytest.mark.parametrize(
    ("group", "name"),
    [("-", ""), ("-expeller", "-expeller"), ("web", "web"), ("pod/u-expeller", "u-expeller")],
)
def test_names_of_the_reference(group: str, name: str) -> None:
    assert reference_name(group) == name


def test_an_unknown_policy_is_told_and_the_label_counts() -> None:
    combined = asked(pod("p", "BE", "BestEffort", labels={POLICY: "alone", GROUP: "g"}))
    assert group(combined) == "g"
    assert [note.rule for _, note in combined.notes] == ["core-sched.bad-label"]


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (MAINLINE, {}),
        (
            ("kernel.sched_core", "kernel.sched_group_identity_enabled"),
            {Resource.SYSCTL_SCHED_CORE: 1, Resource.SYSCTL_GROUP_IDENTITY: 0},
        ),
        (("kernel.sched_core",), {Resource.SYSCTL_SCHED_CORE: 1}),
    ],
)
def test_switches_of_vendor_kernels(features, expected) -> None:
    combined = asked(None, level=Level.NODE, features=features)
    assert {s.resource: s.value for s in combined.settings} == expected
    assert asked(None, ALL, Level.NODE, features).is_empty
    assert asked(None, slo("coreSched"), Level.NODE, features).is_empty


def test_without_the_kernel_feature_nothing_is_asked_for() -> None:
    assert asked(pod("p"), features=()).is_empty


def test_it_goes_together_with_cpu_qos() -> None:
    check((cpu_qos.HOOK.with_options(CpuQosOptions()), HOOK))
