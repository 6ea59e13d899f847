"""Best-effort work held to its limit of a disk, and what that does for a commit of LS.

LS commits 4 KiB 50 times a second, as the log of a database does. BE reads and writes as fast as
the disk lets it, until a daemon limits it. The limit follows from what BE gets without one, so
that it means the same on each disk. Arms in slices: LS alone, beside BE, beside BE with a limit.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from bench.child import daemon
from bench.effects.blkio_load import FLOOD_FILE_BYTES, LOG_BYTES, fill
from bench.effects.client import Latencies
from bench.effects.slices import (
    SMOKE,
    ArmSlice,
    Holder,
    Size,
    Span,
    Watch,
    alternating,
    latency_ms,
    latency_ratio,
    mean_value,
    off_percent,
    waits_figures,
    with_latencies,
)
from bench.effects.stage import Running, Stage, only, stage, until
from bench.figures import Figure, Measured, NotMeasuredError
from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Unsupported

CONFIG = """
[slo.resourceQOSStrategy.beClass.blkioQOS]
enable = true
[[slo.resourceQOSStrategy.beClass.blkioQOS.blocks]]
name = "{disk}"
type = "device"
[slo.resourceQOSStrategy.beClass.blkioQOS.blocks.ioCfg]
readBPS = {read_bps}
writeBPS = {write_bps}
"""
DIRECTORY = "/var/tmp"
"""Where files outlive a boot, which is on a disk; /tmp may be memory."""
GOAL_PERCENT = 10
_LIMIT_SHARE = 0.05
_LEAST_BPS = 1 << 20
MIB = 1 << 20
_WARM_S = 1.0


class DiskSlice(ArmSlice, frozen=True):
    """``*_bps``: of BE."""

    read_bps: float
    write_bps: float


class Effect(NamedTuple):
    """``limits_bps``: of BE, reading and writing."""

    slices: list[DiskSlice]
    limits_bps: tuple[int, int]


def run(smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    size = size or (SMOKE if smoke else Size())
    found = measure(size, 1.0 if smoke else 10.0, say)
    return Measured(_figures(found), size.seed, found.slices)


def measure(size: Size, free_s: float, say: Callable[[str], None]) -> Effect:
    """``alone``, ``unmanaged``, ``managed``. ``free_s``: for what BE gets without a limit. Raises
    NotMeasuredError where no disk can be limited."""
    with (
        stage("ls", "be") as on,
        TemporaryDirectory(prefix="koordlet-bench-", dir=DIRECTORY) as directory,
    ):
        disk = disk_of(directory)
        _throttles(on)
        log, junk = f"{directory}/log", f"{directory}/junk"
        fill(log, LOG_BYTES)
        fill(junk, FLOOD_FILE_BYTES)
        with _flood(on, junk) as flood:
            say("what BE gets without a limit")
            seen = _rates(flood)
            time.sleep(free_s)
            read_bps, write_bps = (max(int(_LIMIT_SHARE * each), _LEAST_BPS) for each in seen())
            config = on.config(
                {"ls": "LS", "be": "BE"},
                only("blkio-qos")
                + CONFIG.format(disk=disk, read_bps=read_bps, write_bps=write_bps),
            )
            with daemon(config) as child:
                holder = Holder(on, child)

                def managed() -> None:
                    holder.enter(best_effort=True, managed=True)
                    until(lambda: _limited(on), "no limit for BE")

                arms: dict[str, Callable[[], None]] = {
                    "alone": partial(holder.enter, best_effort=False, managed=False),
                    "unmanaged": partial(holder.enter, best_effort=True, managed=False),
                    "managed": managed,
                }
                return Effect(_slices(on, log, flood, arms, size, say), (read_bps, write_bps))


def _slices(
    on: Stage,
    log: str,
    flood: Running,
    arms: Mapping[str, Callable[[], None]],
    size: Size,
    say: Callable[[str], None],
) -> list[DiskSlice]:
    commits = _program(on, "commit", "ls", log)
    with closing(Watch(on)) as watch:

        def look() -> Callable[[str, int], tuple[Span, DiskSlice]]:
            on.check()
            end, rates = watch.begin(), _rates(flood)

            def found(arm: str, number: int) -> tuple[Span, DiskSlice]:
                span = end()
                seconds = span.used.seconds
                return span, DiskSlice(arm, number, seconds, (), span.waits, *rates())

            return found

        spans = alternating(arms, size, say, look)
    commits.process.send_signal(signal.SIGTERM)
    if commits.process.wait():
        commits.check()
    at_s, waits_ms = zip(*json.loads(Path(f"{log}.json").read_text()), strict=True)
    return with_latencies(spans, Latencies(at_s, waits_ms, failed=0, client_cores=0.0))


def disk_of(directory: str) -> str:
    """What a block of the NodeSLO calls it. Raises NotMeasuredError."""
    number = os.stat(directory).st_dev
    path = f"/sys/dev/block/{os.major(number)}:{os.minor(number)}"
    if not os.path.exists(path):
        raise NotMeasuredError(f"{directory} is not on a disk of its own (see findmnt)")
    return os.path.basename(os.path.realpath(path))


def _throttles(on: Stage) -> None:
    try:
        on.cgroups.read_raw(on.groups["be"], Resource.BLKIO_WRITE_BPS)
    except (Unsupported, OSError) as error:
        raise NotMeasuredError(f"this kernel cannot limit block I/O: {error}") from None


def _limited(on: Stage) -> bool:
    return bool(on.cgroups.read_raw(on.groups["be"], Resource.BLKIO_WRITE_BPS).strip())


@contextmanager
def _flood(on: Stage, path: str) -> Iterator[Running]:
    """Under way, and past what it may send on credit. Raises TimeoutError."""
    running = _program(on, "flood", "be", path)
    try:
        until(lambda: min(_bytes(running)) > 0, "BE did not read and write")
        time.sleep(_WARM_S)
        yield running
        running.check()
    finally:
        running.process.kill()
        running.process.wait()


def _program(on: Stage, role: str, group: str, path: str) -> Running:
    command = [sys.executable, "-m", "bench.effects.blkio_load", role, path]
    return on.start(role, group, command, {"PYTHONPATH": str(Path(__file__).parents[2])})


def _rates(flood: Running) -> Callable[[], tuple[float, float]]:
    """Tells the bytes a second that BE has read and written since."""
    before, began = _bytes(flood), time.monotonic()

    def since() -> tuple[float, float]:
        after, took_s = _bytes(flood), time.monotonic() - began
        return (after[0] - before[0]) / took_s, (after[1] - before[1]) / took_s

    return since


def _bytes(running: Running) -> tuple[int, int]:
    """Read from and written to disks, as the kernel accounts them."""
    text = Path(f"/proc/{running.pid}/io").read_text()
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def _figures(effect: Effect) -> list[Figure]:
    slices = effect.slices
    read_bps, write_bps = effect.limits_bps
    writes, reads = (
        off_percent(mean_value(slices, "managed", of_be), limit_bps)
        for of_be, limit_bps in (
            (lambda each: each.write_bps, write_bps),
            (lambda each: each.read_bps, read_bps),
        )
    )
    return [
        Figure.of("a commit of LS alone, p99", latency_ms(slices, "alone", 0.99), "ms"),
        Figure.of(
            "a commit of LS beside BE, unmanaged, p99", latency_ms(slices, "unmanaged", 0.99), "ms"
        ),
        Figure.of(
            "a commit of LS beside BE, managed, p99", latency_ms(slices, "managed", 0.99), "ms"
        ),
        Figure.of(
            "unmanaged / managed, p99",
            latency_ratio(slices, "unmanaged", 0.99, to="managed"),
            "x",
        ),
        Figure.of("managed / alone, p99", latency_ratio(slices, "managed", 0.99), "x"),
        Figure("limit of what BE writes", write_bps / MIB, "MiB/s"),
        Figure.of("BE off its limit, writing", writes, "%", GOAL_PERCENT),
        Figure.of("BE off its limit, reading", reads, "%", GOAL_PERCENT),
        *waits_figures(slices, ("alone", "unmanaged", "managed")),
    ]
