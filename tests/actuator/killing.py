"""kill -9 of a writer at random instants, on real cgroups, processes and files, then restore:
every byte as before."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal.journal import Journal
from koordlet.actuator.restore import RestoreReport, Status, restore
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import ABSENT, UNLIMITED, Resource, Value
from koordlet.decision.why import Why
from koordlet.kernel.cgroup.cgroups import Cgroups, Unsupported
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.linux import LinuxHost
from tests.controllers import pass_on, passed_on
from tests.kernel.proc.test_oom_score import child

BOOT = "this-boot"
WHY = Why("test.rule", "the test wants it")
CHILD_LIVES_S = 5.0
"""Then it ends by itself, whatever became of the test."""

MIB = 1 << 20
File = tuple[str, Resource]
VALUES: dict[Resource, list[Value]] = {
    Resource.CPU_QUOTA_US: [UNLIMITED, 10_000, 20_000, 50_000, 90_000],
    Resource.CPU_PERIOD_US: [50_000, 100_000, 200_000],
    Resource.CPU_BURST_US: [0, 1000, 9000, 20_000],
    Resource.CPU_SHARES: [2, 3, 77, 1024, 5000],
    Resource.CPU_IDLE: [0, 1],
    Resource.CPUSET_CPUS: ["0", "1", "0-1"],
    Resource.MEMORY_LIMIT: [UNLIMITED, 64 * MIB, 64 * MIB + 7, 256 * MIB],
}
OF_PROCESSES: dict[Resource, list[Value]] = {Resource.OOM_SCORE_ADJ: [0, 100, 300, 900]}
OF_MACHINE: dict[Resource, list[Value]] = {
    Resource.TERWAY_GLOBAL: ["a 1\n", "a 2\n"],
    Resource.TERWAY_PODS: ["{}", "{new}", ABSENT],
}
CHOICES = VALUES | OF_PROCESSES | OF_MACHINE
BEFORE: list[tuple[str, Resource, Value]] = [
    ("", Resource.CPUSET_CPUS, "0-1"),
    ("", Resource.CPU_QUOTA_US, 150_000),
    ("", Resource.CPU_SHARES, 777),
    ("/a", Resource.CPUSET_CPUS, "0-1"),
    ("/a", Resource.CPU_QUOTA_US, 80_000),
    ("/a", Resource.CPU_BURST_US, 5000),
    ("/a", Resource.CPU_SHARES, 33),
    ("/a/b", Resource.CPUSET_CPUS, "1"),
    ("/a/b", Resource.MEMORY_LIMIT, 128 * MIB),
    ("/c", Resource.CPU_IDLE, 1),
]
"""Not the defaults, so that a forgotten original shows; the other files keep theirs."""
LEAVES = ("/a/b", "/c")


def lacks() -> str:
    """Why nothing can be written here; empty where it can."""
    if os.geteuid() != 0:
        return "needs root to make cgroups"
    if (os.cpu_count() or 1) < 2:
        return "needs two CPUs to move a cpuset between"
    host = LinuxHost()
    made = Cgroups(host, detect(host))
    try:
        for resource in VALUES:
            made.directory("", resource)
    except Unsupported as error:
        return str(error)
    return ""


@contextmanager
def tree(cgroups: Cgroups) -> Iterator[list[str]]:
    """Test cgroups, parents first, in every hierarchy of the resources above. Raises Unsupported
    where this kernel has not all of them."""
    base = f"koordlet-test-{os.getpid()}-kill"
    groups = [base, f"{base}/a", *(base + leaf for leaf in LEAVES)]
    directories = {cgroups.directory(g, r): None for g in groups for r in VALUES}
    made: list[str] = []
    with passed_on(LinuxHost(), cgroups.layout.v2):
        try:
            for directory in directories:
                os.mkdir(directory)
                made.append(directory)
                # Not the leaves: a group that passes controllers on may hold no process.
                if directory.startswith(f"{cgroups.layout.v2}/") and not directory.endswith(LEAVES):
                    pass_on(LinuxHost(), directory)
            for suffix, resource, value in BEFORE:
                cgroups.write(base + suffix, resource, value)
            yield groups
        finally:
            for directory in sorted(made, reverse=True):
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(directory)


@contextmanager
def files(cgroups: Cgroups, tree: list[str]) -> Iterator[list[File]]:
    """All that is written; two processes with different scores are there for it."""
    leaf = next(group for group in tree if group.endswith("/a/b"))
    with child(cgroups, leaf), child(cgroups, leaf) as odd:
        LinuxHost().write(f"/proc/{odd}/oom_score_adj", b"300")
        yield [
            *((group, resource) for group in tree for resource in VALUES),
            *((leaf, resource) for resource in OF_PROCESSES),
            *(("", resource) for resource in OF_MACHINE),
        ]


def play(directory: Path, chance: random.Random, rounds: Iterable[int]) -> Counter[str]:
    """Kill in each round, now and then also the restore, and compare. How often what happened.

    Raises Unsupported where this kernel has not all of the files.
    """
    terway = directory / "qos"
    terway.mkdir()
    (terway / "pod.json").write_text("{old}")
    host = LinuxHost()
    cgroups = Cgroups(host, detect(host))
    knobs = Knobs(host, cgroups, terway_dir=str(terway))
    with tree(cgroups) as groups, files(cgroups, groups) as written:
        return _rounds(knobs, written, directory, chance, rounds)


def _rounds(
    knobs: Knobs,
    files: list[File],
    directory: Path,
    chance: random.Random,
    rounds: Iterable[int],
) -> Counter[str]:
    counts: Counter[str] = Counter()
    journal_path = str(directory / "journal")
    before = snapshot(knobs, files)
    round_s = one_round_s(knobs, files, journal_path)
    longest_s = usual_s = 10 * round_s
    for number in rounds:
        seed = chance.getrandbits(32)
        run_and_kill(
            lambda seed=seed: apply_plans(knobs, files, journal_path, seed),
            chance.uniform(0, longest_s),
        )
        counts["kills of a writer"] += 1
        if snapshot(knobs, files) != before:
            counts["kills that left values"] += 1
            longest_s = max(0.9 * longest_s, usual_s)
        else:  # too early: the machine may have got slower since
            longest_s = min(1.1 * longest_s, CHILD_LIVES_S)
        if number % 4 == 0:
            run_and_kill(lambda: put_back(knobs, journal_path), chance.uniform(0, round_s))
            counts["kills of a restore"] += 1
        report = put_back(knobs, journal_path)
        assert report.ok and not [i for i in report.items if i.status is Status.FOREIGN], number
        assert snapshot(knobs, files) == before, number
        assert os.listdir(directory / "qos") == ["pod.json"], number
        counts["restores"] += 1
        counts["files compared"] += len(files)
    return counts


def snapshot(knobs: Knobs, files: list[File]) -> dict[File, bytes]:
    return {file: knobs.read_raw(*file) for file in files}


def random_plan(chance: random.Random, files: list[File]) -> Plan:
    chosen = chance.sample(files, chance.randrange(len(files) // 2))
    wants = tuple(Setting(g, r, chance.choice(CHOICES[r]), WHY) for g, r in chosen)
    return Plan(chance.choice("abc"), wants)


def apply_plans(knobs: Knobs, files: list[File], journal_path: str, seed: int) -> None:
    """The child of most rounds: plans as fast as they go."""
    chance = random.Random(seed)
    actuator = Actuator(knobs, Journal(journal_path, boot_id=BOOT))
    began = time.monotonic()
    while (now := time.monotonic()) < began + CHILD_LIVES_S:
        actuator.apply([random_plan(chance, files)], now=now, time=now)


def one_round_s(knobs: Knobs, files: list[File], journal_path: str) -> float:
    """How long this machine takes to start, to apply a plan and to restore: 3 ms, or 70 where
    an emulator runs it."""
    began = time.monotonic()
    journal = Journal(journal_path, boot_id=BOOT)
    plan = random_plan(random.Random(1), files)
    Actuator(knobs, journal).apply([plan], now=began, time=began)
    journal.close()
    put_back(knobs, journal_path)
    return time.monotonic() - began


def run_and_kill(work: Callable[[], None], delay_s: float) -> None:
    """Run ``work`` in a forked child and send SIGKILL after the delay."""
    is_ready, ready = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(ready, b"!")
            work()
        finally:
            os._exit(0)
    try:
        os.close(ready)
        os.read(is_ready, 1)
        time.sleep(delay_s)
    finally:
        os.close(is_ready)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def put_back(knobs: Knobs, journal_path: str) -> RestoreReport:
    return restore(knobs, journal_path, boot_id=BOOT, now=0.0, time=0.0)
