"""Results as an arm could have given them."""

from __future__ import annotations

from typing import Any

import msgspec

from koordlet.decision.why import Input, Why
from koordlet.demo.figures import arm_result
from koordlet.demo.model import (
    ARMS,
    ArmResult,
    Behind,
    DemoResult,
    Moment,
    Request,
    Sample,
    Settings,
    Slice,
    Waits,
)

_OF_SLICES = ("slow", "node_cores", "ls_cores", "client_cores", "be_cores", "other_cores", "waits")
SETTINGS = Settings(
    slice_s=2.0,
    slices=4,
    seed=1,
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


def each_slice(arm: str, number: int, slow: float = 1.0, **fields: Any) -> Slice:
    """One second of 100 requests that take 3 to 7 ms, times ``slow``."""
    values: dict[str, Any] = {
        "seconds": 1.0,
        "requests": tuple(Request(i / 100, slow * (3.0 + i / 25)) for i in range(100)),
        "timeline": tuple(Sample(i / 4, 0.6, 1.1, 1.8) for i in range(1, 5)),
        "node_cores": 1.8,
        "ls_cores": 0.6,
        "client_cores": 0.1,
        "be_cores": 1.1,
        "other_cores": 0.1,
        "ls_throttled_ratio": 0.0,
        "be_throttled_ratio": 0.25,
        "waits": Waits(12.0, Behind(6.0, 4.0, 2.0)),
        "be_blocks": 1600,
        "be_moved_mib": 1000,
    }
    return Slice(arm=arm, number=number, **(values | fields))


def result(
    arm: str = "alone", *moments: Moment, slices: tuple[Slice, ...] = (), **fields: Any
) -> ArmResult:
    """Four slices by default. What is the same in each of them (``slow``, ``be_cores`` ...), else
    fields of the whole."""
    of_slices = {name: fields.pop(name) for name in _OF_SLICES if name in fields}
    made = slices or tuple(each_slice(arm, number, **of_slices) for number in range(4))
    whole = arm_result(arm, made, SETTINGS, best_effort=ARMS[arm].best_effort, moments=moments)
    return msgspec.structs.replace(whole, **fields)


def demo(*results: ArmResult, **settings: Any) -> DemoResult:
    fields = {name: getattr(SETTINGS, name) for name in SETTINGS.__struct_fields__}
    return DemoResult(Settings(**(fields | settings)), results)
