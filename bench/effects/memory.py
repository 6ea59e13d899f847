"""A service that lives by its memory and page cache, while best-effort work fills both: each page
counted.

All is in one cgroup with a limit, so that 160 MiB are the machine and nobody else is short of
memory. The service has 32 MiB of its own and looks things up in a file of 64 MiB, each page seldom;
BE reads and rewrites a file twice as large as the machine, over and over. Without help the kernel
takes what was used least lately, which is the service's. The service is one of ours and runs where
no package is at hand; ``memory_services`` has real ones.

A page that is gone comes back only when it is read again, and what an arm has charged to whom
stays. So every slice is an arm started anew, with files that are in nobody's memory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.effects.memory_load import MIB, PAGE_BYTES
from bench.effects.slices import (
    ArmSlice,
    Size,
    Watch,
    anew,
    latency_ms,
    latency_ratio,
    mean_value,
    value_ratio,
    waits_figures,
)
from bench.effects.stage import Running, Stage, managed, only, stage, until
from bench.figures import Figure, Measured, NotMeasuredError
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Unsupported

MACHINE_MIB = 160
LS_FILE_MIB, LS_OWN_MIB = 64, 32
BE_FILE_MIB, BE_OWN_MIB = 2 * MACHINE_MIB, 16
CONFIG = """
[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true
lowLimitPercent = 100
[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true
throttlingPercent = 80
"""
AMOUNTS = {"ls": 'memory_request = "128Mi"\n', "be": 'memory_limit = "64Mi"\n'}
DIRECTORY = "/var/tmp"
_FILLED_BYTES = 2 * MACHINE_MIB * MIB
ARMS = ("alone", "unmanaged", "managed")
USUAL, SMOKE = Size(slices=6, slice_s=20.0), Size(slices=1, slice_s=5.0)


class PageSlice(ArmSlice, frozen=True):
    """``read_again``: pages that LS had to read from the disk again. ``ls_mib``: in use by LS in
    the end; ``be_mib_per_s``: what BE got done."""

    read_again: int
    ls_mib: float
    be_mib_per_s: float


def run(smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    size = size or (SMOKE if smoke else USUAL)
    slices = measure(size, 100, say)
    return Measured(_figures(slices), size.seed, slices)


def measure(size: Size, rate: int, say: Callable[[str], None]) -> list[PageSlice]:
    """``alone``, ``unmanaged``, ``managed``; ``rate``: requests a second. Raises NotMeasuredError
    where the kernel has no memory protection."""

    def slice_of(arm: str) -> Callable[[int], PageSlice]:
        return lambda number: _slice(arm, number, rate, size.slice_s)

    return anew({arm: slice_of(arm) for arm in ARMS}, size, say)


def _slice(arm: str, number: int, rate: int, seconds: float) -> PageSlice:
    crowded = arm != "alone"
    config = only("memory-qos") + CONFIG if arm == "managed" else None
    with (
        stage("ls", "be") as on,
        TemporaryDirectory(prefix="koordlet-bench-", dir=DIRECTORY) as directory,
    ):
        check_protects(on)
        machine = os.path.dirname(on.groups["ls"])
        on.cgroups.write(machine, Resource.MEMORY_LIMIT, MACHINE_MIB * MIB)
        table, junk = f"{directory}/table", f"{directory}/junk"
        for path, mib in ((table, LS_FILE_MIB), (junk, BE_FILE_MIB if crowded else 0)):
            fill(Path(path), mib * MIB)
        qos = {"ls": "LS", "be": "BE"}
        with managed(on.config(qos, config, AMOUNTS) if config is not None else None):
            if config is not None:
                ls = on.groups["ls"]
                until(
                    lambda: bool(on.cgroups.read(ls, Resource.MEMORY_LOW)), "no memory.low for LS"
                )
            # Nobody has read the file, so its pages are charged to LS.
            service = start(on, "ls", "serve", table, LS_OWN_MIB, rate, seconds)
            with (
                _stream(on, junk) if crowded else _nobody() as done_bytes,
                closing(Watch(on)) as watch,
            ):
                if crowded:
                    until(lambda: done_bytes() > _FILLED_BYTES, "BE did not fill the memory")
                done, read_bytes = done_bytes(), io_bytes(service.pid, "read_bytes")
                end = watch.begin()
                service.process.send_signal(signal.SIGUSR1)
                until(lambda: Path(f"{table}.json").exists(), "LS did not get through")
                span = end()
                read_bytes = io_bytes(service.pid, "read_bytes") - read_bytes
                done = done_bytes() - done
                ls_bytes = int(on.cgroups.read(on.groups["ls"], Resource.MEMORY_USAGE))
                service.check()
        waits_ms = json.loads(Path(f"{table}.json").read_text())
    return PageSlice(
        arm=arm,
        number=number,
        seconds=span.used.seconds,
        latencies_ms=tuple(waits_ms),
        waits=span.waits,
        read_again=read_bytes // PAGE_BYTES,
        ls_mib=ls_bytes / MIB,
        be_mib_per_s=done / MIB / span.used.seconds,
    )


def check_protects(on: Stage) -> None:
    """Raises NotMeasuredError where the kernel has no memory.low."""
    try:
        on.cgroups.read_raw(on.groups["ls"], Resource.MEMORY_LOW)
    except (Unsupported, OSError) as error:
        raise NotMeasuredError(
            f"memory QoS sets nothing on this kernel, so there is no effect to measure ({error}); "
            "cgroup v2 has what it needs"
        ) from None


def fill(path: Path, size_bytes: int) -> None:
    """A file on disk and not in memory."""
    with path.open("wb") as file:
        for at in range(0, size_bytes, MIB):
            file.write(bytes(min(MIB, size_bytes - at)))
        file.flush()
        os.fsync(file.fileno())
    drop(path)


def drop(path: Path) -> None:
    """What memory holds of a file that has been written to disk."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def start(on: Stage, group: str, role: str, *arguments: object) -> Running:
    """A program of ``memory_load``; returns when it has its memory. Raises TimeoutError."""
    command = [sys.executable, "-m", "bench.effects.memory_load", role, *map(str, arguments)]
    running = on.start(group, group, command, {"PYTHONPATH": str(Path(__file__).parents[2])})

    def ready() -> bool:
        running.check()
        return running.log.stat().st_size > 0

    until(ready, f"{group} did not start")
    return running


@contextmanager
def _stream(on: Stage, path: str) -> Iterator[Callable[[], int]]:
    """Tells how many bytes it has read."""
    running = start(on, "be", "stream", path, BE_OWN_MIB)

    try:
        yield lambda: io_bytes(running.pid, "rchar")
    finally:
        running.process.kill()
        running.process.wait()


@contextmanager
def _nobody() -> Iterator[Callable[[], int]]:
    yield lambda: 0


def io_bytes(pid: int, field: str) -> int:
    """``rchar``: by all reads; ``read_bytes``: of them from a disk."""
    text = Path(f"/proc/{pid}/io").read_text()
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields[field])


def _figures(slices: Sequence[PageSlice]) -> list[Figure]:
    def ratio(arm: str, name: str, share: float) -> Figure:
        return Figure.of(f"{name} {arm} / alone", latency_ratio(slices, arm, share), "x")

    def read_again(arm: str, goal: float | None = None) -> Figure:
        pages = mean_value(slices, arm, lambda each: each.read_again)
        return Figure.of(f"pages LS reads again, {arm}", pages, "", goal)

    return [
        Figure.of("p99 of LS alone", latency_ms(slices, "alone", 0.99), "ms"),
        ratio("unmanaged", "p99", 0.99),
        ratio("managed", "p99", 0.99),
        ratio("unmanaged", "p50", 0.5),
        ratio("managed", "p50", 0.5),
        read_again("unmanaged"),
        read_again("managed", 0),
        *(
            Figure.of(
                f"memory of LS {arm}", mean_value(slices, arm, lambda each: each.ls_mib), "MiB"
            )
            for arm in ARMS
        ),
        Figure.of(
            "what BE reads, managed / unmanaged",
            value_ratio(slices, "managed", lambda each: each.be_mib_per_s),
            "x",
        ),
        *waits_figures(slices, ARMS),
    ]
