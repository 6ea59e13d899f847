"""The Device object, by hand from docs/reference/metrics.md 6.5 and
docs/reference/protocol.md 4.3."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from koordlet.decision.device_report import device_report
from koordlet.decision.devices import (
    HEALTHY,
    Gpu,
    Health,
    Inventory,
    Link,
    Place,
    RdmaDevice,
    RdmaPort,
    State,
    Xpu,
)
from koordlet.protocol.quantity import parse_quantity

NOW = 1_700_000_000.0
TIME = "2023-11-14T22:13:20Z"
PLACE = Place("0000:3b:00.0", "pci0000:3a", 1)
GPU = Gpu("GPU-a", 0, "NVIDIA H100 80GB HBM3", PLACE, 80 << 30, HEALTHY)
CARD = RdmaDevice("mlx5_0", 0, PLACE, (RdmaPort(1, "ACTIVE"),), health=HEALTHY)
ASCEND = Xpu("u-1", 1, "huawei", "Ascend-910B", place=Place("", "", None))
TOPOLOGY = {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:3a", "busID": "0000:3b:00.0"}


def shown(found: Inventory, **options: Any) -> Any:
    """As it goes over the wire."""
    return json.loads(msgspec.json.encode(device_report(found, NOW, **options)))


def gpu(**changes: Any) -> Gpu:
    return msgspec.structs.replace(GPU, **changes)


def test_a_node_without_devices_says_so() -> None:
    assert shown(Inventory()) == {}


def test_a_gpu() -> None:
    assert shown(Inventory((GPU,), "550.54.15")) == {
        "labels": {
            "node.koordinator.sh/gpu-vendor": "nvidia",
            "node.koordinator.sh/gpu-model": "H100-80GB-HBM3",
            "node.koordinator.sh/gpu-driver-version": "550.54.15",
        },
        "devices": [
            {
                "type": "gpu",
                "id": "GPU-a",
                "minor": 0,
                "health": True,
                "resources": {
                    "koordinator.sh/gpu-core": "100",
                    "koordinator.sh/gpu-memory": "80Gi",
                    "koordinator.sh/gpu-memory-ratio": "100",
                },
                "topology": TOPOLOGY,
                "conditions": [
                    {
                        "type": "Healthy",
                        "status": "True",
                        "reason": "DeviceHealthy",
                        "message": "device is healthy",
                        "lastTransitionTime": TIME,
                    }
                ],
            }
        ],
    }


def test_gpus_are_sorted_by_minor() -> None:
    found = shown(Inventory((gpu(minor=10), gpu(minor=2), gpu(minor=0))))
    assert [each["minor"] for each in found["devices"]] == [0, 2, 10]


@pytest.mark.parametrize(
    ("health", "is_healthy", "condition"),
    [
        (HEALTHY, True, ("True", "DeviceHealthy", "device is healthy")),
        (Health(State.UNHEALTHY, "Xid79", "why"), False, ("False", "Xid79", "why")),
        (Health(State.UNHEALTHY, "", "why"), False, ("False", "Unknown", "why")),
        (Health(), True, None),  # nobody watches
        (
            Health(State.UNKNOWN, "DeviceHealthCheckNotSupported", "no events"),
            True,
            ("Unknown", "DeviceHealthCheckNotSupported", "no events"),
        ),
    ],
)
def test_health(health: Health, is_healthy: bool, condition: tuple[str, str, str] | None) -> None:
    (device,) = shown(Inventory((gpu(health=health),)))["devices"]
    assert device["health"] is is_healthy
    conditions = [(c["status"], c["reason"], c["message"]) for c in device.get("conditions", ())]
    assert conditions == ([condition] if condition else [])


def test_the_time_of_a_condition_is_that_of_its_change() -> None:
    """A new time alone would be a change at each report (D-4)."""
    first = device_report(Inventory((GPU,)), NOW)
    same = device_report(Inventory((GPU,)), NOW + 60, first)
    assert same == first
    bad = gpu(health=Health(State.UNHEALTHY, "Xid79", "why"))
    changed = device_report(Inventory((bad,)), NOW + 60, same)
    assert changed.devices[0].conditions[0].last_transition_time == "2023-11-14T22:14:20Z"
    other = gpu(health=Health(State.UNHEALTHY, "Xid48", "why"))
    again = device_report(Inventory((other,)), NOW + 120, changed)
    assert again.devices[0].conditions[0].reason == "Xid48"
    assert again.devices[0].conditions[0].last_transition_time == "2023-11-14T22:14:20Z"


@pytest.mark.parametrize(
    "place", [Place(), Place("0000:3b:00.0", "", 0), Place("0000:3b:00.0", "pci0000:3a", None)]
)
def test_a_place_that_is_partly_known_is_left_out(place: Place) -> None:
    (device,) = shown(Inventory((gpu(place=place),)))["devices"]
    assert "topology" not in device


@pytest.mark.parametrize(
    ("memory_bytes", "text"),
    [
        (80 << 30, "80Gi"),
        (81559 << 20, "81559Mi"),
        ((81559 << 20) + 1024, "83516417Ki"),
        (1001, "1001"),
    ],
)
def test_memory_is_exact(memory_bytes: int, text: str) -> None:
    (device,) = shown(Inventory((gpu(memory_bytes=memory_bytes),)))["devices"]
    assert device["resources"]["koordinator.sh/gpu-memory"] == text


def test_memory_that_nobody_knows_is_left_out() -> None:
    (device,) = shown(Inventory((gpu(memory_bytes=None),)))["devices"]
    assert sorted(device["resources"]) == [
        "koordinator.sh/gpu-core",
        "koordinator.sh/gpu-memory-ratio",
    ]


def test_a_node_with_two_models_names_none() -> None:
    """The scheduler would take the label for each card."""
    labels = shown(Inventory((GPU, gpu(uuid="b", model="NVIDIA L4"))))["labels"]
    assert labels == {"node.koordinator.sh/gpu-vendor": "nvidia"}


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("Tesla T4", "Tesla-T4"),
        ("NVIDIA (engineering sample)", "engineering-sample"),
        ("NVIDIA " + "x" * 80, "x" * 63),
    ],
)
def test_a_model_becomes_the_value_of_a_label(model: str, label: str) -> None:
    found = shown(Inventory((gpu(model=model),)))
    assert found["labels"]["node.koordinator.sh/gpu-model"] == label


def test_an_accelerator_out_of_a_file() -> None:
    """It stands in place of GPUs."""
    xpu = Xpu(
        uuid="u-0",
        minor=0,
        vendor="huawei",
        model="Ascend 910B",
        resources={
            "koordinator.sh/gpu-core": parse_quantity("100"),
            "koordinator.sh/gpu-memory": parse_quantity("64Gi"),
            "huawei.com/npu-dvpp": parse_quantity("100"),
        },
        place=PLACE,
        health=Health(State.UNHEALTHY, "80E01801", "bad"),
    )
    assert shown(Inventory((GPU,), "550", xpus=(xpu,))) == {
        "labels": {
            "node.koordinator.sh/gpu-vendor": "huawei",
            "node.koordinator.sh/gpu-model": "Ascend-910B",
        },
        "devices": [
            {
                "type": "gpu",
                "id": "u-0",
                "minor": 0,
                "health": False,
                "resources": {
                    "huawei.com/npu-dvpp": "100",
                    "koordinator.sh/gpu-core": "100",
                    "koordinator.sh/gpu-memory": "64Gi",
                    "koordinator.sh/gpu-memory-ratio": "100",
                },
                "topology": TOPOLOGY,
                "conditions": [
                    {
                        "type": "Healthy",
                        "status": "False",
                        "reason": "80E01801",
                        "message": "bad",
                        "lastTransitionTime": TIME,
                    }
                ],
            }
        ],
    }


def test_accelerators_are_sorted_by_uuid_and_say_what_they_know() -> None:
    found = shown(Inventory(xpus=(msgspec.structs.replace(ASCEND, uuid="u-9"), ASCEND)))
    assert [each["id"] for each in found["devices"]] == ["u-1", "u-9"]
    first = found["devices"][0]
    assert first["topology"] == {"socketID": -1, "nodeID": -1, "pcieID": ""}
    assert first["health"] is True
    assert "conditions" not in first
    assert first["resources"] == {"koordinator.sh/gpu-memory-ratio": "100"}


def test_without_a_topology_there_is_none() -> None:
    (device,) = shown(Inventory(xpus=(msgspec.structs.replace(ASCEND, place=None),)))["devices"]
    assert "topology" not in device


@pytest.mark.parametrize(("binding", "policy"), [(True, "Honor"), (False, "Prefer")])
def test_partitions_are_what_links_join(binding: bool, policy: str) -> None:
    """0 and 1 name each other, which is one partition; 0 to 3 are another."""

    def xpu(minor: int, *links: Link) -> Xpu:
        return Xpu(f"u-{minor}", minor, links=links, links_are_binding=binding)

    four = Link((0, 1, 2, 3), "HCCS")
    found = shown(
        Inventory(
            xpus=(
                xpu(0, Link((1,), "SIO"), four),
                xpu(1, Link((0,), "SIO"), four),
                xpu(2, Link((3,), "SIO"), four),
                xpu(3, four),
            )
        )
    )
    assert found["labels"] == {"node.koordinator.sh/gpu-partition-policy": policy}
    (text,) = found["annotations"].values()
    assert list(found["annotations"]) == ["scheduling.koordinator.sh/gpu-partitions"]
    assert json.loads(text) == {
        "2": [
            {"minors": [0, 1], "gpuLinkType": "SIO", "allocationScore": 1},
            {"minors": [2, 3], "gpuLinkType": "SIO", "allocationScore": 1},
        ],
        "4": [{"minors": [0, 1, 2, 3], "gpuLinkType": "HCCS", "allocationScore": 1}],
    }


def test_gpus_of_files_alone() -> None:
    assert shown(Inventory((GPU,), "550"), files_only=True) == {}


def test_an_rdma_device_with_virtual_functions() -> None:
    card = msgspec.structs.replace(CARD, virtual_functions=("0000:3b:00.3", "0000:3b:00.2"))
    assert shown(Inventory(rdma=(card,))) == {
        "devices": [
            {
                "type": "rdma",
                "id": "0000:3b:00.0",
                "minor": 0,
                "health": True,
                "resources": {"koordinator.sh/rdma": "100"},
                "topology": TOPOLOGY,
                "vfGroups": [
                    {
                        "vfs": [
                            {"minor": -1, "busID": "0000:3b:00.2"},
                            {"minor": -1, "busID": "0000:3b:00.3"},
                        ]
                    }
                ],
            }
        ]
    }


def test_rdma_devices_follow_gpus_sorted_by_minor() -> None:
    """Who is on no PCI bus cannot be handed out."""
    second = msgspec.structs.replace(
        CARD, name="mlx5_1", minor=1, place=Place("0000:5e:00.0"), health=Health(State.UNHEALTHY)
    )
    software = RdmaDevice("rxe0", 2, Place(), health=HEALTHY)
    found = shown(Inventory((GPU,), rdma=(software, second, CARD)))["devices"]
    assert [(each["type"], each["minor"], each["health"]) for each in found] == [
        ("gpu", 0, True),
        ("rdma", 0, True),
        ("rdma", 1, False),
    ]
    assert "vfGroups" not in found[1]
    assert "topology" not in found[2]
