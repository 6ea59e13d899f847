"""Memory of known temperature on the real kernel, measured by every way that it has.

Mapped memory must be found to within 5 %. Page cache that is hot by ``read(2)`` alone passes for
cold where MGLRU is on, whatever the way; only refaults tell.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.cold.clear_refs import ClearRefs
from koordlet.kernel.cold.cold import Cold, Method, NotAvailable
from koordlet.kernel.cold.mglru import Mglru
from koordlet.kernel.cold.page_idle import PageIdle
from koordlet.kernel.cold.refault import refault_pages
from koordlet.kernel.linux import LinuxHost
from koordlet.kernel.reclaim import reclaim
from tests.kernel.cold.driven import lacks, scanned
from tests.kernel.cold.workloads import MIB, TRUTH, running

pytestmark = [pytest.mark.kernel, pytest.mark.slow, pytest.mark.timeout(600)]

INTERVAL_S = 8.0
WITHIN = 0.05
INTERPRETER_MIB = 16
"""The most of a workload's own that it does not touch any more: Python's."""


@pytest.fixture
def pods(linux: LinuxHost, layout: Layout, cgroup: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    with running(linux, layout, cgroup, tmp_path) as found:
        yield found


def available(method: Method) -> Method:
    try:
        method.check()
    except (NotAvailable, OSError) as missing:
        lacks(method.name, missing)
    return method


def started(request: pytest.FixtureRequest) -> dict[str, str]:
    """The workloads, once it is known that they are needed."""
    pods: dict[str, str] = request.getfixturevalue("pods")
    return pods


def measured(method: Method, pods: dict[str, str]) -> dict[str, Cold]:
    """By name, from the second scan; and what it took."""
    scanned(method, *pods.values())
    time.sleep(INTERVAL_S)
    began = time.thread_time()
    found = scanned(method, *pods.values())
    print(f"\n{method.name}: {time.thread_time() - began:.3f} s of CPU for a scan")
    for name, cgroup in pods.items():
        print(f"  {name}: {TRUTH[name]} {found.get(cgroup)}")
    return {name: found[cgroup] for name, cgroup in pods.items()}


def mapped_is_right(anon_bytes: dict[str, int]) -> None:
    """To within 5 % of the workload's own cold memory, after what Python adds to each."""
    python_bytes = anon_bytes["hot"]
    assert 0 <= python_bytes <= INTERPRETER_MIB * MIB
    for name in ("cold", "mixed"):
        truth = TRUTH[name].cold * MIB
        assert anon_bytes[name] - python_bytes == pytest.approx(truth, rel=WITHIN)


def file_is_between(found: dict[str, Cold]) -> None:
    for name, truth in TRUTH.items():
        low, high = truth.cold_file, truth.cold_file + truth.hot_file
        file_bytes = found[name].file_bytes
        assert file_bytes is not None
        # A little more: files of Python that nobody else uses.
        assert (1 - WITHIN) * low * MIB <= file_bytes <= (high + INTERPRETER_MIB) * MIB


def test_mglru(linux: LinuxHost, request: pytest.FixtureRequest) -> None:
    method = available(Mglru(linux, INTERVAL_S))
    found = measured(method, started(request))
    mapped_is_right({name: cold.anon_bytes or 0 for name, cold in found.items()})
    file_is_between(found)
    # What is hot by read(2) does pass for cold: the documented limit.
    assert (found["hot"].file_bytes or 0) >= 0.9 * TRUTH["hot"].hot_file * MIB


def test_page_idle(linux: LinuxHost, cgroups: Cgroups, request: pytest.FixtureRequest) -> None:
    """With every word of a small machine in the sample."""
    method = available(PageIdle(linux, cgroups, sampled_words=1 << 20))
    found = measured(method, started(request))
    mapped_is_right({name: cold.anon_bytes or 0 for name, cold in found.items()})
    file_is_between(found)


def test_clear_refs(linux: LinuxHost, cgroups: Cgroups, request: pytest.FixtureRequest) -> None:
    method = available(ClearRefs(linux, cgroups))
    pods = started(request)
    found: dict[str, int] = {}
    names = {cgroup: name for name, cgroup in pods.items()}
    scanned(method, *names)
    for _ in names:
        time.sleep(INTERVAL_S)
        began = time.thread_time()
        ((cgroup, cold),) = scanned(method, *names).items()
        assert cold.mapped_bytes is not None
        found[names[cgroup]] = cold.mapped_bytes
        took_s = time.thread_time() - began
        print(f"\nclear-refs: {took_s:.3f} s of CPU, {names[cgroup]} {cold.mapped_bytes / MIB:.1f}")
    # It counts files too. How much of Python's each interpreter still touches is up to its moment,
    # so nothing is subtracted: Python may be cold as a whole or not at all.
    for name, truth in TRUTH.items():
        low = (1 - WITHIN) * truth.cold * MIB
        high = ((1 + WITHIN) * truth.cold + INTERPRETER_MIB) * MIB
        assert low <= found[name] <= high


def test_what_is_cold_does_not_come_back(
    linux: LinuxHost,
    layout: Layout,
    cgroups: Cgroups,
    cgroup: str,
    request: pytest.FixtureRequest,
) -> None:
    """The file that is hot by read(2) alone does: that is how it is told from a cold one."""
    if not linux.exists(f"{layout.v2}/{cgroup}/memory.reclaim"):
        pytest.skip("needs memory.reclaim of cgroup v2")
    pods = started(request)
    back = {}
    for name in ("hot", "cold"):
        path = cgroups.path(pods[name], Resource.MEMORY_STAT)
        before = refault_pages(linux.read(path), path) or 0
        for _ in range(4):
            reclaim(linux, layout, pods[name], 10 * MIB)
            time.sleep(2)
        back[name] = ((refault_pages(linux.read(path), path) or 0) - before) * 4096 / MIB
    print(f"\nrefaults after a reclaim of 40 MiB: {back} MiB")
    assert back["cold"] <= WITHIN * 40
    assert back["hot"] >= 5
