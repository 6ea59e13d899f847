"""What the manager costs on a cluster of 5,000 nodes: CPU, memory, writes to the API server.

``koord-scheduler run`` is a process of its own, on a simulated API server in this one. Every node
reports once a minute, kubelets write their heartbeats, pods come and go.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.central.cluster import Cluster
from bench.figures import Figure, NotMeasuredError, quantile

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_MIB = 1 << 20
_KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: bench
contexts: [{{name: bench, context: {{cluster: bench, user: bench}}}}]
clusters: [{{name: bench, cluster: {{server: "{url}"}}}}]
users: [{{name: bench, user: {{}}}}]
"""
_START_S = 180.0


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    nodes, pods, seconds = (200, 20, 5.0) if smoke else (5000, 20, 120.0)
    return asyncio.run(_run(nodes, pods, seconds, say))


async def _run(nodes: int, pods: int, seconds: float, say: Callable[[str], None]) -> list[Figure]:
    cluster = Cluster(nodes, pods)
    with tempfile.TemporaryDirectory(prefix="koordlet-bench-manager-") as directory:
        async with cluster.serving() as url:
            file = Path(directory) / "kubeconfig"
            file.write_text(_KUBECONFIG.format(url=url))
            log = Path(directory) / "log"
            say(f"{nodes} nodes, {nodes * pods} pods")
            with log.open("wb") as output:
                child = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "koord_scheduler.cli", "run"),
                        *("--kubeconfig", str(file), "--metrics-addr=0", "--health-probe-addr=0"),
                        # The first writes would take minutes; afterwards no limit is ever met.
                        *("--rest-config-qps=400", "--rest-config-burst=400"),
                        "--log-level=warning",
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            try:
                return await _measured(cluster, child, nodes, seconds, say)
            except _EndedError:
                text = log.read_text(errors="replace")[-800:]
                raise NotMeasuredError(f"koord-scheduler ended: {text}") from None
            finally:
                child.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(child.wait, 20)
                child.kill()
                child.wait()


class _EndedError(Exception):
    pass


async def _measured(
    cluster: Cluster,
    child: subprocess.Popen[bytes],
    nodes: int,
    seconds: float,
    say: Callable[[str], None],
) -> list[Figure]:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    living = asyncio.create_task(cluster.live())
    try:
        # The first time, every node gets a NodeSLO, a NodeMetric spec and its resources.
        steady_s = 0.0
        last = -1
        while steady_s < 3.0 or cluster.writes.total() < nodes:
            await asyncio.sleep(1.0)
            if child.poll() is not None:
                raise _EndedError
            now = cluster.writes.total()
            steady_s = steady_s + 1.0 if now - last < nodes / 60 else 0.0
            last = now
            if loop.time() - begun_s > 120 + nodes / 4:
                raise NotMeasuredError("the first writes did not end")
        first_s, first_cpu_s = loop.time() - begun_s, _cpu_s(child.pid)
        say(f"settled after {first_s:.0f} s, {cluster.writes.total()} writes")
        writes, reads = cluster.writes.total(), cluster.requests["GET"]
        cluster.per_node.clear()
        cluster.delays_s.clear()
        begun_s = loop.time()
        await asyncio.sleep(seconds)
        if child.poll() is not None:
            raise _EndedError
        passed_s = loop.time() - begun_s
        cpu_s = _cpu_s(child.pid) - first_cpu_s
        made = cluster.writes.total() - writes
        busiest = max(cluster.per_node.values(), default=0)
        say(f"writes: {dict(cluster.writes)}; reads {cluster.requests['GET'] - reads}")
        delays = sorted(cluster.delays_s) or [0.0]
        most, now = _status(child.pid, "VmHWM"), _status(child.pid, "VmRSS")
        minutes = passed_s / 60
        return [
            Figure(f"CPU on {nodes} nodes", cpu_s / passed_s, "cores", 0.1),
            Figure("resident memory", now / _MIB, "MiB", 150.0),
            Figure("most memory, the first lists included", most / _MIB, "MiB"),
            Figure("writes per node and minute", made / nodes / minutes, "writes", 1.0),
            Figure("most writes to one node in a minute", busiest / max(1.0, minutes), "writes"),
            Figure("report to write, median", quantile(delays, 0.5) * 1000, "ms"),
            Figure("report to write, p99", quantile(delays, 0.99) * 1000, "ms"),
            Figure("first time: all nodes written", first_s, "s"),
            Figure("first time: CPU", first_cpu_s, "s"),
        ]
    finally:
        living.cancel()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S


def _status(pid: int, key: str) -> int:
    """Bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0]) * 1024
    return 0
