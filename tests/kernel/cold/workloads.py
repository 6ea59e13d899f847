"""Three workloads of known temperature, each in a cgroup of its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.linux import LinuxHost
from tests.controllers import pass_on

MIB = 1 << 20


class Truth(NamedTuple):
    """MiB."""

    hot: int
    hot_file: int
    cold: int
    cold_file: int


TRUTH = {
    "hot": Truth(100, 40, 0, 0),
    "cold": Truth(20, 0, 200, 100),
    "mixed": Truth(60, 30, 60, 30),
}


@contextmanager
def running(
    linux: LinuxHost, layout: Layout, cgroup: str, directory: Path
) -> Iterator[dict[str, str]]:
    """Name -> a new cgroup below ``cgroup`` with that workload in it; files in ``directory``."""
    if layout.v2 is not None:
        pass_on(linux, f"{layout.v2}/{cgroup}")
    found, processes = {}, []
    try:
        for name, truth in TRUTH.items():
            found[name] = f"{cgroup}/{name}"
            for root in layout.roots:
                linux.mkdir(f"{root}/{found[name]}")
                if root == layout.v1.get("cpuset"):
                    for file in ("cpuset.mems", "cpuset.cpus"):
                        for group in (f"{root}/{cgroup}", f"{root}/{found[name]}"):
                            above = group.rpartition("/")[0]
                            linux.write(f"{group}/{file}", linux.read(f"{above}/{file}"))
            sizes = [truth.hot, truth.cold, directory / name, truth.hot_file, truth.cold_file]
            procs = [f"{root}/{found[name]}/cgroup.procs" for root in layout.roots]
            processes.append(
                subprocess.Popen(
                    [sys.executable, Path(__file__).with_name("workload.py"),
                     *map(str, sizes), *procs],
                    stdout=subprocess.PIPE,
                )
            )  # fmt: skip
        for process in processes:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield found
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
