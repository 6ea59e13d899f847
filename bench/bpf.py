"""What our programs on the scheduler's tracepoints cost: a pipe between two processes of one CPU,
where every operation is two wake-ups and two switches; tasks that contend; and a service with 5,000
wake-ups a second. Arms take turns in one run, beside "off"; of the service the kernel itself says
what the programs used.

The loads are in C, because Python's own share would hide the cost.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from bench.figures import Figure, NotMeasuredError
from bench.tree import enter, scratch_root
from koordlet.demo.process import die_with_parent
from koordlet.kernel.background import no_pause
from koordlet.kernel.bpf.cost import Cost
from koordlet.kernel.bpf.run_queue import BpfRunQueue
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect, passed_on
from koordlet.kernel.linux import LinuxHost

WAKEUPS_PER_S = 5000
_TASKS = 18
_PIPE = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	int there[2], back[2], n = atoi(argv[1]);
	char byte = 0;
	struct rusage mine, child;
	if (getchar() < 0 || pipe(there) || pipe(back)) return 1;
	if (!fork()) {
		for (int i = 0; i < n; i++)
			if (read(there[0], &byte, 1) != 1 || write(back[1], &byte, 1) != 1) _exit(1);
		_exit(0);
	}
	for (int i = 0; i < n; i++)
		if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
	wait(0);
	getrusage(RUSAGE_SELF, &mine);
	getrusage(RUSAGE_CHILDREN, &child);
#define US(t) (1e6 * (t).tv_sec + (t).tv_usec)
#define BOTH(u) (US((u).ru_utime) + US((u).ru_stime))
    printf("%f\\n", (BOTH(mine) + BOTH(child)) / n);
	return 0;
}
"""
_SPIN = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
int main(int argc, char **argv)
{
	struct rusage mine;
	if (getchar() < 0) return 1;
	for (volatile long i = 0, n = 1000L * atoi(argv[1]); i < n; i++);
	getrusage(RUSAGE_SELF, &mine);
#define US(t) (1e6 * (t).tv_sec + (t).tv_usec)
	printf("%f\\n", US(mine.ru_utime) + US(mine.ru_stime));
	return 0;
}
"""
_WAKER = f"""
import time
while True:
    time.sleep({1 / WAKEUPS_PER_S} - 6e-5)
