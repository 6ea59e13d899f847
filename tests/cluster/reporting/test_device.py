"""What is written to the Device object."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlet.cluster.reporting.device import changes, devices_there
from koordlet.decision.device_report import device_report
from koordlet.decision.devices import HEALTHY, Gpu, Inventory, Place
from koordlet.protocol.objects.device import Device

PLACE = Place("0000:3b:00.0", "pci0000:3a", 0)
INVENTORY = Inventory(
    (
        Gpu("GPU-1", 0, "NVIDIA A100", PLACE, 80 << 30, HEALTHY),
        Gpu("GPU-2", 1, "NVIDIA A100", PLACE, 80 << 30, HEALTHY),
    ),
    "550.54",
)


def there(wanted: Device) -> tuple[dict[str, str], dict[str, str], dict[str, Any]]:
    spec = msgspec.json.decode(msgspec.json.encode({"devices": wanted.devices}))
    return dict(wanted.labels), dict(wanted.annotations), spec


def test_nothing_differs() -> None:
    """D-4: the time of a condition is not taken anew, so it makes no write."""
    wanted = device_report(INVENTORY, 1000.0)
    labels, annotations, spec = there(wanted)
    spec["devices"].reverse()
    assert changes(wanted, labels, annotations, spec) == {}
    found = devices_there(spec)
    assert found is not None
    again = device_report(INVENTORY, 2000.0, Device({}, {}, found))
    assert changes(again, labels, annotations, spec) == {}


def test_what_differs_alone() -> None:
    wanted = device_report(INVENTORY, 1000.0)
    labels, annotations, spec = there(wanted)
    labels["node.koordinator.sh/gpu-model"] = "other"
    labels["node.koordinator.sh/gpu-partition-policy"] = "Honor"
    labels["mine"] = "stays"
    annotations["scheduling.koordinator.sh/gpu-partitions"] = "{}"
    assert changes(wanted, labels, annotations, spec) == {
        "metadata": {
            "labels": {
                "node.koordinator.sh/gpu-model": "A100",
                "node.koordinator.sh/gpu-partition-policy": None,
            },
            "annotations": {"scheduling.koordinator.sh/gpu-partitions": None},
        }
    }
    spec["devices"][0]["health"] = False
    labels, annotations, _ = there(wanted)
    patch = changes(wanted, labels, annotations, spec)
    assert list(patch) == ["spec"] and len(patch["spec"]["devices"]) == 2


def test_what_is_no_list_of_devices_is_written_anew() -> None:
    wanted = device_report(Inventory(), 1000.0)
    assert changes(wanted, {}, {}, {}) == {}
    assert changes(wanted, {}, {}, {"devices": "none"}) == {"spec": {"devices": ()}}
