"""Where the programs are that `tools/fetch-cluster` builds."""

from __future__ import annotations

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
    """Why there is no cluster; empty where there is one."""
    if (directory() / "version").exists():
        return ""
    return "no Kubernetes is built here: tools/fetch-cluster (some ten minutes, once; needs Go)"


def program(name: str) -> Path:
    return directory() / "bin" / name
