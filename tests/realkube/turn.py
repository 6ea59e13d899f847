"""One real cluster at a time on a machine, whoever started it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.runtime import machine

LOCK = Path(os.environ.get("KOORDLET_CLUSTER_LOCK", Path(tempfile.gettempdir(), "cluster.lock")))


@contextlib.contextmanager
def turn(*, has_pods: bool = True) -> Iterator[None]:
    """Waits, for hours if need be, until no other run has a cluster; then the tests that run pods
    wait for this one, where it has pods on this machine itself."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with machine.alone() if has_pods else contextlib.nullcontext():
            yield
