"""kill -9 at random instants on real cgroups, processes and files, then restore: every byte
as before."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordlet.actuator.actuator import Actuator
from koordlet.actuator.journal import Journal
from koordlet.actuator.restore import RestoreReport, Status, restore
from koordlet.decision.plan import Plan, Setting
from koordlet.decision.resource import ABSENT, UNLIMITED, Resource, Value
from koordlet.decision.why import Why
from koordlet.kernel.cgroup import Cgroups, Unsupported
from koordlet.kernel.knobs import Knobs
from koordlet.kernel.layout import detect
from koordlet.kernel.linux import LinuxHost
from tests.controllers import pass_on, passed_on
from tests.kernel.test_oom_score import child

BOOT = "this-boot"
WHY = Why("test.rule", "the test wants it")
KILLS = 40 if "KOORDLET_GUEST" in os.environ else 200
"""An emulated machine takes twenty times as long for each."""
CHILD_LIVES_S = 5.0
"""Then it ends by itself, whatever became of the test."""

MIB = 1 << 20
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


@pytest.fixture
def cgroups() -> Cgroups:
    if os.geteuid() != 0:
        pytest.skip("needs root to make cgroups")
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs to move a cpuset between")
    host = LinuxHost()
    return Cgroups(host, detect(host))


@pytest.fixture
def passing_on(cgroups: Cgroups) -> Iterator[None]:
    with passed_on(LinuxHost(), cgroups.layout.v2):
        yield


@pytest.fixture
def tree(cgroups: Cgroups, passing_on: None) -> Iterator[list[str]]:
    """Test cgroups, parents first, in every hierarchy of the resources above."""
    base = f"koordlet-test-{os.getpid()}-kill"
    groups = [base, f"{base}/a", *(base + leaf for leaf in LEAVES)]
    made: list[str] = []
    try:
        try:
            directories = {cgroups.directory(g, r): None for g in groups for r in VALUES}
        except Unsupported as error:
            pytest.skip(str(error))
        for directory in directories:
            os.mkdir(directory)
            made.append(directory)
            # Not the leaves: a group that passes controllers on may hold no process.
            if directory.startswith(f"{cgroups.layout.v2}/") and not directory.endswith(LEAVES):
                pass_on(LinuxHost(), directory)
        try:
            for suffix, resource, value in BEFORE:
                cgroups.write(base + suffix, resource, value)
        except Unsupported as error:
            pytest.skip(str(error))
        yield groups
    finally:
        for directory in sorted(made, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(directory)


@pytest.fixture
def files(cgroups: Cgroups, tree: list[str]) -> Iterator[list[tuple[str, Resource]]]:
    """All that is written in the test; two processes with different scores are there for it."""
    leaf = next(group for group in tree if group.endswith("/a/b"))
    with child(cgroups, leaf), child(cgroups, leaf) as odd:
        LinuxHost().write(f"/proc/{odd}/oom_score_adj", b"300")
        yield [
            *((group, resource) for group in tree for resource in VALUES),
            *((leaf, resource) for resource in OF_PROCESSES),
            *(("", resource) for resource in OF_MACHINE),
        ]


@pytest.fixture
def knobs(cgroups: Cgroups, tmp_path: Path) -> Knobs:
    terway = tmp_path / "qos"
    terway.mkdir()
    (terway / "pod.json").write_text("{old}")
    return Knobs(LinuxHost(), cgroups, terway_dir=str(terway))


def snapshot(knobs: Knobs, files: list[tuple[str, Resource]]) -> dict[tuple[str, Resource], bytes]:
    return {file: knobs.read_raw(*file) for file in files}


def random_plan(chance: random.Random, files: list[tuple[str, Resource]]) -> Plan:
    chosen = chance.sample(files, chance.randrange(len(files) // 2))
    wants = tuple(Setting(g, r, chance.choice(CHOICES[r]), WHY) for g, r in chosen)
    return Plan(chance.choice("abc"), wants)


def apply_plans(
    knobs: Knobs, files: list[tuple[str, Resource]], journal_path: str, seed: int
) -> None:
    """The child of most rounds: plans as fast as they go."""
    chance = random.Random(seed)
    actuator = Actuator(knobs, Journal(journal_path, boot_id=BOOT))
    began = time.monotonic()
    while (now := time.monotonic()) < began + CHILD_LIVES_S:
        actuator.apply([random_plan(chance, files)], now=now, time=now)


def one_round_s(knobs: Knobs, files: list[tuple[str, Resource]], journal_path: str) -> float:
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


@pytest.mark.kernel
def test_restore_after_kill_at_any_instant(
    knobs: Knobs, files: list[tuple[str, Resource]], tmp_path: Path
) -> None:
    journal_path = str(tmp_path / "journal")
    before = snapshot(knobs, files)
    round_s = one_round_s(knobs, files, journal_path)
    chance = random.Random(1)
    changed = 0
    longest_s = usual_s = 10 * round_s
    for seed in range(KILLS):
        run_and_kill(
            lambda seed=seed: apply_plans(knobs, files, journal_path, seed),
            chance.uniform(0, longest_s),
        )
        if snapshot(knobs, files) != before:
            changed += 1
            longest_s = max(0.9 * longest_s, usual_s)
        else:  # too early: the machine may have got slower since
            longest_s = min(1.1 * longest_s, CHILD_LIVES_S)
        if seed % 4 == 0:  # a restore that is killed itself
            run_and_kill(lambda: put_back(knobs, journal_path), chance.uniform(0, round_s))
        report = put_back(knobs, journal_path)
        assert report.ok and not [i for i in report.items if i.status is Status.FOREIGN], seed
        assert snapshot(knobs, files) == before, seed
        assert os.listdir(tmp_path / "qos") == ["pod.json"], seed
    # A kill before the first write proves nothing.
    assert changed > KILLS // 4


def put_back(knobs: Knobs, journal_path: str) -> RestoreReport:
    return restore(knobs, journal_path, boot_id=BOOT, now=0.0, time=0.0)
