"""The benches' own arithmetic, and that the smallest of them run."""

from __future__ import annotations

import asyncio
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench.effects.client import Latencies
from bench.figures import Figure, number, quantile, table
from bench.scripts import row_of
from bench.tree import besteffort_of, kubepods_of, make_pods, scratch_root
from koordlet.decision.resource import MIN_SHARES, Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.intervals import Interval, Verdict
from koordlet.state.kubepods import KubepodsSource
from koordlet.state.node_state import NodeState


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )


def test_quantiles_are_values_that_were_measured() -> None:
    values = [float(value) for value in range(1, 101)]
    assert quantile(values, 0.5) == 50
    assert quantile(values, 0.99) == 99
    assert quantile([3.0], 0.99) == 3
    with pytest.raises(ValueError, match="no values"):
        quantile([], 0.5)


def test_latencies_since_a_moment() -> None:
    seen = Latencies(at_s=[0.5, 1.9, 2.0, 3.5], ms=[90.0, 80.0, 1.0, 2.0], failed=0, client_cores=0)
    assert seen.since(2.0).ms == [1.0, 2.0]
    assert seen.since(9.0).ms == []


def test_the_table_tells_which_goals_are_reached() -> None:
    text = table(
        [
            ("a", Figure("cost", 2.5, "%", 3)),
            ("a", Figure("gain", 2.5, "x", 4, at_most=False)),
            ("b", Figure("known", 1234.5, "MiB")),
        ]
    )
    _, cost, gain, known = text.splitlines()
    assert cost.split() == ["a", "cost", "2.5", "%", "<=", "3", "%", "reached"]
    assert gain.split() == ["a", "gain", "2.5", "x", ">=", "4", "x", "missed"]
    assert known.split() == ["b", "known", "1234", "MiB"]
    assert Figure("none", math.nan, "ms", 50).verdict is Verdict.UNDECIDED
    assert [number(value) for value in (0.01234, 710.4, 58.78, 0)] == ["0.0123", "710", "58.8", "0"]


def test_a_goal_within_the_interval_is_undecided() -> None:
    found = Interval(1.05, 0.98, 1.14)
    assert Figure.of("p99", found, "x", 1.20).verdict is Verdict.REACHED
    assert Figure.of("p99", found, "x", 1.10).verdict is Verdict.UNDECIDED
    assert Figure.of("p99", found, "x", 0.90).verdict is Verdict.MISSED
    assert Figure.of("p99", Interval(1.05), "x", 1.20).verdict is Verdict.UNDECIDED, "few slices"
    line = table([("a", Figure.of("p99", found, "x", 1.10))]).splitlines()[1]
    assert " ".join(line.split()) == "a p99 1.05 x 0.98 to 1.14 <= 1.1 x undecided"


def test_rows_of_the_store_bench() -> None:
    row = row_of("append a round of 600 x 12                           0.64 ms          1 ms")
    assert row == Figure("append a round of 600 x 12", 0.64, "ms", 1)
    assert row_of("  of it samples                  158 B") == Figure("of it samples", 158, "B")
    assert row_of("  RSS at eight moments, MiB      18.6 18.6 18.6") is None


def test_an_unknown_bench_is_refused_by_name() -> None:
    done = bench("dragon")
    assert done.returncode == 2
    assert "no bench 'dragon'" in done.stderr


def test_figures_of_several_come_in_the_order_of_their_names() -> None:
    """Each ran in a process of its own, in small beside others."""
    done = bench("--smoke", "nri", "tsdb")
    assert done.returncode == 0, done.stderr
    rows = [line.split()[0] for line in done.stdout.splitlines()]
    names = [name for name in rows if name in ("nri", "tsdb")]
    assert names == sorted(names) and set(names) == {"nri", "tsdb"}


@pytest.mark.kernel
@pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups, which needs root")
def test_only_who_is_told_finds_the_tree_of_a_bench() -> None:
    """Another koordlet on the machine must not limit what a bench measures."""

    async def pods_at(root: str) -> int:
        state = NodeState([KubepodsSource(host, cgroups.layout, root=root)], lambda: None)
        state.start()
        try:
            return sum(name in pod.cgroup for pod in state.pods())
        finally:
            state.stop()

    cgroups = Cgroups(host := LinuxHost(), detect(host))
    name = f"koordlet-bench-{os.getpid()}"
    with scratch_root(cgroups, name) as make:
        make_pods(cgroups, make, name, pods=3, containers=1)
        assert asyncio.run(pods_at("")) == 0
        assert asyncio.run(pods_at(kubepods_of(name))) == 3
        assert cgroups.read(besteffort_of(name), Resource.CPU_SHARES) == MIN_SHARES


@pytest.mark.kernel
@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="makes cgroups, which needs root")
def test_the_daemon_bench_in_small() -> None:
    done = bench("--smoke", "--json", "daemon")
    assert done.returncode == 0, done.stderr
    figures = {f.name: f for f in msgspec.json.decode(done.stdout, type=list[Figure])}
    assert figures["pods it saw"].value >= 20
    left = [name for name in os.listdir("/sys/fs/cgroup/") if name.startswith("koordlet-bench")]
    assert not left


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler (apt install gcc)")
def test_the_devices_bench_in_small() -> None:
    done = bench("--smoke", "--json", "devices")
    assert done.returncode == 0, done.stderr
    figures = {f.name: f for f in msgspec.json.decode(done.stdout, type=list[Figure])}
    assert figures["of it calls of the library"].value > 0
    assert figures["GPUs: a reading, in its thread"].unit == "ms CPU"
