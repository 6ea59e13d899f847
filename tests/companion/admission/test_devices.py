"""Shares of accelerators (docs/reference/protocol.md 6.2 step 4, 6.3 stage 5)."""

from __future__ import annotations

import pytest

from koord_scheduler.admission.devices import device_refusal
from koord_scheduler.admission.pod_mutation import Facts, mutate_pod
from koord_scheduler.admission.words import Gates
from tests.companion.admission.pods import container, pod

K = "koordinator.sh/"
MUTATED: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"cpu": "1"}, {"cpu": "1"}),
    (
        {f"{K}gpu": "50"},
        {f"{K}gpu-core": "50", f"{K}gpu-memory-ratio": "50", f"{K}gpu.shared": "1"},
    ),
    (
        {f"{K}gpu": "200"},
        {f"{K}gpu-core": "200", f"{K}gpu-memory-ratio": "200", f"{K}gpu.shared": "2"},
    ),
    ({f"{K}gpu-memory": "8Gi"}, {f"{K}gpu-memory": "8Gi", f"{K}gpu.shared": "1"}),
    (
        {f"{K}gpu-memory-ratio": "300"},
        {f"{K}gpu-memory-ratio": "300", f"{K}gpu.shared": "3"},
    ),
    (
        {f"{K}gpu-memory-ratio": "150"},
        {f"{K}gpu-memory-ratio": "150", f"{K}gpu.shared": "1"},
    ),
    ({f"{K}gpu-core": "200"}, {f"{K}gpu-core": "200", f"{K}gpu.shared": "2"}),
    (
        {f"{K}gpu-core": "200", f"{K}gpu-memory-ratio": "50"},
        {f"{K}gpu-core": "200", f"{K}gpu-memory-ratio": "50", f"{K}gpu.shared": "1"},
    ),
    (
        {f"{K}gpu.shared": "4", f"{K}gpu-memory-ratio": "100"},
        {f"{K}gpu.shared": "4", f"{K}gpu-memory-ratio": "100"},
    ),
]


@pytest.mark.parametrize(("asked", "becomes"), MUTATED)
def test_the_normal_form(asked: dict[str, str], becomes: dict[str, str]) -> None:
    tree = pod(container(requests=asked), initContainers=[container("i", requests=asked)])
    made = mutate_pod(tree, "ns", Facts(), Gates(), lambda: 0.0).pod
    (main,), (init,) = made["spec"]["containers"], made["spec"]["initContainers"]
    assert main["resources"]["requests"] == becomes
    if becomes != asked:
        # Both: the API server takes no extended resource that is not limited alike.
        added = {k: v for k, v in becomes.items() if k not in asked}
        assert main["resources"]["limits"].items() >= added.items()
    assert init["resources"]["requests"] == asked
    off = Gates(disable_device_resource_spec=True)
    assert mutate_pod(tree, "ns", Facts(), off, lambda: 0.0).pod == tree


REFUSED: list[tuple[dict[str, str], str]] = [
    ({f"{K}gpu": "50"}, ""),
    ({f"{K}gpu": "100"}, ""),
    ({f"{K}gpu": "300"}, ""),
    ({f"{K}gpu": "0"}, "above 0"),
    ({f"{K}gpu": "-1"}, "above 0"),
    ({f"{K}gpu": "150"}, "multiple of 100"),
    ({f"{K}gpu": "100", f"{K}gpu.shared": "1"}, "exclude each other"),
    ({f"{K}gpu.shared": "0", f"{K}gpu-memory": "1"}, "above 0"),
    ({f"{K}gpu.shared": "1500m", f"{K}gpu-memory": "1"}, "whole number"),
    ({f"{K}gpu.shared": "1"}, "needs either"),
    ({f"{K}gpu.shared": "1", f"{K}gpu-memory": "1", f"{K}gpu-memory-ratio": "1"}, "needs either"),
    ({f"{K}gpu.shared": "1", "huawei.com/npu-core": "4"}, ""),
    ({f"{K}gpu.shared": "1", f"{K}gpu-memory": "8Gi"}, ""),
    ({f"{K}gpu.shared": "2", f"{K}gpu-memory-ratio": "100", f"{K}gpu-core": "50"}, ""),
    ({f"{K}gpu.shared": "2", f"{K}gpu-memory-ratio": "101"}, "multiple of"),
    ({f"{K}gpu.shared": "3", f"{K}gpu-memory": "1", f"{K}gpu-core": "100"}, "multiple of"),
    ({"nvidia.com/gpu": "1"}, ""),
]


@pytest.mark.parametrize(("asked", "why"), REFUSED)
def test_what_no_node_could_give(asked: dict[str, str], why: str) -> None:
    found = device_refusal(pod(container("a"), container("b", requests=asked)))
    assert why in found and bool(found) == bool(why)
    assert not found or found.startswith("container b: ")
