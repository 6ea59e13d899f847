"""DeviceShare as the engine asks it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.model.cluster.pods import Pod
from koord_scheduler.place.device.free import NAME
from koord_scheduler.place.device.hints import DeviceHint
from koord_scheduler.place.device.summary import node_summaries, node_summary
from koord_scheduler.place.device.types import Grant
from koord_scheduler.place.grants import Loan
from koord_scheduler.place.reservation.reservation import Reservation
from tests.companion.place.device.build import (
    ALLOCATED,
    CORE,
    FPGA,
    GI,
    MEMORY,
    MODEL,
    PARTITIONS,
    RATIO,
    RDMA,
    SHARED,
    VENDOR,
    Lab,
    gpu,
    machine_e,
    pods,
    rdma,
    share,
)

NPU_CORE, NPU_CPU = "huawei.com/npu-core", "huawei.com/npu-cpu"
PROVIDER = "koordinator.sh/gpu-isolation-provider"


class _Numa:
    def __init__(self, *nodes: int) -> None:
        self.numa_nodes = nodes


LOAN = Loan(frozenset({"reserve"}), "r")


class _Reservation:
    def __init__(self, loan: Loan = LOAN) -> None:
        self.loan = loan


# Filter


def test_a_node_without_a_device_is_left_to_kubelet() -> None:
    lab = Lab()
    lab.node([gpu(0)])
    lab.cluster.set_node(Node(name="n2"))
    assert lab.reasons(pods({"nvidia.com/gpu": 2})) == ["Insufficient gpu devices", ""]
    assert lab.place(pods({"nvidia.com/gpu": 2}), row=1) is None


@pytest.mark.parametrize(
    ("devices", "cls", "text"),
    [
        ([gpu(0)], pods({RDMA: 1}), "Insufficient rdma devices"),
        ([gpu(0)], pods({CORE: 50}), f"invalid resource device requests: [{CORE}]"),
        (
            [rdma(1, 0, "p")],
            pods({RDMA: 1}, hint={"rdma": {"vfSelector": {}}}),
            "Insufficient rdma VirtualFunctions",
        ),
        ([gpu(0)], pods(share(100), partition={}), "node(s) missing GPU Partition Table"),
        (
            [gpu(0)],
            pods(share(100), hint={"gpu": {"requiredTopologyScope": "PCIe"}}),
            "node(s) missing GPU Device Topology Tree",
        ),
        (
            [gpu(0, 0, "a"), gpu(1, 0, "b")],
            pods(share(200), hint={"gpu": {"requiredTopologyScope": "PCIe"}}),
            "Insufficient Topology Scoped GPU Devices",
        ),
        (
            [gpu(0, 0, "a"), gpu(1, 0, "a")],
            pods({SHARED: 2, RATIO: 100}, hint={"gpu": {"requiredTopologyScope": "NUMANode"}}),
            "node(s) Unsupported Multi-Shared GPU",
        ),
        ([gpu(0, 0, "a")], pods(share(200)), "Insufficient GPU Devices"),
        (
            [gpu(0)],
            pods({SHARED: 1, NPU_CORE: 1, NPU_CPU: 1, MEMORY: GI}),
            "no matched GPU shared resource template",
        ),
    ],
)
def test_reasons(devices: Any, cls: Any, text: str) -> None:
    lab = Lab()
    lab.node(devices)
    assert lab.reasons(cls) == [text]
    assert lab.place(cls) == text


def test_a_share_needs_the_isolation_that_the_node_has() -> None:
    lab = Lab()
    lab.node([gpu(0)], labels={PROVIDER: "HAMi-core"})
    lab.node([gpu(0)], name="n2")
    text = "node(s) GPU isolation provider is not the one of the pod"
    assert lab.reasons(pods(share(50), labels={PROVIDER: "hami-core"})) == ["", text]
    assert lab.reasons(pods(share(100), labels={PROVIDER: "hami-core"})) == ["", ""]


def test_models_that_do_not_share() -> None:
    lab = Lab(gpuShareUnsupportedModels=[{"vendor": "huawei", "model": "910B"}])
    lab.node([gpu(0)], labels={VENDOR: "huawei", MODEL: "910B"})
    assert lab.reasons(pods(share(50))) == [
        'model "910B" of vendor "huawei" does not support GPU Share'
    ]
    assert lab.reasons(pods(share(100))) == [""]


# Allocation


def test_memory_and_ratio_complete_each_other() -> None:
    lab = Lab()
    lab.node([gpu(0)])
    first, second = lab.place(pods(share(50))), lab.place(pods({MEMORY: 20 * GI}))
    assert isinstance(first, Grant) and isinstance(second, Grant)
    assert first.devices["gpu"][0].amounts == {CORE: 50, RATIO: 50, MEMORY: 40 * GI}
    assert second.devices["gpu"][0].amounts == {MEMORY: 20 * GI, RATIO: 25}
    assert lab.place(pods({MEMORY: 21 * GI})) == "Insufficient gpu devices"


def test_a_template_is_recorded() -> None:
    lab = Lab()
    card = {"type": "gpu", "minor": 0, "health": True}
    card["resources"] = {NPU_CORE: "8", NPU_CPU: "7", RATIO: "100", MEMORY: "24Gi"}
    lab.node([card], labels={VENDOR: "huawei", MODEL: "Ascend-310P3"})
    cls = pods({SHARED: 1, NPU_CORE: 4, NPU_CPU: 3, MEMORY: 12 * GI})
    assert lab.reasons(cls) == ["no matched GPU shared resource template"]
    templates = {"vir04_3c": {NPU_CORE: 4, NPU_CPU: "3", MEMORY: "12Gi"}, "bad": [1]}
    lab.plugin.set_templates(lab.cluster, {"huawei-Ascend-310P3": templates, "x": None})
    assert lab.reasons(cls) == [""]
    found = lab.place(cls)
    assert isinstance(found, Grant) and found.devices["gpu"][0].template == "vir04_3c"
    assert isinstance(lab.place(cls), Grant)
    assert lab.place(cls) == "Insufficient gpu devices"


@pytest.mark.parametrize(
    ("spec", "used", "want"),
    [
        ({}, [], [2, 3]),
        ({}, [2], [0, 1]),
        ({"allocatePolicy": "Restricted"}, [2], "Insufficient Partitioned GPU Devices"),
        ({"ringBusBandwidth": "300Gi"}, [], [0, 1]),
        ({"ringBusBandwidth": "900Gi"}, [], "Insufficient Partitioned GPU Devices"),
    ],
)
def test_partitions_of_the_highest_score_first(spec: Any, used: list[int], want: Any) -> None:
    table = {
        "2": [
            {"minors": [0, 1], "allocationScore": 1, "ringBusBandwidth": "400Gi"},
            {"minors": [2, 3], "allocationScore": 5, "ringBusBandwidth": "200Gi"},
            {"minors": [], "allocationScore": 9},
        ]
    }
    lab = Lab()
    lab.node([gpu(n) for n in range(4)], annotations={PARTITIONS: json.dumps(table)})
    lab.use({"gpu": dict.fromkeys(used, 100)})
    found = lab.minors(pods(share(200), partition=spec))
    assert found == (want if isinstance(want, str) else {"gpu": want})


def test_one_gpu_is_a_scope_of_its_own() -> None:
    lab = Lab()
    lab.node(machine_e())
    hint = {"gpu": {"requiredTopologyScope": "Device"}}
    assert lab.minors(pods(share(100), hint=hint)) == {"gpu": [0]}
    assert lab.minors(pods(share(200), hint=hint)) == "Insufficient Topology Scoped GPU Devices"


def test_the_same_pcie_or_nothing() -> None:
    lab = Lab()
    lab.node(machine_e())
    joint = {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    cls = pods(share(400) | {RDMA: 1}, joint=joint)
    assert lab.minors(cls) == {"gpu": [0, 1, 2, 3], "rdma": [1, 2]}
    lab.use({"rdma": {3: {RDMA: 100}}})
    assert lab.minors(cls) == "node(s) Device Joint-Allocate rules violation"


def test_selectors_and_all_of_them() -> None:
    lab = Lab()
    cards = [rdma(n, 0, f"p{n}", labels={"net": "a" if n < 3 else "b"}) for n in (1, 2, 3)]
    lab.node(cards)
    selector = {"selector": {"matchLabels": {"net": "a"}}}
    everything = {"rdma": {"allocateStrategy": "ApplyForAll", **selector}}
    assert lab.minors(pods({RDMA: 10}, hint=everything)) == {"rdma": [1, 2]}
    assert lab.minors(pods({RDMA: 100}, hint={"rdma": selector})) == "Insufficient rdma devices"
    assert lab.minors(pods({RDMA: 100})) == {"rdma": [3]}


def test_well_planned_secondary_devices_do_not_judge_a_node() -> None:
    labels = {"node.koordinator.sh/secondary-device-well-planned": "true"}
    joint = {"deviceTypes": ["gpu", "rdma"]}
    for planned in (True, False):
        lab = Lab()
        lab.node(machine_e(), of_device=labels if planned else {})
        lab.use({"rdma": {n: {RDMA: 100} for n in (1, 2, 3, 4)}})
        cls = pods(share(100) | {RDMA: 1}, joint=joint)
        assert lab.reasons(cls) == ["" if planned else "Insufficient rdma devices"]
        assert lab.place(cls) == "Insufficient rdma devices"
        assert bool(lab.plugin.not_well_planned) is planned
        lab.plugin.not_well_planned.add("n1")
        lab.minors(pods(share(100), joint=joint))
        assert bool(lab.plugin.not_well_planned) is not planned


def test_devices_stay_on_the_numa_nodes_that_were_chosen() -> None:
    lab = Lab()
    lab.node(machine_e())
    assert lab.minors(pods(share(200)), NodeNUMAResource=_Numa(1)) == {"gpu": [4, 5]}
    text = "Insufficient GPU Devices"
    assert lab.minors(pods(share(300)), NodeNUMAResource=_Numa(1)) == text


def test_users_of_a_reservation_take_what_it_holds() -> None:
    lab = Lab()
    lab.node([gpu(0), gpu(1)])
    lab.use({"gpu": {1: 100}}, holds="r", key="reserve")
    lab.use({"gpu": {0: 60}})
    assert lab.place(pods(share(50))) == "Insufficient gpu devices"
    assert lab.minors(pods(share(50)), Reservation=_Reservation()) == {"gpu": [1]}
    lab.use({"gpu": {1: 50}}, reservation="r")
    assert lab.place(pods(share(50))) == "Insufficient gpu devices"


def test_a_reservation_opens_a_node_for_its_owners() -> None:
    lab = Lab()
    lab.node([gpu(0)])
    lab.use({"gpu": {0: 100}}, holds="r", key="reserve")
    cls = pods(share(50))
    assert lab.reasons(cls) == ["Insufficient gpu devices"]

    class Reservation:
        def loans(self, cluster: Any, pod: Any, row: int) -> list[Loan]:
            return [LOAN]

    lab.plugin.connect({"Reservation": Reservation()})  # type: ignore[dict-item]
    assert lab.reasons(cls) == [""]


def test_offers_count_what_a_reservation_keeps_for_such_pods() -> None:
    lab = Lab()
    lab.node([gpu(0)])
    lab.use({"gpu": {0: 100}}, holds="r", key="reserve")
    asked = pods(share(50)), lab.cluster.rows(), 9
    assert lab.plugin.offers(lab.cluster, *asked).tolist() == [0]

    class Reservation:
        def loans(self, where: Any, of: Any, row: int) -> list[Loan]:
            return [LOAN]

    lab.plugin.connect({"Reservation": Reservation()})  # type: ignore[dict-item]
    assert lab.plugin.offers(lab.cluster, *asked).tolist() == [9]


@pytest.mark.parametrize(
    ("policy", "restricted", "chosen"),
    [
        ("Restricted", "koordinator.sh/gpu-memory-ratio", "Insufficient gpu devices"),
        ("Restricted", "cpu", {"gpu": [1]}),
        ("Aligned", "koordinator.sh/gpu-memory-ratio", {"gpu": [1]}),
    ],
)
def test_a_reservation_may_restrict_its_users_to_its_devices(
    policy: str, restricted: str, chosen: Any
) -> None:
    lab = Lab()
    lab.node([gpu(0), gpu(1)])
    lab.use({"gpu": {0: 50}}, holds="r", key="reserve")
    lab.use({"gpu": {0: 50}}, reservation="r")
    lab.use({"gpu": {0: 50}})
    holder = Pod(key="reserve", uid="r", cls=pods({}), holds="r")
    kept = Reservation(
        name="r", uid="r", pod=holder, policy=policy, restricted=frozenset({restricted})
    )
    assert lab.minors(pods(share(50)), Reservation=_Reservation(kept.loan)) == chosen


@pytest.mark.parametrize(
    ("asked", "restricted", "chosen"),
    [
        (40, {RATIO}, {"gpu": [0]}),
        (50, {RATIO}, "Insufficient gpu devices"),
        (50, set(), {"gpu": [0]}),
    ],
)
def test_users_take_no_more_of_a_device_than_a_restricted_reservation_has_left(
    asked: int, restricted: set[str], chosen: Any
) -> None:
    lab = Lab()
    lab.node([gpu(0), gpu(1)])
    lab.use({"gpu": {0: 60}}, holds="r", key="reserve")
    lab.use({"gpu": {0: 20}}, reservation="r")
    kept = _Reservation(LOAN._replace(restricted=frozenset(restricted)))
    assert lab.minors(pods(share(asked)), Reservation=kept) == chosen


@pytest.mark.parametrize(
    ("lent", "honor", "chosen"),
    [
        ([5], False, [4, 5]),
        ([5], True, [4, 5]),
        ([5, 6], False, [5, 6]),
        ([5, 6], True, "Insufficient Partitioned GPU Devices"),  # no partition has these
        ([4, 5, 6], False, "Insufficient gpu devices"),
    ],
)
def test_what_is_lent_as_a_whole_is_a_part_of_what_is_given(
    lent: list[int], honor: bool, chosen: Any
) -> None:
    lab = Lab()
    labels = {"node.koordinator.sh/gpu-model": "H800"}
    policy = {"node.koordinator.sh/gpu-partition-policy": "Honor"} if honor else {}
    lab.node([gpu(n) for n in range(8)], labels={**labels, **policy})
    lab.use({"gpu": dict.fromkeys(lent, 100)}, key="ns/lender")
    whole = _Reservation(Loan(frozenset({"ns/lender"}), whole=True))
    found = lab.minors(pods(share(200)), Reservation=whole)
    assert found == ({"gpu": chosen} if isinstance(chosen, list) else chosen)


# Scores


@pytest.mark.parametrize(("gpus", "asked", "score"), [(1, {RATIO: 100}, 50), (2, {RATIO: 50}, 87)])
def test_score_of_an_idle_node(gpus: int, asked: dict[str, int], score: int) -> None:
    lab = Lab()
    lab.node([gpu(n) for n in range(gpus)])
    assert lab.scores(pods(asked)) == [score]


@pytest.mark.parametrize(
    ("strategy", "used", "asked", "score"),
    [
        ("LeastAllocated", 0, 50, 50),
        ("LeastAllocated", 50, 30, 20),
        ("MostAllocated", 50, 30, 80),
        ("LeastAllocated", 100, 50, 0),
    ],
)
def test_score_of_a_device(strategy: str, used: int, asked: int, score: int) -> None:
    lab = Lab(scoringStrategy={"type": strategy, "resources": [{"name": RATIO, "weight": 1}]})
    lab.node([gpu(0)])
    lab.use({"gpu": {0: used}})
    assert lab.scores(pods({RATIO: asked})) == [score]


# Hints for the NUMA manager


def test_hints() -> None:
    lab = Lab()
    lab.node(machine_e())
    hints = lab.plugin.hints(lab.cluster, Pod(key="p", uid="p", cls=pods(share(200))), 0)
    want = (DeviceHint(1, True, 500), DeviceHint(2, True, 0), DeviceHint(3, False, 500))
    assert hints == {"gpu": want}
    lab.use({"gpu": {0: 100}})
    both = Pod(key="p", uid="p", cls=pods(share(400) | {RDMA: 1}))
    want = (DeviceHint(2, True, 500), DeviceHint(3, False, 500))
    assert lab.plugin.hints(lab.cluster, both, 0) == {"gpu": want, "rdma": want}
    huge = Pod(key="p", uid="p", cls=pods(share(900)))
    assert lab.plugin.hints(lab.cluster, huge, 0) == {"gpu": ()}


def test_a_device_with_an_odd_numa_node_gives_no_hint() -> None:
    lab = Lab()
    lab.node([gpu(0, -5, "a"), gpu(1, 0, "b")])
    asking = Pod(key="p", uid="p", cls=pods(share(100)))
    assert lab.plugin.hints(lab.cluster, asking, 0) == {"gpu": (DeviceHint(1, True, 0),)}


def test_no_hints_where_alignment_is_off() -> None:
    lab = Lab(disableDeviceNUMATopologyAlignment=True)
    lab.node(machine_e())
    assert lab.plugin.hints(lab.cluster, Pod(key="p", uid="p", cls=pods(share(100))), 0) == {}


# What is written and read


def test_annotations_there_and_back() -> None:
    lab = Lab(devicePluginAdaption=True)
    lab.node(machine_e())
    lab.cluster.now_s = 12.5
    cls = pods(
        share(100) | {RDMA: 1},
        labels={PROVIDER: "HAMi-core"},
        hint={"rdma": {"vfSelector": {}}},
        joint={"deviceTypes": ["gpu", "rdma"]},
    )
    grant = lab.place(cls)
    assert isinstance(grant, Grant)
    pod = Pod(key="ns/p", uid="p", cls=cls, labels=cls.labels, node="n1")
    written = lab.plugin.annotations(pod, grant)
    assert json.loads(written[ALLOCATED]) == {
        "gpu": [
            {
                "minor": 0,
                "id": "GPU-0",
                "resources": {CORE: "100", RATIO: "100", MEMORY: "80Gi"},
            }
        ],
        "rdma": [
            {
                "minor": 1,
                "id": "0000:01:00.0",
                "resources": {RDMA: "1"},
                "extension": {"vfs": [{"minor": -1, "busID": "0000:1f:00.2"}]},
            }
        ],
    }
    assert written["scheduling.koordinator.sh/gpu-minors"] == "0"
    assert written["scheduling.koordinator.sh/bind-timestamp"] == "12500000000"
    assert lab.plugin.labels(pod, grant) == {"hami.io/vgpu-node": "n1"}
    again = lab.plugin.recognise(Pod(key="ns/p", uid="p", cls=cls, annotations=written, node="n1"))
    assert again is not None and again.devices == grant.devices


@pytest.mark.parametrize(
    "text",
    ["", "[", '{"gpu": 1}', '{"gpu": [{"minor": -1}]}', '{"fpga": [{"minor": 0}]}', "x" * 99999],
)
def test_what_tells_of_no_devices(text: str) -> None:
    found = Lab().plugin.recognise(
        Pod(key="p", uid="p", cls=pods(share(100)), annotations={ALLOCATED: text})
    )
    assert found is None or not any(found.devices.values())


def test_bad_devices_cost_themselves() -> None:
    lab = Lab()
    lab.node([gpu(0), {"type": 7}, {"minor": 1}, gpu(-4), gpu(5, resources={CORE: "x"}), "no"])
    assert lab.minors(pods(share(100))) == {"gpu": [0]}
    assert lab.minors(pods(share(100))) == "Insufficient gpu devices"


def test_summary() -> None:
    lab = Lab()
    fpga = {"type": "fpga", "minor": 2, "health": True, "resources": {FPGA: "100"}}
    lab.node([gpu(0), gpu(1), fpga])
    lab.use({"gpu": {0: {CORE: 49}, 1: {CORE: 49}}, "fpga": {2: {FPGA: 51}}}, key="ns/pod1")
    found = node_summary(lab.cluster, "n1")
    assert found is not None and node_summaries(lab.cluster) == {"n1": found}
    assert found["deviceTotal"] == {CORE: "200", RATIO: "200", MEMORY: "160Gi", FPGA: "100"}
    assert found["deviceUsed"] == {CORE: "98", FPGA: "51"}
    assert found["deviceFree"][CORE] == "102"
    assert found["deviceTotalDetail"]["fpga"] == {"2": {FPGA: "100"}}
    assert found["deviceFreeDetail"]["gpu"]["1"][CORE] == "51"
    assert found["deviceUsedDetail"] == {
        "gpu": {"0": {CORE: "49"}, "1": {CORE: "49"}},
        "fpga": {"2": {FPGA: "51"}},
    }
    assert found["allocateSet"]["gpu"] == {"ns/pod1": {"0": {CORE: "49"}, "1": {CORE: "49"}}}
    assert node_summary(lab.cluster, "other") is None


# Histories


@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_given_twice(seed: int) -> None:
    """Judging agrees with allocating, offers are never too few, and trials leave no trace."""
    rng = random.Random(seed)
    lab = Lab(scoringStrategy={"type": rng.choice(["LeastAllocated", "MostAllocated"])})
    for name in ("n1", "n2", "n3"):
        lab.node(machine_e(), name=name, labels={MODEL: rng.choice(["H800", "T4"])})
    classes = [
        *(pods(share(100 * n)) for n in (1, 2, 3, 4)),
        *(pods(share(n)) for n in (10, 30, 50)),
        pods({SHARED: 2, RATIO: 60}),
        pods({MEMORY: 10 * GI}),
        pods({RDMA: 1}, hint={"rdma": {"vfSelector": {}}}),
        pods(
            share(200) | {RDMA: 1},
            joint={"deviceTypes": ["gpu", "rdma"]},
            hint={"rdma": {"vfSelector": {}}},
        ),
    ]
    for _ in range(150):
        if lab.cluster.claims and rng.random() < 0.35:
            lab.cluster.remove(rng.choice(list(lab.cluster.claims)))
            continue
        cls, row = rng.choice(classes), rng.randrange(3)
        fits = lab.reasons(cls)[row] == ""
        offers = int(lab.plugin.offers(lab.cluster, cls, lab.cluster.rows(), 1000)[row])
        with lab.cluster.trial():
            many = 0
            while isinstance(lab.place(cls, row), Grant):
                many += 1
        assert many <= offers
        assert (many > 0) == fits == isinstance(lab.place(cls, row), Grant)
        _nothing_twice(lab)


def _nothing_twice(lab: Lab) -> None:
    used: dict[tuple[str, str, int, str], int] = {}
    functions: list[tuple[str, str, str]] = []
    for claim in lab.cluster.claims.values():
        for of, given in claim.grants[NAME].devices.items():
            for each in given:
                functions += [(claim.node, of, vf.bus_id) for vf in each.functions]
                for name, amount in each.amounts.items():
                    key = (claim.node, of, each.minor, name)
                    used[key] = used.get(key, 0) + amount
    limits = {CORE: 100, RATIO: 100, RDMA: 100, MEMORY: 80 * GI}
    assert all(amount <= limits[key[3]] for key, amount in used.items())
    assert len(functions) == len(set(functions))


def test_another_cluster_is_looked_at_anew() -> None:
    lab, other = Lab(), Lab()
    lab.node([gpu(0)])
    other.node([gpu(0)])
    other.use({"gpu": {0: 100}})
    cls = pods(share(100))
    assert lab.reasons(cls) == [""]
    other.plugin = lab.plugin
    assert other.reasons(cls) == ["Insufficient gpu devices"]
    assert lab.reasons(cls) == [""]
