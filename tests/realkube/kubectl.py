"""kubectl as the administrator of a control plane of the tests."""

from __future__ import annotations

import subprocess

from tests.realkube.binaries import program
from tests.realkube.control_plane import ControlPlane


def kubectl(plane: ControlPlane, *arguments: str) -> str:
    """What it prints. Raises AssertionError with what it said where it fails."""
    done = subprocess.run(
        [program("kubectl"), f"--kubeconfig={plane.kubeconfig}", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(plane.work), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout
