"""The examples of docs/reference/central.md 6.6."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.place.device.types import Grant
from tests.companion.place.device.build import MODEL, POLICY, RDMA, Lab, gpu, machine_e, pods, share

VF_HINT = {"rdma": {"vfSelector": {}}}
BOTH = {"deviceTypes": ["gpu", "rdma"]}


def _joint(gpus: int) -> Any:
    return pods(share(100 * gpus) | {RDMA: 1}, hint=VF_HINT, joint=BOTH)


@pytest.mark.parametrize(
    ("used", "gpus", "want_gpus", "want_rdma"),
    [
        pytest.param({}, 1, [0], {1: "0000:1f:00.2"}, id="D1"),
        pytest.param({}, 2, [0, 1], {1: "0000:1f:00.2"}, id="D2"),
        pytest.param({}, 3, [0, 1, 2], {1: "0000:1f:00.2", 2: "0000:2f:00.2"}, id="D3"),
        pytest.param(
            {"gpu": {0: 100}, "rdma": {1: "0000:1f:00.2"}},
            *(2, [2, 3], {2: "0000:2f:00.2"}),
            id="D4-2",
        ),
        pytest.param(
            {"gpu": {0: 100}, "rdma": {1: "0000:1f:00.2"}},
            *(3, [1, 2, 3], {1: "0000:1f:00.3", 2: "0000:2f:00.2"}),
            id="D4-3",
        ),
        pytest.param({"gpu": {5: 100}}, 1, [4], {3: "0000:3f:00.2"}, id="D5-1"),
        pytest.param({"gpu": {5: 100}}, 2, [6, 7], {4: "0000:4f:00.2"}, id="D5-2"),
    ],
)
def test_gpus_with_rdma_beside_them(
    used: Any, gpus: int, want_gpus: list[int], want_rdma: dict[int, str]
) -> None:
    lab = Lab()
    lab.node(machine_e())
    lab.use(used)
    found = lab.place(_joint(gpus))
    assert isinstance(found, Grant)
    assert [each.minor for each in found.devices["gpu"]] == want_gpus
    assert {e.minor: e.functions[0].bus_id for e in found.devices["rdma"]} == want_rdma


def test_d6_functions_at_one_switch_alone() -> None:
    lab = Lab()
    lab.node(machine_e(vf_pcies=[0]))
    assert lab.minors(_joint(4)) == {"gpu": [0, 1, 2, 3], "rdma": [1]}


@pytest.mark.parametrize(
    ("used", "gpus", "labels", "want"),
    [
        pytest.param([2, 3], 2, {}, [0, 1], id="D7"),
        pytest.param([4], 2, {}, [6, 7], id="D8-2"),
        pytest.param([4], 1, {}, [5], id="D8-1"),
        pytest.param(
            [], 3, {POLICY: "Honor"}, "node(s) Unsupported number of GPU requests", id="D9-honor"
        ),
        pytest.param([2, 3], 3, {}, [4, 5, 6], id="D9-prefer"),
    ],
)
def test_partitions_of_h800(used: list[int], gpus: int, labels: Any, want: Any) -> None:
    lab = Lab()
    lab.node(machine_e(), labels={MODEL: "H800", **labels})
    lab.use({"gpu": dict.fromkeys(used, 100)})
    cls = pods(share(100 * gpus))
    assert lab.reasons(cls) == [want if isinstance(want, str) else ""]
    assert lab.minors(cls) == (want if isinstance(want, str) else {"gpu": want})


def test_d10_a_share_goes_where_a_share_is() -> None:
    lab = Lab(scoringStrategy={"type": "MostAllocated"})
    lab.node(machine_e(), labels={MODEL: "H800"})
    lab.use({"gpu": {7: 50, 5: 100}})
    assert lab.minors(pods(share(50))) == {"gpu": [7]}


@pytest.mark.parametrize(
    ("used", "strategy", "want"),
    [
        pytest.param([1, 2], "LeastAllocated", 3, id="D11"),
        pytest.param([3, 4], "MostAllocated", 3, id="D12"),
    ],
)
def test_shares_without_topology(used: list[int], strategy: str, want: int) -> None:
    lab = Lab(scoringStrategy={"type": strategy})
    lab.node([gpu(minor) for minor in (1, 2, 3, 4)])
    lab.use({"gpu": dict.fromkeys(used, 50)})
    assert lab.minors(pods(share(50))) == {"gpu": [want]}


def test_d13_an_unhealthy_gpu_is_left_out() -> None:
    lab = Lab()
    lab.node([gpu(1, health=False), gpu(2)])
    assert lab.minors(pods(share(100))) == {"gpu": [2]}
    assert lab.minors(pods(share(100))) == "Insufficient gpu devices"
