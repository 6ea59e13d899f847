"""RDMA devices: docs/reference/hooks.md 2.7."""

from __future__ import annotations

import json

import pytest

from koordlet.decision.snapshot import RDMA_CM, DeviceNode
from koordlet.decision.strategy import Stage
from koordlet.hooks.combine import combine
from koordlet.hooks.rdma import HOOK
from tests.hooks.build import container_of
from tests.qos.build import node, pod, snapshot

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
CM = DeviceNode("/dev/infiniband/rdma_cm", 10, 58)
FIRST = DeviceNode("/dev/infiniband/uverbs0", 231, 192)
SECOND = DeviceNode("/dev/infiniband/uverbs1", 231, 193)
VERBS = {RDMA_CM: CM, "0000:09:00.0": FIRST, "0000:09:00.2": SECOND}


def asked(devices, verbs=VERBS):
    text = devices if isinstance(devices, str) else json.dumps({"rdma": devices})
    subject = container_of(pod("p", annotations={ALLOCATED: text}, name="a", namespace="n"))
    machine = snapshot(node(4, verbs_devices=verbs))
    return combine((HOOK,), subject, machine, Stage.CREATE_CONTAINER)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ([{"id": "0000:09:00.0"}], [CM, FIRST]),
        ([{"id": "0000:09:00.0"}, {"id": "0000:09:00.2"}], [CM, FIRST, SECOND]),
        (
            [{"id": "0000:09:00.0", "extension": {"vfs": [{"busID": "0000:09:00.2"}]}}],
            [CM, SECOND],
        ),
        ([{"id": "0000:09:00.0", "extension": {"vfs": []}}], [CM, FIRST]),
        ([{"busID": "0000:09:00.0"}], [CM, FIRST]),
        ([{"id": "0000:09:00.0"}, {"id": "0000:09:00.0"}], [CM, FIRST]),
    ],
)
def test_devices_of_the_allocation(devices, expected) -> None:
    combined = asked(devices)
    assert [each.node for each in combined.devices] == expected
    assert {each.file_mode for each in combined.devices} == {0o666}
    assert not combined.notes


@pytest.mark.parametrize("text", ["{}", '{"rdma":[]}', '{"gpu":[{"minor":0}]}'])
def test_without_an_allocation_there_is_no_device(text) -> None:
    assert asked(text).is_empty


def test_what_the_node_does_not_have_is_named_and_the_rest_stays() -> None:
    combined = asked([{"id": "0000:09:00.0"}, {"id": "0000:ff:00.0"}])
    assert [each.node for each in combined.devices] == [CM, FIRST]
    [(_, note)] = combined.notes
    assert note.rule == "rdma-devices.missing"
    assert note.text.startswith("pod n/a: ")
    assert "0000:ff:00.0" in note.text


def test_a_node_without_rdma_loses_no_pod() -> None:
    combined = asked([{"id": "0000:09:00.0"}], verbs={})
    assert combined.is_empty
    assert not combined.failed
    assert len(combined.notes) == 2
