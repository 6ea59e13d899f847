"""A service that lives by its memory and page cache, while best-effort work fills both: each page
counted.

All is in one cgroup with a limit, so that 160 MiB are the machine and nobody else is short of
memory. The service has 32 MiB of its own and looks things up in a file of 64 MiB, each page seldom;
BE reads and rewrites a file twice as large as the machine, over and over. Without help the kernel
takes what was used least lately, which is the service's. The service is one of ours and runs where
no package is at hand; ``memory_services`` has real ones.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.effects.memory_load import MIB, PAGE_BYTES
from bench.effects.stage import Running, Stage, in_turn, managed, median, only, stage
from bench.figures import Figure, NotMeasuredError, quantile
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
_TIMEOUT_S = 240.0  # an emulated CPU takes long


@dataclass(frozen=True)
class Seen:
    """``read_again``: pages that LS had to read from the disk again. ``ls_mib``: in use by LS in
    the end; ``be_mib_per_s``: what BE got done."""

    waits_ms: Sequence[float]
    read_again: int
    ls_mib: float
    be_mib_per_s: float


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    usual, seconds = (1, 5.0) if smoke else (5, 20.0)
    return _figures(measure(repeat or usual, 100, seconds, say))


def measure(
    repeat: int, rate: int, seconds: float, say: Callable[[str], None]
) -> dict[str, list[Seen]]:
    """``alone``, ``unmanaged``, ``managed``; ``rate``: requests a second. Raises NotMeasuredError
    where the kernel has no memory protection."""
    arms: dict[str, Callable[[], Seen]] = {
        "alone": lambda: _arm(rate, seconds, crowded=False, config=None),
        "unmanaged": lambda: _arm(rate, seconds, crowded=True, config=None),
        "managed": lambda: _arm(rate, seconds, crowded=True, config=only("memory-qos") + CONFIG),
    }
    return in_turn(arms, repeat, say)


def _arm(rate: int, seconds: float, *, crowded: bool, config: str | None) -> Seen:
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
            with _stream(on, junk) if crowded else _nobody() as done_bytes:
                if crowded:
                    until(lambda: done_bytes() > _FILLED_BYTES, "BE did not fill the memory")
                done, read_bytes = done_bytes(), io_bytes(service.pid, "read_bytes")
                service.process.send_signal(signal.SIGUSR1)
                began = time.monotonic()
                until(lambda: Path(f"{table}.json").exists(), "LS did not get through")
                took_s = time.monotonic() - began
                read_bytes = io_bytes(service.pid, "read_bytes") - read_bytes
                done = done_bytes() - done
                ls_bytes = int(on.cgroups.read(on.groups["ls"], Resource.MEMORY_USAGE))
                service.check()
        waits_ms = json.loads(Path(f"{table}.json").read_text())
    return Seen(waits_ms, read_bytes // PAGE_BYTES, ls_bytes / MIB, done / MIB / took_s)


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


def until(holds: Callable[[], bool], what: str) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{what} within {_TIMEOUT_S:.0f} s")
        time.sleep(0.02)


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


def _figures(found: dict[str, list[Seen]]) -> list[Figure]:
    def wait_ms(arm: str, share: float) -> float:
        return median(found[arm], lambda seen: quantile(seen.waits_ms, share))

    def of(arm: str, value: Callable[[Seen], float]) -> float:
        return median(found[arm], value)

    return [
        Figure("p99 of LS alone", wait_ms("alone", 0.99), "ms"),
        Figure("p99 unmanaged / alone", wait_ms("unmanaged", 0.99) / wait_ms("alone", 0.99), "x"),
        Figure("p99 managed / alone", wait_ms("managed", 0.99) / wait_ms("alone", 0.99), "x"),
        Figure("p50 unmanaged / alone", wait_ms("unmanaged", 0.5) / wait_ms("alone", 0.5), "x"),
        Figure("p50 managed / alone", wait_ms("managed", 0.5) / wait_ms("alone", 0.5), "x"),
        Figure("pages LS reads again, unmanaged", of("unmanaged", lambda s: s.read_again), ""),
        Figure("pages LS reads again, managed", of("managed", lambda s: s.read_again), "", 0),
        Figure("memory of LS alone", of("alone", lambda s: s.ls_mib), "MiB"),
        Figure("memory of LS unmanaged", of("unmanaged", lambda s: s.ls_mib), "MiB"),
        Figure("memory of LS managed", of("managed", lambda s: s.ls_mib), "MiB"),
        Figure(
            "what BE reads, managed / unmanaged",
            of("managed", lambda s: s.be_mib_per_s) / of("unmanaged", lambda s: s.be_mib_per_s),
            "x",
        ),
    ]
