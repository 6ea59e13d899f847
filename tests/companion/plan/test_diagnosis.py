"""The record of a failed decision, in the reference's fields (docs/reference/central.md 9.5)."""

from __future__ import annotations

import msgspec

from koord_scheduler.model.cluster.nodes import Taint
from koord_scheduler.plan.diagnosis import diagnose
from koord_scheduler.plan.outcomes import Failure
from koord_scheduler.plan.preemption.pods import Preemptor
from tests.companion.plan.build import classes, cluster, engine, node, pod, running

NOW = "2026-11-27T01:00:00Z"


def test_the_record_of_a_pod_without_a_node() -> None:
    make = classes()
    decide = engine(cluster(node("n1"), node("n2", taints=(Taint("a", "b", "NoSchedule"),))))
    failure = decide.place(pod("p", make(cpu=5000)))
    assert isinstance(failure, Failure)
    record = diagnose(decide, failure, NOW, preemption=Preemptor(decide).preempt(failure.pod))
    assert msgspec.to_builtins(record) == {
        "timestamp": NOW,
        "questionedKey": "a/p",
        "isRootCausePod": True,
        "scheduleDiagnosis": {
            "nodeFailedDetails": (
                {
                    "failedPlugin": "NodeResourcesFit",
                    "reason": "Insufficient cpu",
                    "preemptMightHelp": True,
                    "failedNodes": ("n1",),
                },
                {
                    "failedPlugin": "TaintToleration",
                    "reason": "node(s) had untolerated taint {a: b}",
                    "preemptMightHelp": False,
                    "failedNodes": ("n2",),
                },
            )
        },
        "preemptionDiagnosis": {
            "failedMessage": "0/2 nodes are available: "
            "1 No preemption victims found for incoming pod, "
            "1 Preemption is not helpful for scheduling."
        },
    }


def test_a_gang_tells_what_nodes_offer_and_what_it_waits_for() -> None:
    make = classes()
    found = cluster(node("n1"), node("n2", cpu=500))
    running(found, "low", make(cpu=3000), "n1")
    decide = engine(found)
    member = pod("p", make(cpu=1000, priority=5), gang="a/g")
    failure = decide.place_all([member, pod("q", member.cls, gang="a/g")])
    assert isinstance(failure, Failure)
    preemption = Preemptor(decide).preempt(pod("r", make(cpu=2000, priority=5)))
    record = diagnose(decide, failure, NOW, preemption=preemption, group="a/g", bound=1)
    assert record.questioned_key == "a/g"
    assert record.schedule_diagnosis.already_wait_for_bound == 1
    assert record.schedule_diagnosis.node_offer_slot == {"n1": 1}
    assert record.suggestion is not None
    assert record.suggestion.type == "WaitingVictimReleased"


def test_where_no_eviction_helps_it_says_so() -> None:
    decide = engine(cluster(node("n1", taints=(Taint("a", "b", "NoSchedule"),))))
    failure = decide.place(pod("p", classes()()))
    assert isinstance(failure, Failure)
    record = diagnose(decide, failure, NOW)
    assert record.suggestion is not None
    assert record.suggestion.type == "EvictWorkloadSelf"
