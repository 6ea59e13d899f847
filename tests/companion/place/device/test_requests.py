"""Normal forms of requests (docs/reference/central.md 6.2)."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.place.device.request import RequestError, Wanted, per_gpu, read_request
from tests.companion.place.device.build import CORE, FPGA, GI, MEMORY, RATIO, RDMA, SHARED, pods

NPU_CORE, NPU_CPU, NPU_DVPP = (f"huawei.com/npu-{part}" for part in ("core", "cpu", "dvpp"))
ALL = "koordinator.sh/gpu"


@pytest.mark.parametrize(
    ("asked", "each", "instances", "shared"),
    [
        ({SHARED: 2, CORE: 100, RATIO: 100}, {CORE: 50, RATIO: 50}, 2, True),
        ({CORE: 200, RATIO: 200}, {CORE: 100, RATIO: 100}, 2, False),
        ({CORE: 100, MEMORY: 1024}, {CORE: 100, MEMORY: 1024}, 1, True),
        ({"nvidia.com/gpu": 2}, {CORE: 100, RATIO: 100}, 2, False),
        ({"amd.com/gpu": 1}, {CORE: 100, RATIO: 100}, 1, False),
        ({"dcu.com/gpu": 1, CORE: 0}, {CORE: 100, RATIO: 100}, 1, False),
        ({ALL: 50}, {CORE: 50, RATIO: 50}, 1, True),
        ({"kubernetes.io/gpu": 300}, {CORE: 100, RATIO: 100}, 3, False),
        ({MEMORY: GI}, {MEMORY: GI}, 1, True),
        ({RATIO: 30}, {RATIO: 30}, 1, True),
        ({NPU_CORE: 8, RATIO: 100}, {NPU_CORE: 8, RATIO: 100}, 1, False),
        ({SHARED: 2, MEMORY: 2 * GI}, {MEMORY: GI}, 2, True),
        ({SHARED: 2, RATIO: 60}, {RATIO: 30}, 2, True),
        ({SHARED: 2, CORE: 60, MEMORY: 2 * GI}, {CORE: 30, MEMORY: GI}, 2, True),
        (
            {SHARED: 1, NPU_CORE: 4, NPU_CPU: 3, NPU_DVPP: 100, MEMORY: GI},
            *({NPU_CORE: 4, NPU_CPU: 3, NPU_DVPP: 100, MEMORY: GI}, 1, True),
        ),
    ],
)
def test_gpus(asked: dict[str, int], each: Any, instances: int, shared: bool) -> None:
    request = read_request(pods(asked))
    assert request is not None
    assert request.types == {"gpu": Wanted(each, instances, shared)}


def test_cores_of_npus_over_two_cards() -> None:
    asked = {SHARED: 2, NPU_CORE: 16, RATIO: 200}
    assert per_gpu(asked) == Wanted({NPU_CORE: 8, RATIO: 100}, 2, False)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({CORE: 50}, f"invalid resource device requests: [{CORE}]"),
        ({ALL: 101}, f"invalid resource unit {ALL}: 101"),
        ({RDMA: 150}, f"invalid resource unit {RDMA}: 150"),
        ({FPGA: 250}, f"invalid resource unit {FPGA}: 250"),
        ({CORE: 150, RATIO: 100}, f"invalid resource device requests: [{CORE} {RATIO}]"),
        ({SHARED: 2, RATIO: 101}, f"invalid resource device requests: [{RATIO} {SHARED}]"),
        ({SHARED: 2, RATIO: 202}, f"invalid resource device requests: [{RATIO} {SHARED}]"),
        ({SHARED: 1}, f"invalid resource device requests: [{SHARED}]"),
        (
            {"nvidia.com/gpu": 1, ALL: 100},
            f"invalid resource device requests: [{ALL} nvidia.com/gpu]",
        ),
        (
            {SHARED: 2, NPU_CORE: 4, NPU_CPU: 3, MEMORY: GI},
            f"invalid resource device requests: [{NPU_CORE} {NPU_CPU} {MEMORY} {SHARED}]",
        ),
    ],
)
def test_requests_that_no_node_serves(asked: dict[str, int], text: str) -> None:
    with pytest.raises(RequestError) as error:
        read_request(pods(asked))
    assert sorted(str(error.value)) == sorted(text)


@pytest.mark.parametrize(
    ("asked", "hint", "want"),
    [
        (200, {}, Wanted({RDMA: 100}, 2)),
        (60, {}, Wanted({RDMA: 60}, 1)),
        (1, {"allocateStrategy": "ApplyForAll"}, Wanted({RDMA: 1}, 1, all_of_them=True)),
        (3, {"allocateStrategy": "RequestsAsCount"}, Wanted({RDMA: 1}, 3)),
        (
            *(3, {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"}),
            Wanted({RDMA: 100}, 3),
        ),
    ],
)
def test_other_devices(asked: int, hint: Any, want: Wanted) -> None:
    request = read_request(pods({RDMA: asked}, hint={"rdma": hint}))
    assert request is not None
    assert request.types == {"rdma": want}


def test_no_devices() -> None:
    assert read_request(pods({"cpu": 1000, ALL: 0})) is None


@pytest.mark.parametrize(
    "tree", [{"rdma": {"allocateStrategy": "Most"}}, [1], {"rdma": {"selector": {"x" * 9000: ""}}}]
)
def test_bad_hints_are_refused(tree: Any) -> None:
    with pytest.raises(RequestError, match="DeviceAllocateHint annotation"):
        read_request(pods({RDMA: 1}, hint=tree))


def test_types_of_a_joint_request_that_count() -> None:
    joint = {"deviceTypes": ["gpu", "rdma", "fpga", "gpu"], "requiredScope": "SamePCIe"}
    cls = pods({ALL: 100, RDMA: 1}, joint=joint, hint={"rdma": {"allocateStrategy": "ApplyForAll"}})
    request = read_request(cls)
    assert request is not None and request.joint == ("gpu",) and request.same_pcie
