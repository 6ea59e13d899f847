"""Pairs that were reported, out of the rules of their notes."""

from __future__ import annotations

import pytest

from koordlet.decision.record import Kind, PodKind, Record
from koordlet.decision.why import Input, Why
from koordlet.diagnosis.who import Key, Who
from koordlet.history.verdicts import Verdict, is_verdict, share_of, verdicts
from koordlet.qos.interference import by_cpi
from koordlet.qos.interference.cpi2 import Cpi, Window
from koordlet.qos.interference.strategy import InterferenceOptions, InterferenceState, decide
from koordlet.qos.interference.windows import Who as Part
from tests.qos.build import Kernel, Metrics, be_pod, node, pod, snapshot

NAMES: dict[Key, Who] = {
    (PodKind.POD, "u1"): Who(PodKind.POD, "u1", "web", "shop", "LS"),
    (PodKind.POD, "u2"): Who(PodKind.POD, "u2", "sort", "batch", "BE"),
    (PodKind.APPLICATION, "my.app"): Who(PodKind.APPLICATION, name="my.app", qos="LS"),
}


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("interference.cpu.u1.u2", ("cpu", "shop/web", "batch/sort")),
        ("interference.io.u1.my.app", ("io", "shop/web", "my.app")),
        ("interference.cpi.my.app.u2", ("cpi", "my.app", "batch/sort")),
        ("interference.cpu.u1.rest", ("cpu", "shop/web", "others")),
        ("interference.cpu.u1.self", None),
        ("interference.cpu.u1./", None),
        ("interference.cpu.gone.u2", None),
        ("interference.more", None),
        ("interference", None),
    ],
)
def test_who_is_meant(rule: str, wanted: tuple[str, str, str] | None) -> None:
    found = list(verdicts({rule: 0.5}, NAMES))
    assert found == ([Verdict(*wanted, 0.5)] if wanted else [])


def test_the_notes_of_the_strategy_are_understood() -> None:
    """Rules and inputs are those that it writes today."""
    suspect = Part("pod", "u2"), 0.8
    cpi = Cpi(mean=1.2, variance=0.01, windows=20, bad=(True, True, True))
    known = by_cpi.Victim(
        Part("pod", "u1"), 1.7e9 + 999, 60.0, cpi, (Window(2.5, {suspect[0]: 1.0}),), suspect
    )
    memory = InterferenceState(cpi=by_cpi.Known(1.7e9 + 999, {"w": known}))
    pods = (pod("u1", containers=("w",)), be_pod("u2", containers=("s",)))
    now = snapshot(node(4), pods=pods, metrics_=Metrics(), in_force=Kernel(), now=1000.0)
    (why,) = decide(now, memory, InterferenceOptions()).notes
    record = Record(time=1.0, kind=Kind.NOTE, owner="interference", why=why)
    assert is_verdict(record)
    assert share_of(record) == 0.8
    (verdict,) = verdicts({why.rule: share_of(record)}, NAMES)
    assert verdict == Verdict("cpi", "shop/web", "batch/sort", 0.8)


def test_other_records_are_none() -> None:
    other = Why("cpu-suppress.quota", "", (Input("blame", "much"),))
    record = Record(time=1.0, kind=Kind.WRITE, owner="interference", why=other)
    assert not is_verdict(record)
    assert share_of(record) == 0.0
