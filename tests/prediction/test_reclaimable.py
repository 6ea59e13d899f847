"""The reference's predictors, by hand (docs/reference/metrics.md 4.5)."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.prediction.reclaimable import (
    Amounts,
    Predicted,
    ProdPod,
    Request,
    by_pod,
    by_priority,
    prod_peak_metric,
    prod_reclaimable_metric,
    reclaimable,
)

GIB = 1 << 30
NODE = Amounts(10_000, 100 * GIB)
WARM = ProdPod(Request(4000, 8 * GIB), Amounts(1000, 3 * GIB))
BUSY = ProdPod(Request(1000, 2 * GIB), Amounts(1500, GIB))
COLD = ProdPod(Request(2000, 4 * GIB), Amounts(100, GIB), is_cold=True)
UNKNOWN = ProdPod(Request(500, GIB), None)
ENDED = ProdPod(Request(3000, GIB), None, is_cold=True, is_active=False)


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ((), Predicted()),
        ((WARM,), Predicted(Amounts(3000, 5 * GIB), Amounts(1000, 3 * GIB))),
        # One that needs more than it asks for takes nothing away from the others.
        ((BUSY,), Predicted(Amounts(0, GIB), Amounts(1500, GIB))),
        ((WARM, BUSY), Predicted(Amounts(3000, 6 * GIB), Amounts(2500, 4 * GIB))),
        # Of what is not predicted all that it asks for counts as needed.
        ((COLD,), Predicted(Amounts(), Amounts(2000, 4 * GIB))),
        ((UNKNOWN,), Predicted(Amounts(), Amounts(500, GIB))),
        ((WARM, COLD, UNKNOWN), Predicted(Amounts(3000, 5 * GIB), Amounts(3500, 8 * GIB))),
    ],
)
def test_pod_by_pod(pods: tuple[ProdPod, ...], found: Predicted) -> None:
    assert by_pod(pods, NODE) == found


def test_no_more_is_free_than_the_node_has() -> None:
    assert by_pod((WARM,), Amounts(1200, 2 * GIB)).reclaimable == Amounts(200, 0)


def test_without_a_known_request_nothing_is_free() -> None:
    pod = ProdPod(Request(None, 8 * GIB), Amounts(1000, 3 * GIB))
    assert by_pod((pod,), NODE) == Predicted(Amounts(0, 5 * GIB), Amounts(1000, 3 * GIB))
    # A cold one then counts for what it seems to need, rather than for nothing.
    assert by_pod((pod._replace(is_cold=True),), NODE).peak == Amounts(1000, 8 * GIB)
    assert by_priority((pod,), Amounts(500, GIB), NODE).reclaimable == Amounts(0, 7 * GIB)


@pytest.mark.parametrize(
    ("pods", "needed", "free"),
    [
        ((), Amounts(500, GIB), Amounts()),
        ((WARM,), Amounts(1500, 4 * GIB), Amounts(2500, 4 * GIB)),
        # A cold pod asks for what it asks for; one without a model is passed over.
        ((WARM, COLD), Amounts(1500, 4 * GIB), Amounts(4500, 8 * GIB)),
        ((WARM, UNKNOWN), Amounts(1500, 4 * GIB), Amounts(2500, 4 * GIB)),
        ((WARM,), Amounts(9500, 99 * GIB), Amounts(0, 0)),
        ((WARM,) * 5, Amounts(9500, 30 * GIB), Amounts(500, 10 * GIB)),
    ],
)
def test_by_classes(pods: tuple[ProdPod, ...], needed: Amounts, free: Amounts) -> None:
    assert by_priority(pods, needed, NODE) == Predicted(free, needed)


def test_the_smaller_result_and_the_larger_peak_count() -> None:
    found = reclaimable((WARM, BUSY, ENDED), Amounts(3000, 2 * GIB), NODE)
    assert found.by_pod == Predicted(Amounts(3000, 6 * GIB), Amounts(2500, 4 * GIB))
    assert found.by_priority == Predicted(Amounts(2000, 8 * GIB), Amounts(3000, 2 * GIB))
    assert found.combined == Predicted(Amounts(2000, 6 * GIB), Amounts(3000, 4 * GIB))
    assert list(found.by_predictor()) == [
        "podReclaimablePredictor",
        "priorityReclaimablePredictor",
        "minPredictor",
    ]


def test_a_pod_that_has_ended_needs_nothing_however_young_it_was() -> None:
    """In the reference a young one counts, because its age is looked at first (D-17)."""
    assert reclaimable((ENDED,), Amounts(), NODE).combined == Predicted()


def test_as_a_node_metric_has_it() -> None:
    found = reclaimable((WARM, BUSY), Amounts(3000, 2 * GIB), NODE)
    assert msgspec.to_builtins(prod_reclaimable_metric(found)) == {
        "resource": {"resources": {"cpu": "2", "memory": "6Gi"}}
    }
    assert msgspec.to_builtins(prod_peak_metric(found)) == {
        "resource": {"resources": {"cpu": "3", "memory": "4Gi"}}
    }
    odd = reclaimable((ProdPod(Request(1555, 1_000_001), Amounts(1, 1)),), Amounts(), NODE)
    assert msgspec.to_builtins(prod_reclaimable_metric(odd)) == {
        "resource": {"resources": {"cpu": "1554m", "memory": "1000000"}}
    }
    assert msgspec.to_builtins(prod_reclaimable_metric(None)) == {"resource": {}}
    assert prod_peak_metric(None) is None
