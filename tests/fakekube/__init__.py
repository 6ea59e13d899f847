"""A Kubernetes API server in this process: lists, watches, writes, and every way to fail.

The tests in ``tests/kube`` run on it and, where one can be had, on a real kube-apiserver.
"""

from tests.fakekube.faults import Fault
from tests.fakekube.server import FakeKube, serving

__all__ = ["FakeKube", "Fault", "serving"]
