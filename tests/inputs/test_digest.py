from __future__ import annotations

import subprocess
import sys

import pytest

from koordlet.decision.plan import Decision, Eviction, Plan, Reclaim, Setting, Victim, VictimKind
from koordlet.decision.resource import Resource
from koordlet.decision.why import Input, Why
from koordlet.inputs.digest import digest, failure

WHY = Why("test", "because", (Input("x", 1),))
SETTING = Setting("kubepods", Resource.CPU_SHARES, 2, WHY)
EVICTION = Eviction(Victim(VictimKind.POD, "u"), "BECPUEvict", WHY)
PLAN = Plan("test", (SETTING,), evictions=(EVICTION,))
DECISION = Decision(PLAN, 1, (WHY,), reclaims=(Reclaim("kubepods", 4096, WHY),), ls_cores=1.5)


def with_setting(**changes: object) -> Decision:
    setting = Setting(**{f: getattr(SETTING, f) for f in SETTING.__struct_fields__} | changes)
    return Decision(Plan("test", (setting,), evictions=(EVICTION,)), 1, DECISION.notes,
                    reclaims=DECISION.reclaims, ls_cores=1.5)  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        with_setting(value=3),
        with_setting(value="2"),
        with_setting(cgroup="kubepods2"),
        with_setting(resource=Resource.CPU_IDLE),
        with_setting(raises=1),
        with_setting(without=1),
        Decision(Plan("test", evictions=(EVICTION,)), 1, DECISION.notes),
        Decision(Plan("test", (SETTING,), keep_all=True, evictions=(EVICTION,)), 1, DECISION.notes,
                 reclaims=DECISION.reclaims, ls_cores=1.5),
        Decision(PLAN, 1, (), reclaims=DECISION.reclaims, ls_cores=1.5),
        Decision(PLAN, 1, DECISION.notes, reclaims=(), ls_cores=1.5),
        Decision(PLAN, 1, DECISION.notes, reclaims=DECISION.reclaims, ls_cores=1.25),
    ],
)  # fmt: skip
def test_what_a_decision_does_is_in_it(other: Decision) -> None:
    assert digest(other) != digest(DECISION)


def test_the_memory_and_reasons_of_settings_are_not() -> None:
    assert digest(with_setting(why=Why("other", "else"))) == digest(DECISION)
    other = Decision(PLAN, 2, DECISION.notes, reclaims=DECISION.reclaims, ls_cores=1.5)
    assert digest(other) == digest(DECISION)


def test_it_is_the_same_in_another_process() -> None:
    """Hashes of Python are not."""
    code = (
        "from koordlet.decision.plan import Decision, Plan\n"
        "from koordlet.inputs.digest import digest\n"
        "print(digest(Decision(Plan('test', keep_below=('a', 'b')), ls_cores=0.1)))"
    )
    here = digest(Decision(Plan("test", keep_below=("a", "b")), ls_cores=0.1))
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        )
        assert int(run.stdout) == here


def test_an_error_is_its_kind() -> None:
    assert failure(ValueError("at 0x7f01")) == failure(ValueError("at 0x7f02"))
    assert failure(ValueError()) != failure(TypeError())


def test_a_cgroup_with_any_name() -> None:
    assert digest(with_setting(cgroup="caf\udce9")) != digest(with_setting(cgroup="caf\udce8"))
