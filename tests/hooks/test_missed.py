"""What a container has beside what it should have been created with."""

from __future__ import annotations

import pytest

from koordlet.decision import given
from koordlet.decision.answer import Combined
from koordlet.decision.given import VISIBLE_GPUS, Given
from koordlet.decision.snapshot import DeviceNode
from koordlet.decision.strategy import Device, EnvVar, Mount
from koordlet.decision.why import Why
from koordlet.hooks.missed import Creation, creation, has, missed, sees_more

WHY = Why("gpu-env.devices", "the scheduler gave the pod GPUs 1,3")
UUIDS = ("GPU-aaaa", "GPU-bbbb")
VISIBLE = EnvVar(VISIBLE_GPUS, "1,3", WHY, UUIDS)


@pytest.mark.parametrize(
    ("found", "same", "more"),
    [
        ("1,3", True, False),
        ("3, 1", True, False),
        ("GPU-aaaa,GPU-bbbb", True, False),
        ("GPU-aaaa", False, False),
        ("1", False, False),
        ("1:0,3:1", False, False),  # parts of its own GPUs
        ("", False, False),
        ("none", False, False),
        ("void", False, False),
        ("all", False, True),
        (None, False, True),
        ("1,2,3", False, True),
        ("0:1", False, True),
        ("GPU-cccc", False, True),
        ("11", False, True),
    ],
)
def test_gpus_that_a_container_sees(found: str | None, same: bool, more: bool) -> None:
    has_it = Given({VISIBLE_GPUS: found} if found is not None else {})
    assert (missed(Creation((VISIBLE,)), has_it) == ()) is same
    assert sees_more(VISIBLE, found) is more
    for each in missed(Creation((VISIBLE,)), has_it):
        assert (each.kind, each.name, each.wanted) == ("env", VISIBLE_GPUS, "1,3")
        assert (each.has, each.exceeds, each.hook) == (found, more, "gpu-env")


def test_uuids_that_are_not_all_known_are_no_other_name_for_all() -> None:
    partly = EnvVar(VISIBLE_GPUS, "1,3", WHY, UUIDS[:1])
    (found,) = missed(Creation((partly,)), Given({VISIBLE_GPUS: UUIDS[0]}))
    assert not found.exceeds


def test_variables_devices_and_mounts() -> None:
    wanted = Creation(
        (EnvVar("LD_PRELOAD", "/lib/x.so", WHY),),
        (Mount("/lib/x.so", "/lib/x.so", WHY), Mount("/tmp/vgpulock", "/tmp/vgpulock", WHY)),
        (
            Device(DeviceNode("/dev/infiniband/rdma_cm", 10, 58), WHY),
            Device(DeviceNode("/dev/infiniband/uverbs0", 231, 192), WHY),
        ),
    )
    has_some = Given(
        {"LD_PRELOAD": "/lib/other.so"},
        {"/dev/infiniband/rdma_cm": "10:58", "/dev/infiniband/uverbs0": "231:193"},
        frozenset({"/lib/x.so"}),
    )
    assert [(m.kind, m.name, m.has, m.exceeds) for m in missed(wanted, has_some)] == [
        ("env", "LD_PRELOAD", "/lib/other.so", False),
        ("device", "/dev/infiniband/uverbs0", "231:193", False),
        ("mount", "/tmp/vgpulock", None, False),
    ]
    # Of a process only the variables are known.
    (only,) = missed(wanted, Given({}))
    assert (only.name, only.has) == ("LD_PRELOAD", None)
    assert has("device", "/dev/infiniband/rdma_cm", has_some) == "10:58"
    assert has("mount", "/tmp/vgpulock", has_some) is None
    assert has("mount", "/lib/x.so", has_some) == "/lib/x.so"
    assert has("device", "/dev/infiniband/rdma_cm", Given({})) is None


def test_nothing_that_only_a_creation_gives() -> None:
    assert creation(Combined()) is None
    assert creation(Combined(env=(VISIBLE,))) == Creation((VISIBLE,))


def test_of_all_variables_those_that_hooks_set_are_kept() -> None:
    lines = ["PASSWORD=secret", "LD_PRELOAD=a", "LD_PRELOAD=b=c", "NVIDIA_VISIBLE_DEVICES", "=", ""]
    assert given.variables(lines) == {"LD_PRELOAD": "b=c"}
    long = given.variables([f"LD_PRELOAD={'x' * 1_000_000}"])
    assert len(long["LD_PRELOAD"]) == 4097


def test_of_many_devices_and_mounts_some_are_kept() -> None:
    every = [(f"/dev/infiniband/uverbs{n}", 231, n) for n in range(1000)]
    assert len(given.devices([("/dev/null", 1, 3), *every])) == 256
    assert given.devices([("/dev/null", 1, 3)]) == {}
    assert given.mounts([("/a", "/a"), ("/secret", "/b")]) == {"/a"}
