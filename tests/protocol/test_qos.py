from __future__ import annotations

import pytest

from koordlet.protocol import qos
from koordlet.protocol.qos import KubeQoS, PriorityClass, QoSClass

PROD, MID = PriorityClass.PROD, PriorityClass.MID
BATCH, FREE = PriorityClass.BATCH, PriorityClass.FREE


@pytest.mark.parametrize(
    ("label", "raw"),
    [*((cls.value, cls) for cls in QoSClass), ("ls", None), ("", None), (None, None)],
)
def test_raw_qos_is_exact(label: str | None, raw: QoSClass | None) -> None:
    assert qos.raw_qos(label) is raw


@pytest.mark.parametrize(
    ("raw", "kube", "expected"),
    [
        (None, KubeQoS.GUARANTEED, QoSClass.LSR),
        (None, KubeQoS.BURSTABLE, QoSClass.LS),
        (None, KubeQoS.BEST_EFFORT, QoSClass.BE),
        (QoSClass.BE, KubeQoS.GUARANTEED, QoSClass.BE),
        (QoSClass.SYSTEM, None, QoSClass.SYSTEM),
    ],
)
def test_qos_with_default(raw: QoSClass | None, kube: KubeQoS | None, expected: QoSClass) -> None:
    assert qos.qos_with_default(raw, kube) is expected


@pytest.mark.parametrize("cls", list(PriorityClass))
def test_priority_bands_are_inclusive(cls: PriorityClass) -> None:
    low, high, default = qos.PRIORITY_BANDS[cls]
    assert high - low == 999
    assert low + 500 == default
    for priority in (low, default, high):
        assert qos.priority_class_of(priority) is cls
    assert qos.priority_class_of(low - 1) is None
    assert qos.priority_class_of(high + 1) is None


@pytest.mark.parametrize(
    ("label", "priority", "expected"),
    [
        (None, 9500, PROD),
        (None, None, None),
        (None, 0, None),
        ("koord-batch", 9500, BATCH),
        ("koord-unknown", 9500, None),
        ("", 9500, None),
    ],
)
def test_a_priority_label_decides_alone(
    label: str | None, priority: int | None, expected: PriorityClass | None
) -> None:
    assert qos.raw_priority_class(label, priority) is expected


@pytest.mark.parametrize(
    ("raw", "cls", "expected"),
    [
        (FREE, QoSClass.LS, FREE),
        (None, QoSClass.SYSTEM, PROD),
        (None, QoSClass.LSE, PROD),
        (None, QoSClass.LSR, PROD),
        (None, QoSClass.LS, PROD),
        (None, QoSClass.BE, BATCH),
        (None, None, None),
    ],
)
def test_priority_class_with_default(
    raw: PriorityClass | None, cls: QoSClass | None, expected: PriorityClass | None
) -> None:
    assert qos.priority_class_with_default(raw, cls) is expected


@pytest.mark.parametrize(
    ("priority", "cls", "expected"),
    [(9001, BATCH, 9001), (0, BATCH, 5500), (None, PROD, 9500), (None, None, 0), (-1, MID, -1)],
)
def test_priority_with_default(
    priority: int | None, cls: PriorityClass | None, expected: int
) -> None:
    assert qos.priority_with_default(priority, cls) == expected


REFUSED = {
    *((QoSClass.LSR, cls) for cls in (MID, BATCH, FREE, None)),
    *((QoSClass.BE, cls) for cls in (PROD, None)),
}


@pytest.mark.parametrize("cls", [*QoSClass, None])
@pytest.mark.parametrize("priority", [*PriorityClass, None])
def test_combinations(cls: QoSClass | None, priority: PriorityClass | None) -> None:
    message = qos.refused_combination(cls, priority, cpu_request_milli=2000)
    assert (message is not None) == ((cls, priority) in REFUSED)


@pytest.mark.parametrize("cls", [QoSClass.LSE, QoSClass.LSR])
@pytest.mark.parametrize(("milli", "ok"), [(0, False), (1500, False), (1000, True)])
def test_pinned_classes_need_whole_cpus(cls: QoSClass, milli: int, ok: bool) -> None:
    assert (qos.refused_combination(cls, PROD, cpu_request_milli=milli) is None) == ok


def test_batch_resources_need_the_be_label() -> None:
    assert qos.refused_combination(None, BATCH, requests_batch=True)
    assert qos.refused_combination(QoSClass.BE, BATCH, requests_batch=True) is None


FULL = {"cpu": 1000, "memory": 64}


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([], KubeQoS.BEST_EFFORT),
        ([({}, {})], KubeQoS.BEST_EFFORT),
        ([({"kubernetes.io/batch-cpu": 1000}, {})], KubeQoS.BEST_EFFORT),
        ([({"cpu": 0}, {})], KubeQoS.BEST_EFFORT),
        ([(FULL, FULL)], KubeQoS.GUARANTEED),
        ([(FULL, FULL), ({}, {})], KubeQoS.BURSTABLE),
        ([({"cpu": 500, "memory": 64}, FULL)], KubeQoS.BURSTABLE),
        ([({"cpu": 1000}, {"cpu": 1000})], KubeQoS.BURSTABLE),
    ],
)
def test_kube_qos(
    containers: list[tuple[dict[str, int], dict[str, int]]], expected: KubeQoS
) -> None:
    assert qos.kube_qos_of(containers) is expected


HALF = {"cpu": 500, "memory": 32}


@pytest.mark.parametrize(
    ("whole", "containers", "expected"),
    [
        (({}, FULL), [({}, {})], KubeQoS.GUARANTEED),  # the limit is the request too
        ((FULL, FULL), [(HALF, {}), ({}, {})], KubeQoS.GUARANTEED),
        (({}, FULL), [(HALF, HALF)], KubeQoS.BURSTABLE),  # the containers' requests are the pod's
        (({}, {"cpu": 1000}), [({}, {})], KubeQoS.BURSTABLE),
        (({"cpu": 1000}, {}), [(FULL, FULL)], KubeQoS.BURSTABLE),
        (({}, {"kubernetes.io/batch-cpu": 1}), [(FULL, FULL)], KubeQoS.GUARANTEED),
    ],
)
def test_kube_qos_of_a_pod_with_resources_as_a_whole(
    whole: qos.Pair, containers: list[qos.Pair], expected: KubeQoS
) -> None:
    assert qos.kube_qos_of(containers, whole) is expected
