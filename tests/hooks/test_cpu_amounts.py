"""Milli-cores, shares and quotas (docs/reference/hooks.md 1.7, 2.3)."""

from __future__ import annotations

import pytest

from koordlet.decision.cpu_amounts import milli_to_quota_us, milli_to_shares, normalized_quota_us


@pytest.mark.parametrize(
    ("milli", "shares", "quota_us"),
    [
        *((-5, 2, -1), (0, 2, -1), (1, 2, 1000), (9, 9, 1000), (10, 10, 1000)),
        *((500, 512, 50000), (1000, 1024, 100000), (300000, 262144, 30000000)),
        *((175_921_860_444, 262144, 17_592_186_044_400), (175_921_860_445, 262144, -1)),
    ],
)
def test_milli_cores(milli: int, shares: int, quota_us: int) -> None:
    assert milli_to_shares(milli) == shares
    assert milli_to_quota_us(milli) == quota_us


def test_another_period() -> None:
    assert milli_to_quota_us(1500, 20_000) == 30_000
    assert milli_to_quota_us(10, 20_000) == 1000


@pytest.mark.parametrize(
    ("quota_us", "ratio", "expected"),
    [
        *((-1, 1.2, -1), (100_000, None, 100_000), (100_000, 1.0, 100_000)),
        *((100_000, 0.8, 100_000), (120_000, 1.2, 100_000), (100_000, 1.5, 66_667)),
        (1000, 2.0, 1000),
    ],
)
def test_normalized(quota_us: int, ratio: float | None, expected: int) -> None:
    assert normalized_quota_us(quota_us, ratio) == expected