"""


def run(smoke: bool, say: Callable[[str], None]) -> list[Figure]:
    """Raises NotMeasuredError without a compiler or BTF, PermissionError without root."""
    host = LinuxHost()
    layout = detect(host)
    cgroups = Cgroups(host, layout)
    by_cpu = "cpu" in layout.v1 or "cpu" in passed_on(host, layout)
    name = f"koordlet-bench-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder, scratch_root(cgroups, name) as make:
        make(f"{name}/ls")
        make(f"{name}/other")
        cgroup = f"{name}/ls"
        victim = host.inode(f"{layout.reference_root}/{cgroup}")
        pipe, spin = _compile(folder, "pipe", _PIPE), _compile(folder, "spin", _SPIN)

        @contextmanager
        def watching(watched: bool, with_matrix: bool) -> Iterator[BpfRunQueue]:
            try:
                queue = BpfRunQueue(by_cpu_controller=by_cpu, with_matrix=with_matrix)
            except OSError as error:
                raise NotMeasuredError(f"{error.filename}: {error.strerror}") from error
            with closing(queue):
                queue.watch({victim} if watched else set())
                yield queue

        operations, rounds = (5_000, 2) if smoke else (200_000, 7)

        def one_pipe() -> float:
            return _pipe_us(cgroups, cgroup, pipe, operations)

        arms: dict[str, list[float]] = {"off": [], "attached": [], "histogram": [], "matrix": []}
        for number in range(rounds):
            say(f"pipe, round {number + 1} of {rounds}")
            arms["off"].append(one_pipe())
            for arm, watched, matrix in (
                ("attached", False, True),
                ("histogram", True, False),
                ("matrix", True, True),
            ):
                with watching(watched, matrix):
                    arms[arm].append(one_pipe())
        us = {arm: statistics.median(found) for arm, found in arms.items()}
        figures = [Figure("pipe, off: CPU of an operation", us["off"], "us")]
        for arm, about in (
            ("attached", "its cgroup not watched"),
            ("histogram", "watched, histogram alone"),
            ("matrix", "watched, histogram and matrix"),
        ):
            more = 100 * (us[arm] / us["off"] - 1)
            goal = 15.0 if arm == "matrix" else None
            figures.append(Figure(f"pipe, {about}", more, "% more", goal))
        work = 1_000 if smoke else 300_000
        spins: dict[str, list[float]] = {"off": [], "matrix": []}
        contending = f"{_TASKS} tasks contending on a CPU"
        for number in range(1 if smoke else 5):
            say(f"{contending}, round {number + 1}")
            spins["off"].append(_spin_us(cgroups, cgroup, spin, work))
            with watching(True, True):
                spins["matrix"].append(_spin_us(cgroups, cgroup, spin, work))
        off, on = statistics.median(spins["off"]), statistics.median(spins["matrix"])
        figures.append(Figure(f"{contending}, off: CPU of all", off / 1e6, "s"))
        figures.append(Figure(f"{contending}, watched", 100 * (on / off - 1), "% more"))
        say(f"{WAKEUPS_PER_S} wake-ups a second")
        with watching(True, True) as queue:
            cost, rate = _cost_of(cgroups, cgroup, victim, 1.0 if smoke else 10.0, queue)
        cores = sum(each.cores for each in cost.values()) * WAKEUPS_PER_S / rate
        figures.append(Figure("service: its real rate of wake-ups", rate, "1/s"))
        figures.append(
            Figure(
                f"service, as for {WAKEUPS_PER_S}/s: our programs", 100 * cores, "% of a core", 0.5
            )
        )
        figures.append(Figure("service: one run", _mean_ns(cost), "ns"))
        return figures


def _spin_us(cgroups: Cgroups, cgroup: str, spin: str, work: int) -> float:
    """CPU of all tasks together for so much work."""
    processes = [_start(cgroups, cgroup, [spin, str(work)]) for _ in range(_TASKS)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"g")
        process.stdin.flush()
    return sum(float(process.communicate()[0]) for process in processes)


def _mean_ns(cost: Mapping[str, Cost]) -> float:
    runs = sum(each.runs_per_s for each in cost.values())
    return sum(each.ns_per_run * each.runs_per_s for each in cost.values()) / max(runs, 1e-9)


def _compile(folder: str, name: str, text: str) -> str:
    compiler = shutil.which("cc") or shutil.which("clang")
    if compiler is None:
        raise NotMeasuredError("no C compiler; install gcc or clang")
    source = Path(folder) / f"{name}.c"
    source.write_text(text)
    program = f"{folder}/{name}"
    subprocess.run([compiler, "-O2", "-o", program, source], check=True)
    return program


def _start(cgroups: Cgroups, cgroup: str, command: list[str]) -> subprocess.Popen[bytes]:
    """In the cgroup, on one CPU, waiting for a byte on standard input where it reads one."""
    parent, cpu = os.getpid(), max(os.sched_getaffinity(0))

    def before() -> None:
        die_with_parent(parent)
        os.sched_setaffinity(0, {cpu})

    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=before
    )
    enter(cgroups, cgroup, process.pid)
    return process


def _pipe_us(cgroups: Cgroups, cgroup: str, pipe: str, operations: int) -> float:
    process = _start(cgroups, cgroup, [pipe, str(operations)])
    out, _ = process.communicate(b"g")
    return float(out)


def _cost_of(
    cgroups: Cgroups, cgroup: str, victim: int, seconds: float, queue: BpfRunQueue
) -> tuple[dict[str, Cost], float]:
    """Less what the programs cost on the rest of the machine meanwhile; and how often a second a
    task of the victim waited."""

    def waits() -> int:
        return queue.read(no_pause).delays[victim].waits

    def measured() -> dict[str, Cost]:
        queue.meter.begin(time.monotonic())
        time.sleep(seconds)
        return dict(queue.meter.end(time.monotonic()))

    before = measured()
    process = _start(cgroups, cgroup, [sys.executable, "-c", _WAKER])
    try:
        time.sleep(0.5)
        first, began = waits(), time.monotonic()
        during = measured()
        rate = (waits() - first) / (time.monotonic() - began)
    finally:
        process.kill()
        process.communicate()
    if not during:
        raise NotMeasuredError("the kernel does not measure programs; needs 5.8 and CAP_SYS_ADMIN")
    return {
        name: Cost(
            max(cost.cores - before[name].cores, 0.0),
            cost.ns_per_run,
            cost.runs_per_s,
        )
        for name, cost in during.items()
    }, rate
