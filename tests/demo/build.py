"""Results as an arm could have given them."""

from __future__ import annotations

from typing import Any

from koordlet.decision.why import Input, Why
from koordlet.demo.model import ArmResult, DemoResult, Moment, Request, Sample, Settings

SETTINGS = Settings(
    seconds=4.0,
    repeat=1,
    arms=("alone", "unmanaged", "managed"),
    rate_per_s=100.0,
    service_ms=2.5,
    rounds=10,
    workers=2,
    burners=4,
    thrash_mib=64,
    cpus=2,
    simulated=False,
    kernel="6.1.0",
    cgroup_layout="hybrid",
)


def moment(t: float = 1.0, previous: str = "100", wanted: str = "50", **fields: Any) -> Moment:
    why = Why("cpu-suppress.quota", "because <LS> & BE", (Input("node", 1.5, "cores", 2.0, 0.3),))
    values: dict[str, Any] = {
        "owner": "cpu-suppress",
        "cgroup": "koordlet-demo/be",
        "resource": "cpu.cfs_quota_us",
        "result": "written",
        "why": why,
    }
    return Moment(t=t, previous=previous, wanted=wanted, **(values | fields))


def result(arm: str = "alone", *moments: Moment, **fields: Any) -> ArmResult:
    values: dict[str, Any] = {
        "repeat": 1,
        "seconds": 4.0,
        "requests": 400,
        "p50_ms": 3.0,
        "p99_ms": 5.0,
        "p999_ms": 6.0,
        "ls_throttled_ratio": 0.0,
        "be_throttled_ratio": 0.25,
        "node_utilisation_ratio": 0.9,
        "ls_cores": 0.6,
        "client_cores": 0.1,
        "be_cores": 1.1,
        "other_cores": 0.1,
        "capacity_cores": 2.0,
        "be_share_of_left_ratio": None if arm == "alone" else 0.85,
        "be_blocks": 6400,
        "be_moved_mib": 4000,
        "timeline": tuple(Sample(i / 4, 0.6, 1.1, 1.8) for i in range(1, 17)),
        "latencies": tuple(Request(i / 100, 3.0 + (i % 100) / 25) for i in range(400)),
        "moments": moments,
    }
    return ArmResult(arm=arm, **(values | fields))


def demo(*results: ArmResult, **settings: Any) -> DemoResult:
    fields = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__}
    return DemoResult(Settings(**(fields | settings)), results)
