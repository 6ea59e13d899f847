"""One adjustment, three ways: fields of CRI, of NRI, and settings of a plan."""

from __future__ import annotations

import pytest

from koordlet.decision.answer import Combined, Wanted
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import ABSENT, Resource
from koordlet.decision.snapshot import Container
from koordlet.decision.strategy import Level, ResctrlGroup, Subject
from koordlet.decision.why import Why
from koordlet.hooks.delivery import FIELDS, cri_fields, nri_fields, plans, settings
from koordlet.wire.pb import cri_pb2, nri_pb2
from tests.qos.build import pod

WHY = Why("t", "the test wants it")
GROUP = ResctrlGroup("koordlet-p", "L3:0=f\n", WHY)


def combined(*wants: tuple[str, Resource, int | str]) -> Combined:
    return Combined(tuple(Wanted(owner, key, value, WHY) for owner, key, value in wants))


EVERYTHING = combined(
    ("a", Resource.CPU_SHARES, 2),
    ("a", Resource.CPU_QUOTA_US, -1),
    ("b", Resource.CPUSET_CPUS, "0-1"),
    ("b", Resource.OOM_SCORE_ADJ, 5),
    ("c", Resource.RESCTRL_GROUP, "koordlet-p"),
    ("c", Resource.CPU_BVT_WARP_NS, 2),
)


def test_fields_of_cri() -> None:
    assert cri_fields(EVERYTHING) == {
        "cpu_shares": 2,
        "cpu_quota": -1,
        "cpuset_cpus": "0-1",
        "oom_score_adj": 5,
    }


def test_fields_of_nri() -> None:
    found = {
        "resources.cpu.shares": 2,
        "resources.cpu.quota": -1,
        "resources.cpu.cpus": "0-1",
        "oom_score_adj": 5,
        "resources.rdt_class": "koordlet-p",
    }
    assert nri_fields(EVERYTHING) == found
    del found["oom_score_adj"]  # a container that exists has no such field
    assert nri_fields(EVERYTHING, update=True) == found


@pytest.mark.parametrize("resource", FIELDS)
def test_the_table_names_fields_that_the_messages_have(resource: Resource) -> None:
    fields = FIELDS[resource]
    if fields.cri:
        assert fields.cri in cri_pb2.LinuxContainerResources.DESCRIPTOR.fields_by_name
    for message in (nri_pb2.LinuxContainerAdjustment, nri_pb2.LinuxContainerUpdate):
        descriptor = message.DESCRIPTOR
        if "Update" in descriptor.name and not fields.nri.startswith("resources."):
            continue
        *outer, last = fields.nri.split(".")
        for name in outer:
            descriptor = descriptor.fields_by_name[name].message_type
        assert last in descriptor.fields_by_name


def test_what_kubelet_did_not_limit_goes_back_to_no_limit() -> None:
    wanted = combined(
        ("a", Resource.CPU_QUOTA_US, 5000),
        ("a", Resource.MEMORY_LIMIT, 1 << 30),
        ("a", Resource.CPUSET_CPUS, "0"),
    )

    def found(**fields) -> list[int | str | None]:
        box = Container("c", "kubepods/podp/c", **fields)
        subject = Subject(Level.CONTAINER, box.cgroup, pod=pod("p"), container=box)
        return [setting.without for _, setting in settings(subject, wanted)]

    assert found(requested={Resource.CPU_SHARES: 2, Resource.MEMORY_LIMIT: 0}) == [-1, -1, None]
    assert found() == [None, None, None]  # nobody has seen the request
    # Nobody has seen how it was made, but an update of its memory alone.
    assert found(requested={Resource.MEMORY_LIMIT: 5}) == [None, 5, None]


def test_a_plan_holds_everything_by_owner() -> None:
    found = pod("p")
    box = Container(
        "c", f"{found.cgroup}/c", requested={Resource.CPU_QUOTA_US: 70_000, Resource.CPU_SHARES: 5}
    )
    subject = Subject(Level.CONTAINER, box.cgroup, pod=found, container=box)
    wanted = Combined(EVERYTHING.settings, groups=(("c", GROUP),))
    assert [owner for owner, _ in settings(subject, wanted)] == ["c", "a", "a", "b", "b", "c", "c"]
    by_owner = {plan.owner: plan for plan in plans(subject, wanted)}
    assert by_owner["a"] == Plan(
        "a",
        (
            Setting(box.cgroup, Resource.CPU_SHARES, 2, WHY, without=5),
            Setting(box.cgroup, Resource.CPU_QUOTA_US, -1, WHY, without=70_000),
        ),
        amends=True,
    )
    assert by_owner["b"].settings[0] == Setting(box.cgroup, Resource.CPUSET_CPUS, "0-1", WHY)
    assert by_owner["c"].settings[0] == Setting(
        "koordlet-p", Resource.RESCTRL_SCHEMATA, GROUP.schemata, WHY, without=ABSENT
    )
    assert plans(subject, Combined()) == ()
