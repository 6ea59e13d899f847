"""Random operations on the fake and the real kernel: every answer must be the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conformance.runner import Site, Step, run
from tests.conformance.sites import disks_here, fake_site

_GROUPS = ("a", "a/b", "a/b/c", "d")
_PROCESSES = ("p", "q")
_QUOTAS = ["-1", "20000", "50000", "100000", "250000", "0", "max"]
_CPUS = ["0", "1", "0-1", "\n", "", "2", "1,0", "x"]
_FILES: dict[str, dict[str, list[str]]] = {
    "cpu": {
        "cpu.shares": ["2", "1024", "0", "300000", "-1", "7\n"],
        "cpu.idle": ["0", "1", "2"],
        "cpu.cfs_quota_us": _QUOTAS,
        "cpu.cfs_period_us": ["50000", "100000", "200000", "0"],
        "cpu.cfs_burst_us": ["0", "10000", "50000", "200000", "-1"],
    },
    "cpuset": {
        "cpuset.cpus": _CPUS,
        "cpuset.mems": ["0", "\n", "1"],
        "cgroup.clone_children": ["0", "1"],
    },
    "memory": {
        "memory.limit_in_bytes": ["-1", "8M", "64M", "70000000", "max"],
        "memory.soft_limit_in_bytes": ["-1", "1M"],
    },
    "blkio": {
        "blkio.throttle.read_bps_device": ["{disk} 1000", "{disk} 0", "{disk2} 7", "1"],
        "blkio.throttle.read_iops_device": ["{disk} 1000", "{disk} 0"],
    },
    "pids": {"pids.max": ["5", "max", "0", "-1"]},
    "unified": {
        "cgroup.freeze": ["0", "1", "2"],
        "cgroup.max.depth": ["0", "1", "max"],
        "cgroup.max.descendants": ["0", "2", "max"],
        "cgroup.pressure": ["0", "1"],
    },
    "v2cpu": {
        "cgroup.subtree_control": ["+cpu", "-cpu", "+cpu +memory", "-memory", "+cpuset"],
        "cpu.weight": ["1", "100", "10000", "0"],
        "cpu.idle": ["0", "1"],
        "cpu.max": ["max", "20000", "50000 100000", "max 50000", "-1"],
        "cpu.max.burst": ["0", "10000", "50000"],
    },
    "v2cpuset": {"cpuset.cpus": _CPUS, "cpuset.cpus.effective": ["0"]},
    "v2memory": {"memory.high": ["max", "1M"], "memory.min": ["0", "1M", "max"]},
}


def _step(place: str) -> st.SearchStrategy[Step]:
    group = st.sampled_from(_GROUPS).map(lambda name: f"{{{place}}}/{name}")
    file = st.sampled_from(sorted(_FILES[place]))
    write = st.tuples(group, file).flatmap(
        lambda at: st.sampled_from(_FILES[place][at[1]]).map(
            lambda value: Step("write", f"{at[0]}/{at[1]}", value)
        )
    )
    move = st.tuples(group, st.sampled_from(_PROCESSES)).map(
        lambda at: Step("write", f"{at[0]}/cgroup.procs", f"{{{at[1]}}}")
    )
    return st.one_of(
        group.map(lambda path: Step("mkdir", path)),
        group.map(lambda path: Step("mkdir", path)),
        write,
        write,
        write,
        move,
        group.map(lambda path: Step("rmdir", path)),
    )


def _sequences(places: list[str]) -> st.SearchStrategy[list[Step]]:
    """All in one hierarchy: only there they meet."""
    return st.sampled_from(places).flatmap(
        lambda place: st.lists(_step(place), min_size=5, max_size=14).map(
            lambda steps: _around(place, steps)
        )
    )


def _around(place: str, steps: list[Step]) -> list[Step]:
    """First the groups and two processes; last a look at every value, and everything undone."""
    parents = [Step("mkdir", f"{{{place}}}/{group}") for group in _GROUPS[:2]]
    look = [
        Step("read", f"{{{place}}}/{group}/{file}")
        for group in _GROUPS
        for file in (*_FILES[place], "cgroup.procs")
    ]
    undo = [Step("kill", process) for process in _PROCESSES]
    undo += [Step("write", f"{{{place}}}/{group}/cgroup.freeze", "0") for group in _GROUPS]
    undo += [Step("rmdir", f"{{{place}}}/{group}") for group in reversed(_GROUPS)]
    return [*(Step("spawn", process) for process in _PROCESSES), *parents, *steps, *look, *undo]


@pytest.mark.kernel
def test_random_operations_answer_alike(real: Site) -> None:
    places = [place for place in _FILES if place in real.places]

    @settings(
        max_examples=200,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(_sequences(places))
    def alike(steps: list[Step]) -> None:
        wanted = run(real, tuple(steps))
        fake = fake_site("koordlet-conformance", disks_here())
        got = run(replace(fake, words=real.words), tuple(steps))
        rows = list(zip(steps, wanted, got, strict=True))
        seen = [f"{s.op} {s.path} = {s.data!r}: kernel {w}, fake {g}" for s, w, g in rows]
        assert wanted == got, "\n".join(seen)

    alike()
