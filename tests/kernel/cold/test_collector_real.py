"""The collector with its thread on the real kernel, by the ways that are exact and quick."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Literal

import pytest

from koordlet.collectors.base import Machine
from koordlet.collectors.budget import BudgetOptions
from koordlet.collectors.cold import collector, worker
from koordlet.collectors.runner import Runner
from koordlet.decision.snapshot import Application, Node, Topology
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import Layout
from koordlet.kernel.cold import methods
from koordlet.kernel.descriptors import Descriptors
from koordlet.kernel.linux import LinuxHost
from koordlet.protocol.qos import QoSClass
from koordlet.tsdb.store import Store
from tests.kernel.cold.driven import lacks
from tests.kernel.cold.workloads import MIB, TRUTH, running

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

SCAN_S = 4.0
WORKER_SHARE = worker.SHARE if "KOORDLET_GUEST" in os.environ else 0.05
"""Of a core, since with a hundredth of one this test would only wait; that it keeps to its share is
tested in tests/collectors/cold/test_worker.py. A guest has too slow a CPU to scan faster."""
UNBOUNDED = BudgetOptions(cores=math.inf)
"""An emulated CPU is slow: nothing may be shed here."""


@pytest.mark.parametrize(
    ("method", "series"),
    [
        ("clear-refs", "host_application_memory_cold_mapped"),
        ("mglru", "host_application_memory_cold_anon"),
    ],
)
def test_every_workload_is_found(
    method: Literal["clear-refs", "mglru"],
    series: str,
    linux: LinuxHost,
    layout: Layout,
    cgroups: Cgroups,
    cgroup: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(methods, "CLEAR_REFS_LEAST_S", SCAN_S)
    monkeypatch.setattr(collector, "SAMPLE_S", 0.5)
    monkeypatch.setattr(worker, "SHARE", WORKER_SHARE)
    store = Store(None)
    machine = Machine(linux, cgroups, Descriptors(linux), store)
    options = collector.ColdOptions(method=method, interval_seconds=SCAN_S)
    way, why = methods.find((method,), methods.Machine(linux, cgroups, SCAN_S))
    if way is None:
        lacks(method, why.removeprefix(f"{method}: "))
    made = collector.ColdCollector(machine, options)
    runner = Runner([made], store, linux, UNBOUNDED)
    found: dict[str, float] = {}
    with running(linux, layout, cgroup, tmp_path) as groups:
        apps = tuple(Application(name, each, QoSClass.BE) for name, each in groups.items())
        node = Node("n", Topology(()), 1000, 1 << 30)
        deadline = time.monotonic() + 240
        while len(found) < len(apps) and time.monotonic() < deadline:
            round_ = runner.run(node, (), apps)
            for number, value in zip(round_.ids, round_.values, strict=True):
                kind, labels = store.describe(number)
                if kind == series:
                    found[labels[0][1]] = value
            time.sleep(0.2)
        about = made.about()
        runner.close()
    assert found.keys() == TRUTH.keys(), about
    assert f"finds cold memory by {method}" in about
    for name in ("cold", "mixed"):
        assert found[name] - found["hot"] == pytest.approx(TRUTH[name].cold * MIB, rel=0.05)
