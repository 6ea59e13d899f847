"""What the inputs log costs a daemon on 300 pods: the same daemon with and without it, in
alternation; and whether its decisions are the same when they are made again."""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import time
from collections.abc import Callable

from bench.child import Daemon, DaemonFailedError, daemon, prepare
from bench.daemon import CONFIG, MIB, tenant
from bench.figures import Figure
from bench.tree import enter, kubepods_of, make_pods, scratch_root
from koordlet.inputs.reader import LogFile, log_files
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.replay.trace import Trace
from koordlet.replay.verify import Verified, verify
from koordlet.tsdb.files import DiskFiles

_SWITCH = "\n[inputs]\nenable = {}\n"
_SETTLE_S = 5.0
_LONGEST_MINUTE_S = 180.0
"""Seconds until a minute is over and written, on a busy machine."""
_LAST_TURN_S = 2.0
"""Seconds at most from the last turn of a minute to its end."""
_FRAMES_A_DAY, _FILES_A_DAY = 24 * 60, 24


def run(smoke: bool, tell: Callable[[str], None]) -> list[Figure]:
    """Raises PermissionError without root."""
    pods, measure_s, rounds = (20, 3.0, 1) if smoke else (300, 130.0, 3)
    cgroups = Cgroups(host := LinuxHost(), detect(host))
    name = f"koordlet-bench-{os.getpid()}"
    cores: dict[bool, list[float]] = {False: [], True: []}
    rss: dict[bool, list[float]] = {False: [], True: []}
    with scratch_root(cgroups, name) as make:
        tell(f"making {pods} pods")
        containers = make_pods(cgroups, make, name, pods, 2)
        tenants: list[subprocess.Popen[bytes]] = []
        for container in containers[:: len(containers) // 10]:
            tenants.append(tenant())
            enter(cgroups, container, tenants[-1].pid)
        prepare()
        config = CONFIG.format(kubepods=kubepods_of(name))
        for turn in range(rounds):
            for is_on in (False, True) if turn % 2 == 0 else (True, False):
                tell(f"round {turn + 1} of {rounds}, {'with' if is_on else 'without'} the log")
                with daemon(config + _SWITCH.format(str(is_on).lower())) as child:
                    cores[is_on].append(_cores(child, measure_s))
                    rss[is_on].append(child.rss_bytes() / MIB)
                    if is_on:
                        files, verified, took_s = _replayed(child)
    without, with_log = (100 * statistics.median(cores[is_on]) for is_on in (False, True))
    return [
        Figure("CPU of the whole daemon without it, of a core", without, "%"),
        Figure("CPU of the whole daemon with it, of a core", with_log, "%"),
        Figure("what it adds, of a core", with_log - without, "%", 0.1),
        Figure("with it / without it", with_log / without, "x"),
        Figure("resident memory without it", statistics.median(rss[False]), "MiB"),
        Figure("resident memory with it", statistics.median(rss[True]), "MiB"),
        *_size(files),
        Figure("turns made again", verified.turns, f"in {took_s:.1f} s"),
        Figure("decisions made again", verified.decisions, ""),
        Figure("of these other than recorded", sum(verified.unequal.values()), "", 0),
    ]


def _cores(child: Daemon, measure_s: float) -> float:
    time.sleep(_SETTLE_S)
    cpu_s, started = child.cpu_s(), time.monotonic()
    time.sleep(measure_s)
    return (child.cpu_s() - cpu_s) / (time.monotonic() - started)


def _await_minute(child: Daemon, trace: Trace) -> None:
    """Return once this minute is in the log: it is written when it is over, in a worker that waits
    for the CPU where other benches run. Raises DaemonFailedError when it does not come."""
    now_s = time.time()
    deadline = time.monotonic() + _LONGEST_MINUTE_S
    while True:
        with contextlib.suppress(FileNotFoundError):  # the first frame makes the directory
            extent = trace.extent()
            if extent is not None and extent[1] > now_s - _LAST_TURN_S:
                return
        child.check()
        if time.monotonic() > deadline:
            raise DaemonFailedError(f"the log of inputs has not grown in {_LONGEST_MINUTE_S:.0f} s")
        time.sleep(1.0)


def _replayed(child: Daemon) -> tuple[list[LogFile], Verified, float]:
    state = child.directory / "state"
    inputs = str(state / "inputs")
    files = DiskFiles(inputs)
    trace = Trace(files, inputs, str(state / "tsdb"))
    _await_minute(child, trace)
    started = time.monotonic()
    found = verify(trace, 0, time.time())
    return log_files(files, inputs), found, time.monotonic() - started


def _size(files: list[LogFile]) -> list[Figure]:
    """A day has a file each hour, whose first frame tells everything."""
    frames = [each for file in files for each in file.frames]
    first = statistics.mean(each.length for each in frames if each.is_whole)
    rest = [each.length * 60 / max(each.turns, 1) for each in frames if not each.is_whole]
    found = [Figure("first frame of a file", first / 1024, "KiB")]
    if rest:
        minute = statistics.mean(rest)
        day = minute * _FRAMES_A_DAY + first * _FILES_A_DAY
        found += [
            Figure("a minute", minute, "bytes"),
            Figure("a day", day / MIB, "MiB", 5),
        ]
    return found
