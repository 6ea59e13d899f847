"""The daemon beside a service: what its own ticks cost the service's latency, on 300 pods.

The service has two workers that nobody has pinned; there is no best-effort work. Arms in slices:
the daemon stands still, and it goes on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence

from bench.child import daemon
from bench.daemon import CONFIG
from bench.effects import services
from bench.effects.slices import (
    SMOKE,
    Size,
    Slice,
    in_slices,
    latency_ratio,
    value_ratio,
    waited_ms_per_s,
    waits_figures,
)
from bench.effects.stage import stage
from bench.figures import Figure, Measured
from bench.tree import kubepods_of, make_pods, scratch_root
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost

_THREADS, _WORK_MS, _USE = 2, 4.0, 0.2
_SETTLE_S = 10.0


def run(smoke: bool, say: Callable[[str], None], size: Size | None = None) -> Measured:
    """Raises PermissionError without root."""
    size = size or (SMOKE if smoke else Size())
    cgroups = Cgroups(host := LinuxHost(), detect(host))
    name = f"koordlet-bench-{os.getpid()}-pods"
    with stage("ls", "be") as on, scratch_root(cgroups, name) as make:
        pods = 20 if smoke else 300
        say(f"making {pods} pods")
        make_pods(cgroups, make, name, pods, 2)
        service = services.worker_threads(on, "ls", threads=_THREADS, work_ms=_WORK_MS)
        rate = round(_USE * (os.cpu_count() or 1) * 1000 / _WORK_MS, 1)
        with daemon(CONFIG.format(kubepods=kubepods_of(name))) as child:
            time.sleep(0 if smoke else _SETTLE_S)
            arms = {
                "alone": lambda: os.kill(child.pid, signal.SIGSTOP),
                "daemon": lambda: os.kill(child.pid, signal.SIGCONT),
            }
            try:
                slices = in_slices(
                    on, lambda seconds: service.load(rate, seconds, seed=size.seed), arms, size, say
                )
            finally:
                os.kill(child.pid, signal.SIGCONT)
    return Measured(_figures(slices), size.seed, slices)


def _figures(slices: Sequence[Slice]) -> list[Figure]:
    waits = value_ratio(slices, "daemon", waited_ms_per_s, to="alone")
    return [
        Figure.of(
            "p99 beside the daemon / alone", latency_ratio(slices, "daemon", 0.99), "x", 1.02
        ),
        Figure.of("p50 beside the daemon / alone", latency_ratio(slices, "daemon", 0.5), "x"),
        Figure.of("waits beside the daemon / alone", waits, "x"),
        *waits_figures(slices, ("alone", "daemon")),
    ]
