"""``python -m bench.effects.guest_means [--slices N] [NAME ...]``: means beside a service in an
emulated guest, as ``bench means`` measures them on a machine; the records go to /tmp/results.

A guest's seconds are dear: fewer means, shorter slices. The work of a request is counted in CPU
time (``timed_server``), and spinners hash: at that the emulator is twice as fast as at a loop of
Python.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import recording
from bench.effects import means, services
from bench.effects.slices import Size
from bench.effects.stage import Stage
from bench.figures import machine_line, table
from koordlet.decision.resource import Resource

ARMS = {name: each for name, each in means.ARMS.items() if not (each.quota_ms or each.half)}
SIZE = Size(slices=20, slice_s=1.5)
_RESULTS = Path("/tmp/results")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=["means", "means-short"])
    parser.add_argument("--slices", type=int, default=SIZE.slices)
    options = parser.parse_args()
    guest = os.environ["KOORDLET_GUEST"]
    version = ".".join(platform.release().split(".")[:2])
    cpus = os.cpu_count() or 1
    for name in options.names:
        load_before, began = os.getloadavg(), time.monotonic()
        measured = means.run(
            means.SHAPES[name],
            smoke=False,
            say=lambda text: print(text, flush=True),
            size=Size(options.slices, SIZE.slice_s, SIZE.seed),
            means=ARMS,
            start=_timed,
            spin=_hash,
        )
        bench = recorded_as(name, version, cpus)
        command = ("tests.vm", "--stage", "means", "--guest", guest)
        shutil.copy(recording.write(bench, command, load_before, measured, guest), _RESULTS)
        print(f"{machine_line()}; {time.monotonic() - began:.0f} s of the guest")
        print(table([(bench, figure) for figure in measured.figures]), flush=True)


def recorded_as(name: str, version: str, cpus: int) -> str:
    """Return the name of the record."""
    return f"{name}-{version}" + (f"-{cpus}-cpus" if cpus != 2 else "")


def _timed(on: Stage, group: str, *, threads: int, work_ms: float) -> services.WorkerThreads:
    address = str(on.directory / "service.sock")
    command = (sys.executable, "-m", "bench.effects.timed_server", address)
    root = str(Path(__file__).parents[2])
    running = on.start(
        "service", group, (*command, str(threads), str(work_ms)), {"PYTHONPATH": root}
    )
    services.wait_for(running, address)
    return services.WorkerThreads(running, address)


def _hash(on: Stage, group: str, *, count: int) -> Callable[[], int]:
    """Start processes that never rest; returns what tells the milliseconds that they had."""
    for number in range(count):
        on.start(f"spinner-{number}", group, ("sha256sum", "/dev/zero"))
    return lambda: int(on.cgroups.read(on.groups[group], Resource.CPUACCT_USAGE)) // 1_000_000


if __name__ == "__main__":
    main()
