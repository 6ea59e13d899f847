"""One real containerd of each version for all tests, and a kubelet's hands on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.runtime import machine
from tests.runtime.config import SUITES
from tests.runtime.containerd import Containerd, binaries_of
from tests.runtime.cri import Runtime
from tests.runtime.kubelet import Kubelet


@pytest.fixture(scope="session", params=SUITES)
def session_containerd(request: pytest.FixtureRequest) -> Iterator[Containerd]:
    """Started, with images; whatever happens, nothing of it remains."""
    version = request.param
    if reason := machine.why_not():
        pytest.skip(reason)
    if not binaries_of(version).exists():
        pytest.skip(f"no containerd {version}: tools/fetch-runtime {SUITES[version]} says why")
    with machine.alone():
        containerd = Containerd(version)
        try:
            containerd.start()
            containerd.import_images()
            yield containerd
        finally:
            containerd.process.end()


@pytest.fixture
def containerd(session_containerd: Containerd) -> Iterator[Containerd]:
    """Running, also when the test before has ended it."""
    if not session_containerd.process.is_running:
        session_containerd.start()
    yield session_containerd
    if not session_containerd.process.is_running:
        session_containerd.start()


@pytest.fixture
def kubelet(containerd: Containerd) -> Iterator[Kubelet]:
    """Its pods are removed after the test."""
    with Runtime(containerd.address) as runtime:
        kubelet = Kubelet(runtime)
        yield kubelet
        kubelet.remove_all()
