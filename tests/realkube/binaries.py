"""Where the programs are that `tools/fetch-cluster` builds."""

from __future__ import annotations

import os
import subprocess
from functools import lru_cache
from pathlib import Path

TOOL = Path(__file__).parents[2] / "tools" / "fetch-cluster"


@lru_cache(maxsize=1)
def directory() -> Path:
    """Of this state of the sources, whether it is there or not."""
    done = subprocess.run([TOOL, "--where"], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


def why_not() -> str:
    """Why there is no cluster; empty where there is one.

    `make test` leaves it out also where it is built, because it takes the machine for minutes.
    """
    if "KOORDLET_CLUSTER" not in os.environ:
        return "a real cluster is for make test-cluster (KOORDLET_CLUSTER=1)"
    if (directory() / "version").exists():
        return ""
    return "no Kubernetes is built here: tools/fetch-cluster (some ten minutes, once; needs Go)"


def program(name: str) -> Path:
    return directory() / "bin" / name
