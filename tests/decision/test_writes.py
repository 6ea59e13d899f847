"""A part may set what its declaration lists in ``writes``, and nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from koordlet.decision.options import DEFAULTS
from koordlet.decision.plan import Decision, Plan, Setting
from koordlet.decision.resource import Resource
from koordlet.decision.strategy import Adjustment, Hook, Level, Strategy, Subject, UndeclaredError
from koordlet.decision.why import Why
from tests.qos.build import node, snapshot

_WHY = Why("of-a-test", "of a test")
_PLAN = Plan("one", (Setting("batch", Resource.CPU_SHARES, 2, _WHY),))
STRATEGY = Strategy(
    name="one",
    help="A test.",
    options=DEFAULTS,
    function=lambda snapshot, memory, options: Decision(_PLAN),
    initial=None,
    writes=(Resource.CPU_SHARES,),
)
HOOK = Hook(
    name="two",
    help="A test.",
    options=DEFAULTS,
    levels=(Level.POD,),
    function=lambda subject, snapshot, _: Adjustment(((Resource.CPU_SHARES, 2, _WHY),)),
    writes=(Resource.CPU_SHARES,),
)


def test_what_is_declared_is_carried_out() -> None:
    assert STRATEGY.decide(snapshot(node(4)), None).plan is _PLAN
    assert HOOK.evaluate(Subject(Level.POD, "pod"), snapshot(node(4))).settings


def test_what_is_not_declared_is_a_defect_of_the_part() -> None:
    strategy = dataclasses.replace(STRATEGY, writes=(Resource.CPU_IDLE,))
    with pytest.raises(UndeclaredError, match=r"cpu\.shares of cgroup batch"):
        strategy.decide(snapshot(node(4)), None)
    hook = dataclasses.replace(HOOK, writes=())
    with pytest.raises(UndeclaredError, match=r"cpu\.shares of cgroup pod"):
        hook.evaluate(Subject(Level.POD, "pod"), snapshot(node(4)))
