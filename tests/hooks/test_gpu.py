"""GPU variables: docs/reference/hooks.md 2.6."""

from __future__ import annotations

import json

import pytest

from koordlet.decision.given import VARIABLES
from koordlet.decision.strategy import Level, Stage
from koordlet.hooks.combine import combine
from koordlet.hooks.gpu import HAMI_LOCK_DIRECTORY, HOOK, GpuEnvOptions
from tests.hooks.build import STOCK, container_of
from tests.qos.build import node, pod, snapshot

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
PROVIDER = "koordinator.sh/gpu-isolation-provider"
LIBRARY = "/opt/hami/libvgpu.so"
HOOK = HOOK.with_options(GpuEnvOptions(hami_library=LIBRARY))
HALF = {
    "koordinator.sh/gpu-core": "50",
    "koordinator.sh/gpu-memory": "8Gi",
    "koordinator.sh/gpu-memory-ratio": "50",
}


def asked(gpus, *, provider: str | None = None, level: Level = Level.CONTAINER):
    text = gpus if isinstance(gpus, str) else json.dumps({"gpu": gpus})
    labels = {PROVIDER: provider} if provider is not None else {}
    subject = container_of(pod("p", labels=labels, annotations={ALLOCATED: text}), level=level)
    machine = snapshot(node(4, capabilities=STOCK))
    return combine((HOOK,), subject, machine, Stage.CREATE_CONTAINER)


def env(combined) -> dict[str, str]:
    return {each.name: each.value for each in combined.env}


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([{"minor": 0}], "0"),
        ([{"minor": 3}, {"minor": 1}], "3,1"),
        ([{}], "0"),
        ([{"Minor": 2, "busID": "0000:09:00.0", "id": "GPU-1"}], "2"),
    ],
)
def test_minors_in_the_order_of_the_list(gpus, expected) -> None:
    combined = asked(gpus)
    assert env(combined) == {"NVIDIA_VISIBLE_DEVICES": expected}
    assert not combined.mounts
    assert not combined.notes


@pytest.mark.parametrize("text", ["{}", '{"gpu":[]}', '{"gpu":null}', "null", '{"rdma":[{}]}'])
def test_no_gpu_no_variable(text) -> None:
    assert asked(text).is_empty


def test_a_bad_annotation_is_told_and_loses_nothing_else() -> None:
    combined = asked('{"gpu":[{"minor":"zero"}]}')
    assert combined.is_empty
    assert "$.gpu[0].minor" in combined.refused[0][1]


def test_the_sandbox_and_a_pod_without_annotation_get_nothing() -> None:
    assert asked([{"minor": 0}], level=Level.SANDBOX).is_empty
    subject = container_of(pod("p"))
    assert combine((HOOK,), subject, snapshot(node(4))).is_empty


@pytest.mark.parametrize("provider", ["HAMi-core", "hami-core", "HAMI-CORE"])
def test_a_share_of_a_card(provider) -> None:
    combined = asked([{"minor": 1, "resources": HALF}], provider=provider)
    assert env(combined) == {
        "NVIDIA_VISIBLE_DEVICES": "1",
        "CUDA_DEVICE_MEMORY_LIMIT": str(8 << 30),
        "CUDA_DEVICE_SM_LIMIT": "50",
        "LD_PRELOAD": LIBRARY,
    }
    mounts = {(each.source, each.destination, each.options) for each in combined.mounts}
    assert mounts == {
        (LIBRARY, LIBRARY, ("rbind",)),
        (HAMI_LOCK_DIRECTORY, HAMI_LOCK_DIRECTORY, ("rbind",)),
    }


def test_without_a_share_of_the_cores_there_is_no_limit_of_them() -> None:
    resources = {key: value for key, value in HALF.items() if not key.endswith("gpu-core")}
    assert "CUDA_DEVICE_SM_LIMIT" not in env(
        asked([{"resources": resources}], provider="hami-core")
    )


@pytest.mark.parametrize("ratio", ["100", "200"])
def test_whole_cards_are_not_divided(ratio) -> None:
    resources = HALF | {"koordinator.sh/gpu-memory-ratio": ratio}
    combined = asked([{"resources": resources}], provider="HAMi-core")
    assert env(combined) == {"NVIDIA_VISIBLE_DEVICES": "0"}
    assert not combined.notes


@pytest.mark.parametrize(
    "missing", ["koordinator.sh/gpu-memory-ratio", "koordinator.sh/gpu-memory"]
)
def test_what_is_missing_is_named_and_the_card_stays_visible(missing) -> None:
    resources = {key: value for key, value in HALF.items() if key != missing}
    combined = asked([{"minor": 2, "resources": resources}], provider="HAMi-core")
    assert env(combined) == {"NVIDIA_VISIBLE_DEVICES": "2"}
    assert not combined.mounts
    [(_, note)] = combined.notes
    assert note.rule == "gpu-env.no-share"
    assert f"no {missing} for GPU 2" in note.text


def test_an_unknown_provider_is_told_and_the_card_stays_visible() -> None:
    combined = asked([{"resources": HALF}], provider="HAMi")
    assert env(combined) == {"NVIDIA_VISIBLE_DEVICES": "0"}
    [(_, note)] = combined.notes
    assert note.rule == "gpu-env.unknown-provider"
    assert "HAMi-core" in note.text


def test_every_variable_that_is_set_may_be_looked_at_in_a_container() -> None:
    found = asked([{"minor": 1, "resources": HALF}], provider="HAMi-core")
    assert env(found).keys() == VARIABLES
