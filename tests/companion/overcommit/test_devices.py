"""Devices as resources (docs/reference/central.md 1.6)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koord_scheduler.model import reading, wire
from koord_scheduler.model.facts import DeviceFacts
from koord_scheduler.overcommit.devices import devices

CARD = {
    "koordinator.sh/gpu-core": "100",
    "koordinator.sh/gpu-memory": "80Gi",
    "koordinator.sh/gpu-memory-ratio": "100",
}
VENDOR = "node.koordinator.sh/gpu-vendor"
MODEL = "node.koordinator.sh/gpu-model"
GONE = (
    *("koordinator.sh/gpu", "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory"),
    *("koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu.shared", "huawei.com/npu-core"),
    *("huawei.com/npu-cpu", "huawei.com/npu-dvpp"),
)


def device(*given: dict[str, Any], labels: dict[str, str] | None = None) -> DeviceFacts:
    spec = msgspec.convert({"devices": list(given)}, wire.DeviceSpec)
    return reading.device_facts(labels or {}, spec)


def gpu(health: bool = True, **resources: str) -> dict[str, Any]:
    return {"type": "gpu", "health": health, "resources": {**CARD, **resources}}


def present(of: DeviceFacts | None, **options: bool) -> dict[str, int]:
    return {k: v for k, v in devices(of, **options).resources.items() if v is not None}


def test_healthy_cards_are_summed() -> None:
    of = device(gpu(), gpu(), gpu(health=False), labels={VENDOR: "nvidia", MODEL: "H100", "a": "b"})
    assert present(of) == {
        "koordinator.sh/gpu": 200,
        "koordinator.sh/gpu-core": 200,
        "koordinator.sh/gpu-memory": 160 << 30,
        "koordinator.sh/gpu-memory-ratio": 200,
    }
    assert devices(of).labels == {VENDOR: "nvidia", MODEL: "H100"}


@pytest.mark.parametrize(("vendor", "there"), [("", True), ("nvidia", True), ("huawei", False)])
def test_shares_of_a_card_are_those_of_one_vendor(vendor: str, there: bool) -> None:
    of = device(gpu(), labels={VENDOR: vendor} if vendor else {})
    assert ("koordinator.sh/gpu" in present(of)) is there


def test_shared_cards_are_counted_behind_a_gate() -> None:
    assert present(device(gpu(), gpu()), sync_gpu_shared=True)["koordinator.sh/gpu.shared"] == 200


def test_other_resources_of_a_card_are_summed_too() -> None:
    of = device(gpu(**{"huawei.com/npu-core": "8"}), gpu(**{"huawei.com/npu-core": "8"}))
    assert present(of)["huawei.com/npu-core"] == 16


@pytest.mark.parametrize(
    "of", [None, device(), device(gpu(health=False), labels={VENDOR: "nvidia"})]
)
def test_without_a_healthy_card_all_goes_and_labels_stay(of: DeviceFacts | None) -> None:
    found = devices(of)
    assert {name: found.resources[name] for name in GONE} == dict.fromkeys(GONE)
    assert found.labels == {}
    assert found.resources["koordinator.sh/rdma"] is None


def test_rdma_cards_are_counted_in_percent() -> None:
    card = {"type": "rdma", "health": True, "resources": {"koordinator.sh/rdma": "100"}}
    of = device(card, card, {**card, "health": False})
    assert present(of) == {"koordinator.sh/rdma": 200}
