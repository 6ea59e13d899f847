"""The whole daemon on 300 pods with 600 containers: CPU, memory, descriptors, time of a tick."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from bench.child import Daemon, daemon, prepare
from bench.figures import Figure
from bench.quota import FirstLimit, Quota
from bench.tree import besteffort_of, enter, kubepods_of, make_pods, scratch_root
from koordlet.decision.resource import Resource
from koordlet.demo.process import die_with_parent
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost

MIB = 1 << 20
CONFIG = """
[sources]
kubepods_root = "{kubepods}"
cri = "off"

[slo.resourceUsedThresholdWithBE]
enable = true
cpuSuppressThresholdPercent = 95
cpuSuppressPolicy = "cfsQuota"
"""
EVERYTHING = """
[slo.resourceQOSStrategy.lsClass.cpuQOS]
enable = true

[slo.resourceQOSStrategy.beClass.cpuQOS]
enable = true

[slo.resourceQOSStrategy.lsClass.memoryQOS]
enable = true

[slo.resourceQOSStrategy.beClass.memoryQOS]
enable = true

[slo.resourceQOSStrategy.lsClass.resctrlQOS]
enable = true

[slo.resourceQOSStrategy.beClass.resctrlQOS]
enable = true

[slo.cpuBurstStrategy]
policy = "auto"

[collectors.cpi]
enable = true

[collectors.cold]
method = "auto"

[collectors.psi]
containers = true

[strategies.interference]
act = true

[strategies.kidled]
enable = true

[strategies.resctrl-monitor]
enable = true

[prediction]
model = "seasonal"

[hook-server]
enable = true
"""
"""What is off by default, and what a NodeSLO asks for."""
_BUCKET = re.compile(r'koordlet_tick_duration_seconds_bucket\{le="([^"]+)"\}')
# Containers are mostly asleep and wake a little: what each of these does.
_TENANT = """\
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True:
    time.sleep(0.1)
    sum(range(3000))
"""
_SETTLE_S = 5.0


def run(smoke: bool, tell: Callable[[str], None]) -> list[Figure]:
    """Raises PermissionError without root."""
    pods, tenants, measure_s = (20, 2, 5.0) if smoke else (300, 10, 60.0)
    cgroups = Cgroups(host := LinuxHost(), detect(host))
    name = f"koordlet-bench-{os.getpid()}"
    with scratch_root(cgroups, name) as make:
        tell(f"making {pods} pods")
        containers = make_pods(cgroups, make, name, pods, 2)
        for container in containers[:: len(containers) // tenants]:
            enter(cgroups, container, tenant().pid)
        prepare()
        quota = Quota(cgroups.path(besteffort_of(name), Resource.CPU_QUOTA_US))
        limit, spawned = FirstLimit(quota), time.time()
        with daemon(CONFIG.format(kubepods=kubepods_of(name))) as child:
            started = Figure("start to first limit", limit.time() - spawned, "s", 1)
            found = _measure(child, measure_s, tell)
            found += _system_calls(child, measure_s / 6, tell)
        tell("the same with everything on")
        with daemon(CONFIG.format(kubepods=kubepods_of(name)) + EVERYTHING) as child:
            return [started, *found, *_everything(child, measure_s)]


def tenant() -> subprocess.Popen[bytes]:
    parent = os.getpid()
    return subprocess.Popen(
        [sys.executable, "-c", _TENANT], preexec_fn=lambda: die_with_parent(parent)
    )


def _measure(child: Daemon, measure_s: float, tell: Callable[[str], None]) -> list[Figure]:
    time.sleep(_SETTLE_S)
    at_start = child.rss_bytes()
    files = child.open_files()
    tell(f"watching the daemon for {measure_s:.0f} s")
    cores = _cores(child, measure_s)
    quiet, later = child.rss_bytes(), child.open_files()
    status = json.loads(child.ask("status", "-o", "json"))
    pods = sum(source["pods"] for source in status["sources"])
    after_call = child.rss_bytes()
    child.ask("top", "--once")
    page = child.metrics()
    return [
        Figure("CPU of the whole daemon at 1 Hz, of a core", cores * 100, "%", 2),
        Figure(f"resident memory after {_SETTLE_S:.0f} s", at_start / MIB, "MiB", 55),
        Figure(f"resident memory after {measure_s:.0f} s more", quiet / MIB, "MiB", 55),
        Figure("resident memory after a first call of the API", after_call / MIB, "MiB", 60),
        Figure("resident memory after `top` and the page", child.rss_bytes() / MIB, "MiB", 60),
        Figure("open files", max(files, later), "", 1500),
        Figure("pods it saw", pods, ""),
        Figure("tick, p50 (upper bound of the bucket)", 1000 * _tick_quantile(page, 0.50), "ms"),
        Figure("tick, p99 (upper bound of the bucket)", 1000 * _tick_quantile(page, 0.99), "ms"),
    ]


def _everything(child: Daemon, measure_s: float) -> list[Figure]:
    time.sleep(_SETTLE_S)
    cores = _cores(child, measure_s)
    return [
        Figure("everything on: CPU, of a core", cores * 100, "%", 4),
        Figure("everything on: resident memory", child.rss_bytes() / MIB, "MiB", 90),
    ]


def _cores(child: Daemon, measure_s: float) -> float:
    cpu_s, started = child.cpu_s(), time.monotonic()
    time.sleep(measure_s)
    return (child.cpu_s() - cpu_s) / (time.monotonic() - started)


def _system_calls(child: Daemon, seconds: float, tell: Callable[[str], None]) -> list[Figure]:
    """Counted last, since being traced costs the daemon time. None without strace."""
    strace = shutil.which("strace")
    if strace is None:
        tell("no strace, so system calls are not counted")
        return []
    tell(f"counting system calls for {seconds:.0f} s")
    with tempfile.NamedTemporaryFile("r") as table:
        command = [strace, "-f", "-c", "-qq", "-U", "calls,name", "-o", table.name]
        with subprocess.Popen([*command, "-p", str(child.pid)]) as tracer:
            started = time.monotonic()
            time.sleep(seconds)
            elapsed_s = time.monotonic() - started
            tracer.send_signal(signal.SIGINT)
        counts = [line.split() for line in table]
    calls = sum(int(row[0]) for row in counts if len(row) == 2 and row[0].isdigit())
    total = sum(int(row[0]) for row in counts if row[1:] == ["total"])
    return [Figure("system calls a second", (calls - total) / elapsed_s, "", 2500)]


def _tick_quantile(page: dict[str, float], share: float) -> float:
    counts = {float(m[1]): count for key, count in page.items() if (m := _BUCKET.fullmatch(key))}
    return next((b for b in sorted(counts) if counts[b] >= share * counts[math.inf]), math.inf)
