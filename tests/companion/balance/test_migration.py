"""MigrationController: limits, filter, rates, arbitration, and the life of a job
(docs/reference/central.md 10.7 to 10.12)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from koord_scheduler.balance.arbitration import Outcome, arbitrate, ordered
from koord_scheduler.balance.controller import make_controller
from koord_scheduler.balance.eviction_filter import (
    Migrating,
    Migrations,
    non_retryable,
    refusal,
    retryable,
)
from koord_scheduler.balance.job import APPROVAL, APPROVED_BY, LEDGER, Job, Left, body
from koord_scheduler.balance.migration import (
    CreateReservation,
    DeleteReservation,
    Evict,
    Facts,
    OrderReservation,
    PatchSpec,
    PodFacts,
    ReservationFacts,
    Step,
    advance,
    failed,
)
from koord_scheduler.balance.migration_args import limit_of, read_migration_args
from koord_scheduler.balance.rates import ObjectLimiters, TokenBucket
from koord_scheduler.balance.world import Resident, Workload, World
from koord_scheduler.model.cluster.arguments import ArgumentError
from koord_scheduler.model.cluster.pods import Owner
from koordlet.protocol.objects.condition import Condition
from koordlet.protocol.objects.migration import PodMigrationJobSpec, PodMigrationJobStatus
from koordlet.protocol.objects.reservation import (
    ObjectReference,
    ReservationOwner,
    ReservationSpec,
    ReservationStatus,
)
from koordlet.protocol.qos import PriorityClass
from tests.companion.balance.build import NOW_S, names, node, pod, run, workloads, world


@pytest.mark.parametrize(
    ("replicas", "value", "count"),
    [
        *((6, "80%", 4), (6, "150%", 6), (6, 5, 5), (6, 7, 6), (6, None, 2), (6, 0, 1)),
        *((50, "0%", 1), (11, None, 1), (100, None, 10), (4, None, 2), (3, None, 1), (10, None, 2)),
    ],
)
def test_limits_grow_with_the_workload(replicas: int, value: Any, count: int) -> None:
    assert limit_of(replicas, value) == count


def migrating(key: str, node: str = "n1", controller: str = "rs-uid") -> Migrating:
    return Migrating(f"job-{key}", f"default/{key}", "", node, "default", controller)


@pytest.mark.parametrize(
    ("args", "replicas", "others", "away", "passes"),
    [
        ({"maxMigratingPerNode": 2}, 100, ["a", "b"], 0, False),
        ({"maxMigratingPerNode": 2}, 100, ["a"], 0, True),
        ({"maxMigratingPerWorkload": 1}, 10, ["a"], 0, False),
        ({"maxMigratingPerWorkload": 1}, 10, ["p"], 0, True),
        ({"maxUnavailablePerWorkload": 2, "maxMigratingPerWorkload": 9}, 10, ["a"], 1, False),
        ({"maxUnavailablePerWorkload": 2, "maxMigratingPerWorkload": 9}, 10, [], 1, True),
        ({"maxUnavailablePerWorkload": 2, "maxMigratingPerWorkload": 9}, 10, ["a"], 0, True),
        ({"maxMigratingGlobally": 1}, 100, ["a"], 0, False),
        ({"maxMigratingPerNamespace": 1}, 100, ["a"], 0, False),
        (
            {"maxMigratingGlobally": 1, "skipEvictionGates": ["MaxMigratingGlobally"]},
            100,
            ["a"],
            0,
            True,
        ),
    ],
)
def test_retryable(
    args: dict[str, Any], replicas: int, others: list[str], away: int, passes: bool
) -> None:
    victim = pod("p", "n1")
    residents = [victim, pod("a", "n1"), pod("b", "n2")]
    residents += [pod(f"away{i}", "n2", ready=False) for i in range(away)]
    seen = world([node("n1"), node("n2")], residents, workload=workloads(rs_uid=replicas))
    why = retryable(read_migration_args(args), seen, victim, Migrations(map(migrating, others)))
    assert (why is None) is passes, why


@pytest.mark.parametrize(
    ("changes", "args", "words"),
    [
        ({}, {}, None),
        ({"namespace": "kube-system"}, {"namespaces": {"exclude": ["kube-system"]}}, "excluded"),
        ({"eviction_cost": 2**31 - 1}, {}, "eviction-cost"),
        ({"daemon": True}, {}, "DaemonSet"),
        ({"static": True}, {}, "static"),
        ({"terminating": True}, {}, "terminating"),
        ({"owned": False, "owner": Owner()}, {}, "no owner"),
        (
            {"owned": False, "owner": Owner(), "phase": "Failed"},
            {"evictFailedBarePods": True},
            None,
        ),
        ({"owned": False, "owner": Owner()}, {"evictAllBarePods": True}, None),
        ({"priority": 2_000_000_000}, {}, "critical"),
        ({"priority_class_name": "system-node-critical"}, {}, "critical"),
        ({"priority": 2_000_000_000}, {"evictSystemCriticalPods": True}, None),
        ({"priority": 9000}, {"priorityThreshold": {"value": 9000}}, "priorityThreshold"),
        ({"priority": 9000}, {"priorityThreshold": {"name": "none"}}, "no PriorityClass"),
        ({"local_storage": True}, {}, "local storage"),
        ({"pvc": True}, {}, None),
        ({"pvc": True}, {"ignorePvcPods": True}, "PVC"),
        ({}, {"labelSelector": {"matchLabels": {"a": "b"}}}, "labelSelector"),
        ({"owner": Owner("ReplicaSet", "one", "one", "")}, {}, "one replica"),
        ({"owner": Owner("X", "x", "unknown", "")}, {}, "not known"),
        ({}, {"maxUnavailablePerWorkload": 100}, "might be away"),
        ({}, {"maxUnavailablePerWorkload": 10}, None),
        ({}, {"maxUnavailablePerWorkload": 100, "skipCheckExpectedReplicas": True}, None),
        ({"local_storage": True, "evict_anyway": True}, {}, None),
        ({"local_storage": True}, {"skipEvictionGates": ["LocalStorage"]}, None),
    ],
)
def test_non_retryable(changes: dict[str, Any], args: dict[str, Any], words: str | None) -> None:
    victim = pod("p", "n1", **changes)
    seen = world([node("n1")], [victim], workload=workloads(rs_uid=100, one=1))
    why = non_retryable(read_migration_args(args), seen, victim)
    assert why is None if words is None else why is not None and words in why


def test_filter_knows_jobs_and_schedulers() -> None:
    victim = pod("p", "n1")
    seen = world([node("n1")], [victim], workload=workloads(rs_uid=100))
    args = read_migration_args({})
    assert refusal(args, seen, victim, Migrations()) is None
    assert "job" in str(refusal(args, seen, victim, Migrations([migrating("p")])))
    other = pod("q", "n1", scheduler="default-scheduler")
    assert "schedulerNames" in str(refusal(args, seen, other, Migrations()))
    direct = read_migration_args({"defaultJobMode": "EvictDirectly"})
    assert refusal(direct, seen, other, Migrations()) is None


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"evictQPS": "0"}, "evictQPS"),
        ({"evictQPS": "fast"}, "evictQPS"),
        ({"maxMigratingPerWorkload": "many"}, "no percentage"),
        ({"maxMigratingPerNode": -1}, "at least 0"),
        ({"objectLimiters": {"pod": {}}}, "objectLimiters"),
        ({"defaultJobTTL": "x"}, "defaultJobTTL"),
        ({"evictionPolicy": "Kill"}, "Kill"),
        ({"colour": 1}, "colour"),
    ],
)
def test_wrong_arguments_are_named(args: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        read_migration_args(args)


def test_sample_arguments() -> None:
    found = read_migration_args({"apiVersion": "descheduler/v1alpha2", "evictQPS": "10"})
    assert (found.evictions_per_s, found.job_ttl_s, found.arbitration_s) == (10.0, 300.0, 0.5)
    assert found.max_migrating_per_node == 2


def test_round_stops_at_the_limits_of_its_own_requests() -> None:
    """Four pods of ten may not all go in the round that sees no job yet."""

    class All:
        name = "All"

        def run(self, round_: Any) -> None:
            for each in round_.world.on("n1"):
                round_.evict(each, "All", "test")

    residents = [pod(f"p{i}", "n1") for i in range(4)]
    seen = world([node("n1"), node("n2")], residents, workload=workloads(rs_uid=100))
    controller = make_controller({})
    outcome = run(seen, All(), evictor=controller)
    assert names(outcome) == ["p0", "p1"], "two on a node"
    assert "on node n1" in outcome.refused[0].why
    controller = make_controller({"maxMigratingPerNode": 0, "maxMigratingPerWorkload": 3})
    assert len(names(run(seen, All(), evictor=controller))) == 3
    assert not run(seen, All(), evictor=make_controller({}), dry_run=True).requests


def test_object_limiter() -> None:
    victim = pod("p", "n1")

    def at(now_s: float) -> World:
        return world([], [victim], workload=workloads(rs_uid=10), now_s=now_s)

    args = read_migration_args({"objectLimiters": {"workload": {"duration": "100s"}}})
    limiters = ObjectLimiters(args)
    assert limiters.refusal(at(0), victim) is None
    limiters.took(at(0), victim)
    # Two of ten in 100 s: one token after 50 s.
    assert "too fast" in str(limiters.refusal(at(49), victim))
    assert limiters.refusal(at(50), victim) is None
    limiters.took(at(50), victim)
    assert limiters.refusal(at(51), victim) is not None
    limiters.took(at(300), pod("other", "n1", owner=Owner("ReplicaSet", "x", "rs2-uid", "")))
    per_namespace = read_migration_args(
        {"objectLimiters": {"namespace": {"duration": "100s", "maxMigrating": "50%"}}}
    )
    limiters = ObjectLimiters(per_namespace)
    limiters.took(at(0), victim)
    assert limiters.refusal(at(0), victim) is None, "a percentage of a namespace counts as 0"


def test_token_bucket() -> None:
    bucket = TokenBucket(10, 1)
    assert bucket.take(100.0) and not bucket.take(100.05) and bucket.take(100.1)
    assert not bucket.take(50.0), "a clock that goes back adds nothing"


# Arbitration.


def job(name: str, of: Resident, created_s: float = NOW_S, **annotations: str) -> Job:
    ref = ObjectReference(namespace=of.namespace, name=of.name, uid=of.pod.uid)
    return Job(
        name=name,
        uid=f"uid-{name}",
        created_s=created_s,
        annotations={key.replace("__", "/"): value for key, value in annotations.items()},
        spec=PodMigrationJobSpec(pod_ref=ref, ttl="5m"),
    )


def test_order_of_jobs() -> None:
    batch = [pod(f"b{i}", "n1", owner=Owner("Job", "j", "job-uid", "")) for i in range(2)]
    cheap = pod("cheap", "n1", priority_class=PriorityClass.FREE)
    prod, gone = pod("prod", "n1"), pod("gone", "n1")
    batch[0] = pod(
        "b0", "n1", priority_class=PriorityClass.BATCH, owner=Owner("Job", "j", "job-uid", "")
    )
    seen = world([node("n1")], [cheap, prod, *batch])
    jobs = [
        job("prod", prod, NOW_S),
        job("b1", batch[1], NOW_S - 9),
        job("b0", batch[0]),
        job("cheap", cheap),
        job("gone", gone),
    ]
    assert [each.name for each in ordered(jobs, seen, [])] == ["gone", "cheap", "b0", "b1", "prod"]
    counted = [Migrating("x", "default/x", "", "n2", "default", "job-uid")]
    found = [each.name for each in ordered(jobs, seen, counted)]
    assert found == ["b0", "b1", "gone", "cheap", "prod"]


def test_arbitration_passes_waits_and_fails() -> None:
    residents = [pod(f"p{i}", "n1") for i in range(4)]
    residents.append(pod("local", "n1", local_storage=True))
    seen = world([node("n1")], residents, workload=workloads(rs_uid=100))
    jobs = [job(each.name, each) for each in residents]
    jobs.append(job("missing", pod("missing", "n1")))
    jobs.append(replace(job("paused", residents[0]), spec=PodMigrationJobSpec(paused=True)))
    rulings = {each.job.name: each for each in arbitrate(jobs, seen, read_migration_args({}), [])}
    assert rulings["missing"].outcome is Outcome.PASSED
    assert rulings["local"].outcome is Outcome.FAILED
    assert rulings["paused"].outcome is Outcome.WAITS
    passed = [name for name in ("p0", "p1", "p2", "p3") if rulings[name].outcome is Outcome.PASSED]
    assert len(passed) == 2, "two on a node"


def test_one_job_at_a_time_moves_a_pod() -> None:
    victim = pod("p", "n1", evict_anyway=True)
    seen = world([node("n1")], [victim], workload=workloads(rs_uid=100))
    args = read_migration_args({})
    later, sooner = job("later", victim, NOW_S + 1), job("sooner", victim)
    found = {each.job.name: each for each in arbitrate([later, sooner], seen, args, [])}
    assert found["sooner"].outcome is Outcome.PASSED
    assert found["later"].outcome is Outcome.WAITS
    assert found["later"].why == "job sooner is about the same pod"
    paused = replace(sooner, spec=replace(sooner.spec, paused=True))
    found = {each.job.name: each for each in arbitrate([later, paused], seen, args, [])}
    assert found["later"].outcome is Outcome.PASSED
    (ruling,) = arbitrate([later], seen, args, [migrating("p")])
    assert ruling.why == "job job-p is about the same pod"


def test_a_person_has_the_last_word() -> None:
    careful = pod("p", "n1", annotations={APPROVAL: "true"})
    seen = world([node("n1")], [careful], workload=workloads(rs_uid=100))
    args = read_migration_args({})
    (ruling,) = arbitrate([job("j", careful)], seen, args, [])
    assert ruling.outcome is Outcome.WAITS and "kubectl annotate pmj j" in ruling.why
    approved = replace(job("j", careful), annotations={APPROVED_BY: "ada"})
    (ruling,) = arbitrate([approved], seen, args, [])
    assert ruling.outcome is Outcome.PASSED


# The life of a job.

TREE = {
    "metadata": {
        "namespace": "default",
        "name": "p",
        "uid": "uid-p",
        "labels": {"app": "web"},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "rs",
                "uid": "r",
                "controller": True,
            }
        ],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "c"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                        {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
                    ]
                }
            }
        },
    },
    "status": {"phase": "Running"},
}
POD = PodFacts("uid-p", "n1", True, True, TREE)
ARGS = read_migration_args({})
OWNERS = (ReservationOwner(),)


def reservation(phase: str = "Available", node: str = "n2", **changes: Any) -> ReservationFacts:
    status = ReservationStatus(phase=phase, node_name=node, **changes)
    spec = ReservationSpec(template={}, owners=OWNERS)
    return ReservationFacts(name="r", uid="r-uid", ordered=True, spec=spec, status=status)


def started(mode: str = "", **conditions: str) -> Job:
    found = job("j", pod("p", "n1"))
    spec: Any = {"mode": mode} if mode else {"reservation_options": _ref()}
    return replace(
        found,
        spec=replace(found.spec, **spec),
        status=PodMigrationJobStatus(phase="Running"),
    )


def _ref() -> Any:
    from koordlet.protocol.objects.migration import ReservationOptions

    return ReservationOptions(reservation_ref=ObjectReference(name="r"))


def go(found: Job, facts: Facts, now_s: float = NOW_S + 1) -> tuple[Job, Step]:
    step = advance(found, facts, ARGS, now_s)
    return replace(found, status=step.status), step


def test_evict_directly() -> None:
    found = replace(started("EvictDirectly"), status=PodMigrationJobStatus())
    found, step = go(found, Facts(POD))
    assert step.actions == (Evict("uid-p"),) and step.again_s == 3.0
    assert (found.phase, found.status.status, found.status.reason) == (
        "Running",
        "Eviction",
        "Evicting",
    )
    found, step = go(found, Facts(POD))
    assert not step.actions and step.again_s == 3.0, "it waits until the pod is gone"
    found, step = go(found, Facts(POD._replace(uid="another")))
    assert (found.phase, found.status.status) == ("Succeeded", "Complete")
    assert [(c.type, c.status, c.reason) for c in found.status.conditions] == [
        ("Eviction", "True", "EvictComplete")
    ]
    assert go(found, Facts())[1].actions == ()


def test_an_eviction_that_fails_is_tried_again() -> None:
    _, step = go(started("EvictDirectly"), Facts(POD))
    status = failed(step, step.actions[0], "429: budget", NOW_S)
    assert status is not None and status.reason == "FailedEvict"
    found = replace(started("EvictDirectly"), status=status)
    _, step = go(found, Facts(POD))
    assert step.actions == (Evict("uid-p"),)
    assert go(found, Facts())[0].status.reason == "MissingPod"


def test_reservation_first() -> None:
    found = job("j", pod("p", "n1"))
    found, step = go(found, Facts(POD))
    create, patch = step.actions
    assert isinstance(create, CreateReservation) and isinstance(patch, PatchSpec)
    made = create.body
    assert made["metadata"]["name"] == "uid-j"
    assert made["metadata"]["labels"]["app.kubernetes.io/created-by"] == "koord-descheduler"
    spec = made["spec"]
    assert (spec["allocateOnce"], spec["ttl"]) == (True, "5m")
    assert spec["owners"][0]["controller"]["name"] == "rs"
    assert "nodeName" not in spec["template"]["spec"]
    terms = spec["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"]
    assert len(terms) == 2
    assert all(t["matchFields"][0]["values"] == ["n1"] and t["matchExpressions"] for t in terms)
    assert TREE["spec"]["nodeName"] == "n1", "the pod's own object stays as it was"  # type: ignore[index]

    found = replace(started(), status=found.status)
    unordered = replace(reservation("Pending", ""), ordered=False)
    found, step = go(found, Facts(POD, unordered))
    assert step.again_s == 3.0 and isinstance(step.actions[0], OrderReservation)
    found, step = go(found, Facts(POD, reservation()))
    assert step.actions == (Evict("uid-p"),) and found.status.node_name == "n2"
    found, step = go(found, Facts(None, reservation()))
    assert found.status.reason == "WaitForPodBindReservation" and step.again_s == 3.0
    owners = (ObjectReference(namespace="default", name="p2", uid="u2"),)
    taken = reservation("Succeeded", current_owners=owners)
    unready = PodFacts("u2", "n2", False, True, {})
    found, step = go(found, Facts(None, taken, unready))
    assert found.status.reason == "WaitForBoundPodReady"
    found, step = go(found, Facts(None, taken, unready._replace(ready=True)))
    assert (found.phase, found.status.status) == ("Succeeded", "Complete")
    assert found.status.pod_ref is not None and found.status.pod_ref.name == "p2"
    assert {c.type for c in found.status.conditions if c.status == "True"} == {
        "ReservationCreated",
        "ReservationScheduled",
        "Eviction",
        "ReservationBound",
        "BoundPodReady",
        "PodBoundReservation",
    }


_REFUSED = Condition("Scheduled", "False", "Unschedulable", "0/3 nodes")


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(POD, None), "MissingReservation"),
        (Facts(POD, reservation("Failed", "")), "Unschedulable"),
        (
            Facts(
                POD,
                reservation("Failed", conditions=(Condition("Ready", "False", "Expired"),)),
            ),
            "ReservationExpired",
        ),
        (Facts(POD, reservation(node="n1")), "ForbiddenMigratePod"),
        (Facts(POD, reservation("Succeeded")), "ForbiddenMigratePod"),
        (Facts(None, reservation()), "MissingPod"),
    ],
)
def test_reservation_first_fails(facts: Facts, reason: str) -> None:
    found, step = go(started(), facts)
    assert (found.phase, found.status.reason, step.again_s) == ("Failed", reason, None)


def test_unschedulable_reservation_says_so_and_waits() -> None:
    found, step = go(started(), Facts(POD, reservation("Pending", "", conditions=(_REFUSED,))))
    assert (found.phase, found.status.reason) == ("Running", "Unschedulable")
    assert found.status.message == "0/3 nodes" and step.again_s == 3.0


def test_pending_pod_needs_no_eviction() -> None:
    owners = (ReservationOwner(object=ObjectReference(name="p", uid="uid-p")),)
    spec = ReservationSpec(template={}, owners=owners)
    waiting = POD._replace(node="", scheduled=False)
    found, step = go(started(), Facts(waiting, replace(reservation(), spec=spec)))
    assert found.status.status == "PodScheduled" and step.again_s == 3.0 and not step.actions
    found, _ = go(found, Facts(POD._replace(node="n2"), replace(reservation(), spec=spec)))
    assert found.phase == "Succeeded"
    theirs = replace(reservation("Succeeded"), spec=spec)
    assert go(started(), Facts(waiting, theirs))[0].status.reason == "ForbiddenMigratePod"


def test_time_paused_missing_and_limited() -> None:
    found, step = go(started(), Facts(POD, reservation()), NOW_S + 300)
    assert found.status.reason == "Timeout" and step.actions == (DeleteReservation("r"),)
    paused = replace(started(), spec=replace(started().spec, paused=True))
    assert go(paused, Facts(POD), NOW_S + 300)[1] == Step(paused.status)
    assert go(Job(name="j", created_s=NOW_S), Facts())[0].status.reason == "InvalidPodRef"
    assert go(job("j", pod("p", "n1")), Facts())[0].status.reason == "MissingPod"
    _, step = go(started(), Facts(POD, reservation(), limited="too fast"))
    assert not step.actions and step.again_s == 3.0
    anyway = replace(started(), annotations={"descheduler.alpha.kubernetes.io/evict": "true"})
    assert go(anyway, Facts(POD, reservation(), limited="too fast"))[1].actions


def test_a_users_job_gets_the_uid_of_its_pod() -> None:
    ref = ObjectReference(namespace="default", name="p")
    users = Job(
        name="j", created_s=NOW_S, spec=PodMigrationJobSpec(pod_ref=ref, mode="EvictDirectly")
    )
    _, step = go(users, Facts(POD))
    assert step.actions == (PatchSpec({"podRef": {"uid": "uid-p"}}), Evict("uid-p"))


def test_body_of_a_job() -> None:
    made = body("n", pod("p", "n1"), ARGS, instance="i", trigger="T", reason="r" * 5000)
    meta = made["metadata"]["annotations"]
    assert meta["koordinator.sh/evict-trigger"] == "T"
    assert len(meta["koordinator.sh/evict-reason"]) == 1024
    assert made["spec"]["podRef"] == {"namespace": "default", "name": "p", "uid": "uid-p"}
    assert (made["spec"]["mode"], made["spec"]["ttl"]) == ("ReservationFirst", "5m")
    found = Job(name="n", annotations=meta)
    assert found.left == ("n1", "default/ReplicaSet/rs", "rs-uid")
    assert Job(name="n", annotations={LEDGER: "n1 default/Job/j"}).left == Left(
        "n1", "default/Job/j"
    ), "as it was written before"


def of_job(name: str, **changes: Any) -> Resident:
    return pod(name, "n1", owner=Owner("Job", "train", "job-uid", "batch/v1"), **changes)


@pytest.mark.parametrize(
    ("left", "others", "args", "words"),
    [
        (None, 0, {}, None),
        (6, 0, {}, None),
        (0, 0, {}, "backoffLimit"),
        (1, 1, {}, "backoffLimit"),
        (2, 1, {}, None),
        (0, 0, {"skipCheckExpectedReplicas": True}, None),
        (1, 1, {"skipEvictionGates": ["ExpectedReplicas"]}, None),
    ],
)
def test_an_eviction_does_not_fail_a_job(
    left: int | None, others: int, args: dict[str, Any], words: str | None
) -> None:
    train = Workload("job-uid", "Job", "train", 8, frozenset({"job-uid"}), left)
    victim = of_job("p")
    done = [of_job(f"d{i}", phase="Succeeded", ready=False) for i in range(5)]
    seen = world([node("n1")], [victim, *done], workload=lambda _ns, _owner: train)
    known = read_migration_args({"maxMigratingPerNode": 0, "maxUnavailablePerWorkload": 3, **args})
    jobs = Migrations(migrating(f"o{i}", controller="job-uid") for i in range(others))
    why = non_retryable(known, seen, victim) or retryable(known, seen, victim, jobs)
    assert why is None if words is None else why is not None and words in why
    failed_pod = of_job("f", phase="Failed", ready=False)
    assert non_retryable(known, seen, failed_pod) is None, "it costs no retry"


def test_a_pod_that_is_done_needs_no_room_elsewhere() -> None:
    made = body("n", of_job("f", phase="Failed"), ARGS, instance="i", trigger="T", reason="r")
    assert made["spec"]["mode"] == "EvictDirectly"


def test_workload_of_a_deployment_has_all_its_sets() -> None:
    deployment = Workload("d", "Deployment", "web", 10, frozenset({"rs1", "rs2"}))
    victim = pod("p", "n1", owner=Owner("ReplicaSet", "web-1", "rs1", ""))
    old = pod("q", "n1", ready=False, owner=Owner("ReplicaSet", "web-0", "rs2", ""))
    seen = world([node("n1")], [victim, old], workload=lambda _ns, _owner: deployment)
    args = read_migration_args({"maxUnavailablePerWorkload": 1})
    assert "away already" in str(retryable(args, seen, victim, Migrations()))
