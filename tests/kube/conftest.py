"""Tests that ask for ``open_world`` run on the fake server and on a real one."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.kube.worlds import OpenWorld, World, fake_world, world_on
from tests.realkube.control_plane import ControlPlane, control_plane
from tests.realkube.kubectl import kubectl
from tests.realkube.swept import swept

DEPLOY = Path(__file__).parents[2] / "deploy"
CRDS = DEPLOY / "crds"


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("cluster")) as made:
        made.shared = True
        yield made


@pytest.fixture(scope="session")
def defined(real: ControlPlane) -> ControlPlane:
    """With our custom resources and the namespace of our leases."""
    kubectl(real, "apply", "--server-side", "-f", str(CRDS))
    kubectl(real, "apply", "-f", str(DEPLOY / "namespace.yaml"))
    kubectl(real, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    return real


@pytest.fixture(scope="module")
def plane(defined: ControlPlane) -> Iterator[ControlPlane]:
    """As the module before found it."""
    with swept(defined):
        yield defined


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.cluster)])
def open_world(request: pytest.FixtureRequest) -> OpenWorld:
    if request.param == "real":
        plane: ControlPlane = request.getfixturevalue("real")
        return lambda: world_on(plane.admin)

    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[World]:
        async with fake_world() as (world, _):
            yield world

    return opened
