"""The real control plane of tests/kube, for tests that are marked `cluster`."""

from tests.kube.conftest import plane, real

__all__ = ["plane", "real"]
