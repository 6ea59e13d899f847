"""The real control plane of tests/kube."""

from tests.kube.conftest import plane, real

__all__ = ["plane", "real"]
