"""Best-effort work held to its limit of a disk, and what that does for a commit of LS.

LS commits 4 KiB 50 times a second, as the log of a database does. BE reads and writes as fast as
the disk lets it, until a daemon limits it. The limit follows from what BE gets without one, so
that it means the same on each disk.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

from bench.effects.blkio_load import FLOOD_FILE_BYTES, LOG_BYTES, fill
from bench.effects.stage import Running, Stage, in_turn, managed, only, stage
from bench.figures import Figure, NotMeasuredError, quantile
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
_T = TypeVar("_T")
_WARM_S = 1.0
_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Seen:
    """``*_bps``: of BE; 0 without."""

    waits_ms: list[float]
    read_bps: float = 0.0
    write_bps: float = 0.0


@dataclass(frozen=True)
class Effect:
    """``limits_bps``: of BE, reading and writing."""

    arms: dict[str, list[Seen]]
    limits_bps: tuple[int, int]


def run(smoke: bool, say: Callable[[str], None], repeat: int | None = None) -> list[Figure]:
    usual, seconds = (1, 1.0) if smoke else (5, 10.0)
    return _figures(measure(repeat or usual, seconds, say))


def measure(repeat: int, seconds: float, say: Callable[[str], None]) -> Effect:
    """``alone``, ``unmanaged``, ``managed``. Raises NotMeasuredError where no disk can be
    limited."""
    with (
        stage("ls", "be") as on,
        TemporaryDirectory(prefix="koordlet-bench-", dir=DIRECTORY) as directory,
    ):
        disk = disk_of(directory)
        _throttles(on)
        log, junk = f"{directory}/log", f"{directory}/junk"
        fill(log, LOG_BYTES)
        fill(junk, FLOOD_FILE_BYTES)
        say("what BE gets without a limit")
        with _flood(on, junk) as flood:
            _, free = _while(flood, lambda: time.sleep(seconds))
        read_bps, write_bps = (max(int(_LIMIT_SHARE * each), _LEAST_BPS) for each in free)
        config = on.config(
            {"ls": "LS", "be": "BE"},
            only("blkio-qos") + CONFIG.format(disk=disk, read_bps=read_bps, write_bps=write_bps),
        )

        def alone() -> Seen:
            return Seen(_commits(on, log, seconds))

        def beside() -> Seen:
            with _flood(on, junk) as flood:
                waits_ms, rates = _while(flood, lambda: _commits(on, log, seconds))
            return Seen(waits_ms, *rates)

        def limited() -> Seen:
            with managed(config):
                _wait(lambda: _limited(on), "no limit for BE")
                return beside()

        arms = {"alone": alone, "unmanaged": beside, "managed": limited}
        return Effect(in_turn(arms, repeat, say), (read_bps, write_bps))


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


def _wait(holds: Callable[[], bool], missing: str) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + _TIMEOUT_S
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"{missing} within {_TIMEOUT_S:.0f} s")
        time.sleep(0.05)


def _commits(on: Stage, path: str, seconds: float) -> list[float]:
    """Raises ServiceFailedError when the program fails."""
    running = _program(on, "commit", "ls", path, seconds)
    if running.process.wait():
        running.check()
    file = Path(f"{path}.json")
    found: list[float] = json.loads(file.read_text())
    file.unlink()
    return found


@contextmanager
def _flood(on: Stage, path: str) -> Iterator[Running]:
    """Under way, and past what it may send on credit. Raises TimeoutError."""
    running = _program(on, "flood", "be", path, 0.0)
    try:
        _wait(lambda: min(_bytes(running)) > 0, "BE did not read and write")
        time.sleep(_WARM_S)
        yield running
        running.check()
    finally:
        running.process.kill()
        running.process.wait()


def _program(on: Stage, role: str, group: str, path: str, seconds: float) -> Running:
    command = [sys.executable, "-m", "bench.effects.blkio_load", role, path, str(seconds)]
    root = str(Path(__file__).parents[2])
    return on.start(role, group, command, {"PYTHONPATH": root})


def _while(flood: Running, work: Callable[[], _T]) -> tuple[_T, tuple[float, float]]:
    """What ``work`` returns, and bytes a second that BE read and wrote meanwhile."""
    before, began = _bytes(flood), time.monotonic()
    found = work()
    after, took_s = _bytes(flood), time.monotonic() - began
    return found, ((after[0] - before[0]) / took_s, (after[1] - before[1]) / took_s)


def _bytes(running: Running) -> tuple[int, int]:
    """Read from and written to disks, as the kernel accounts them."""
    text = Path(f"/proc/{running.pid}/io").read_text()
    fields = dict(line.split(": ") for line in text.splitlines())
    return int(fields["read_bytes"]), int(fields["write_bytes"])


def _figures(effect: Effect) -> list[Figure]:
    def p99_ms(arm: str) -> float:
        return statistics.median(quantile(each.waits_ms, 0.99) for each in effect.arms[arm])

    def off_percent(got: Callable[[Seen], float], limit_bps: int) -> float:
        rate = statistics.median(got(each) for each in effect.arms["managed"])
        return 100 * abs(rate - limit_bps) / limit_bps

    alone, unmanaged, limited = (p99_ms(arm) for arm in ("alone", "unmanaged", "managed"))
    read_bps, write_bps = effect.limits_bps
    return [
        Figure("a commit of LS alone, p99", alone, "ms"),
        Figure("a commit of LS beside BE, unmanaged, p99", unmanaged, "ms"),
        Figure("a commit of LS beside BE, managed, p99", limited, "ms"),
        Figure("unmanaged / managed, p99", unmanaged / limited, "x"),
        Figure("managed / alone, p99", limited / alone, "x"),
        Figure("limit of what BE writes", write_bps / MIB, "MiB/s"),
        Figure(
            "BE off its limit, writing",
            off_percent(lambda each: each.write_bps, write_bps),
            "%",
            GOAL_PERCENT,
        ),
        Figure(
            "BE off its limit, reading",
            off_percent(lambda each: each.read_bps, read_bps),
            "%",
            GOAL_PERCENT,
        ),
    ]
