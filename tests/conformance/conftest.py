"""The two sites, made once: every script leaves its scratch group as it found it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance.runner import Site
from tests.conformance.sites import disks_here, fake_site, real_site


@pytest.fixture(scope="session")
def real() -> Iterator[Site]:
    if os.geteuid() != 0:
        pytest.skip("needs root to make cgroups")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    with real_site(f"koordlet-conformance-{os.getpid()}", disks_here()) as site:
        yield site


@pytest.fixture
def fake() -> Site:
    return fake_site("koordlet-conformance", disks_here())
