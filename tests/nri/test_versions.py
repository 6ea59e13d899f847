from __future__ import annotations

import pytest

from koordlet.nri.versions import tells_pod_updates


@pytest.mark.parametrize(
    ("runtime", "version", "nri", "expected"),
    [
        ("containerd", "1.7.24~ds1", "", False),
        ("containerd", "2.1.9+unknown", "", False),
        ("containerd", "v2.2.0", "", True),
        ("containerd", "v2.4.0", "v0.12.3", True),
        ("containerd", "v2.9.0", "v0.9.0", False),
        ("cri-o", "1.37.0", "v0.12.5", True),
        ("cri-o", "1.33.0", "", False),
        ("containerd", "", "", False),
    ],
)
def test_who_tells_that_a_pod_is_resized(
    runtime: str, version: str, nri: str, expected: bool
) -> None:
    assert tells_pod_updates(runtime, version, nri) is expected
