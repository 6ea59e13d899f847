"""The descheduler role on a fake API server."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.balance.job import APPROVAL, APPROVED_BY, PASSED, Job
from koord_scheduler.cli.main import main
from koord_scheduler.daemon.descheduler.desk import Desk, load
from koord_scheduler.daemon.descheduler.evictions import evict
from koord_scheduler.daemon.descheduler.part import Descheduler
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.daemon.process import Companion
from koord_scheduler.kube.migration_shapes import JOBS
from koord_scheduler.kube.reservation_shapes import RESERVATIONS
from koord_scheduler.model.cluster.arguments import ArgumentError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from koordlet.protocol.objects.migration import DeleteOptions, PodMigrationJobSpec
from koordlet.protocol.objects.times import instant
from tests.companion.running import NODES, PODS, cluster, companion, make, node, tree
from tests.companion.scheduling.rig import scheduler_of
from tests.fakekube import FakeKube, Fault
from tests.kube.worlds import World, until

PART = next(each for each in PARTS if each.name == "descheduler")
SETS = Kind("apps", "v1", "ReplicaSet", "replicasets", True, Object)
METRICS = Kind("slo.koordinator.sh", "v1alpha1", "NodeMetric", "nodemetrics", False, Object)
LOAD = {
    "name": "LowNodeLoad",
    "args": {
        "lowThresholds": {"cpu": 30},
        "highThresholds": {"cpu": 50},
        "anomalyCondition": {"consecutiveAbnormalities": 1},
    },
}


def on_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        async def whole() -> None:
            await test(*args, **named)

        asyncio.run(whole())

    return run


def configuration(tmp_path: Path, mode: str = "EvictDirectly", **changes: Any) -> str:
    migration = {"defaultJobMode": mode, "maxMigratingPerNode": 0, "evictQPS": 1000}
    document = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "200ms",
        "profiles": [
            {
                "name": "koord-descheduler",
                "plugins": {"balance": {"enabled": [{"name": "LowNodeLoad"}]}},
                "pluginConfig": [
                    {"name": "MigrationController", "args": migration | changes.pop("args", {})},
                    LOAD,
                ],
            }
        ],
        **changes,
    }
    path = tmp_path / "descheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


async def pod(
    world: World,
    name: str,
    on: str,
    uid: str,
    cpu: str = "2",
    spec: dict[str, Any] | None = None,
    **meta: Any,
) -> None:
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web",
        "uid": uid,
        "controller": True,
    }
    body = {
        "metadata": {"name": name, "ownerReferences": [owner], "labels": {"app": "web"}, **meta},
        "spec": {
            "nodeName": on,
            "schedulerName": "koord-scheduler",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **(spec or {}),
        },
    }
    await make(world, PODS, body, "default")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await world.client.patch(PODS, name, {"status": ready}, "default", subresource="status")


async def report(world: World, fake: FakeKube, name: str, pods: dict[str, str]) -> None:
    if not tree(fake, "nodemetrics", name):
        await make(world, METRICS, {"metadata": {"name": name}})
    status = {
        "updateTime": instant(time.time()),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}},
        "podsMetric": [
            {"namespace": "default", "name": each, "podUsage": {"resources": {"cpu": cpu}}}
            for each, cpu in pods.items()
        ],
    }
    await world.client.patch(METRICS, name, {"status": status}, subresource="status")


@contextlib.asynccontextmanager
async def hot() -> AsyncIterator[tuple[World, FakeKube]]:
    """Three nodes of 10 CPUs; the first one uses 8."""
    async with cluster() as (world, fake):
        for name in ("n1", "n2", "n3"):
            await node(world, name, amounts={"pods": "20"})
        await make(world, SETS, {"metadata": {"name": "web"}, "spec": {"replicas": 40}}, "default")
        uid = tree(fake, "replicasets", "web", "default")["metadata"]["uid"]
        now, fake.store.now = fake.store.now, lambda: instant(time.time() - 3600)
        for i in range(4):
            await pod(world, f"web-{i}", "n1", uid)
        fake.store.now = now
        await report(world, fake, "n1", {f"web-{i}": "2" for i in range(4)})
        for name in ("n2", "n3"):
            await report(world, fake, name, {})
        yield world, fake


def jobs(fake: FakeKube) -> list[dict[str, Any]]:
    return list(fake.store._objects.get(fake.resource("podmigrationjobs"), {}).values())


def pods(fake: FakeKube) -> list[str]:
    return sorted(name for _, name in fake.store._objects.get(fake.resource("pods"), {}))


def phases(fake: FakeKube) -> list[str]:
    return [each.get("status", {}).get("phase", "") for each in jobs(fake)]


@on_loop
async def test_a_hot_node_is_cooled_by_jobs(tmp_path: Path) -> None:
    path = configuration(
        tmp_path,
        args={
            "maxMigratingPerWorkload": 4,
            "maxUnavailablePerWorkload": 4,
            "objectLimiters": {"workload": {"duration": "0s"}},
        },
    )
    async with hot() as (world, fake), companion(world, PART, descheduler_config=path):
        await until(lambda: len(pods(fake)) == 2)
        await until(lambda: phases(fake) == ["Succeeded"] * 2)
        (first, _) = jobs(fake)
        notes = first["metadata"]["annotations"]
        assert notes["koordinator.sh/evict-trigger"] == "LowNodeLoad"
        assert notes["koordinator.sh/evict-reason"].startswith("node is overutilized, node cpu")
        assert notes["descheduler.koordinator.sh/passed-arbitration"] == "true"
        assert first["status"]["status"] == "Complete"
        events = list(fake.store._objects[fake.resource("events")].values())
        assert any(each["reason"] == "Descheduled" for each in events)


@on_loop
async def test_a_report_is_at_most_as_new_as_its_arrival() -> None:
    async with hot() as (world, _fake), companion(world, PART) as made:
        feed = desk_of(made).feed
        ahead = {"status": {"updateTime": "2199-01-01T00:00:00Z"}}
        await world.client.patch(METRICS, "n1", ahead, subresource="status")

        def told() -> bytes:
            metric = feed._metrics.get("n1")
            return bytes(metric.status) if metric is not None else b""

        await until(lambda: b"2199" in told())
        first_s = feed.world().usage["n1"].updated_s
        assert abs(first_s - time.time()) < 60
        # Who writes the same report again has not reported.
        await world.client.patch(METRICS, "n1", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(1.1)
        assert feed.world().usage["n1"].updated_s == first_s


@on_loop
async def test_dry_run_evicts_nobody(tmp_path: Path) -> None:
    path = configuration(tmp_path, dryRun=True)
    async with hot() as (world, fake), companion(world, PART, descheduler_config=path) as made:
        (_, controller), *_ = made.controllers
        assert isinstance(controller, Descheduler)
        outcome = await controller.rounds.once()
        assert not outcome.requests and not jobs(fake) and len(pods(fake)) == 4


async def job(world: World, name: str, of: str, mode: str, **meta: Any) -> None:
    spec = {"podRef": {"namespace": "default", "name": of}, "mode": mode, "ttl": "5m"}
    head = {"apiVersion": JOBS.api_version, "kind": JOBS.name}
    body = {**head, "metadata": {"name": name, **meta}, "spec": spec}
    await world.client.create(JOBS, body)


def status_of(fake: FakeKube, name: str) -> dict[str, Any]:
    return dict(tree(fake, "podmigrationjobs", name).get("status", {}))


@on_loop
async def test_a_job_waits_for_room_elsewhere() -> None:
    async with hot() as (world, fake), companion(world, PART):
        await job(world, "j", "web-0", "ReservationFirst")
        await until(lambda: bool(fake.store._objects.get(fake.resource("reservations"))))
        (key,) = fake.store._objects[fake.resource("reservations")]
        name = key[1]
        assert name == tree(fake, "podmigrationjobs", "j")["metadata"]["uid"]
        assert "web-0" in pods(fake), "nobody goes before there is room"
        owners = [{"namespace": "default", "name": "web-9", "uid": "u9"}]
        status = {"phase": "Available", "nodeName": "n2"}
        await world.client.patch(RESERVATIONS, name, {"status": status}, subresource="status")
        await until(lambda: "web-0" not in pods(fake))
        done = {"phase": "Succeeded", "currentOwners": owners}
        await world.client.patch(RESERVATIONS, name, {"status": done}, subresource="status")
        await until(lambda: status_of(fake, "j").get("phase") == "Succeeded")
        found = status_of(fake, "j")
        assert (found["nodeName"], found["podRef"]["name"]) == ("n2", "web-9")
        await world.client.delete(JOBS, "j")
        await until(lambda: not fake.store._objects[fake.resource("reservations")])


@on_loop
async def test_a_job_waits_for_a_person() -> None:
    async with hot() as (world, fake), companion(world, PART):
        await job(world, "j", "web-0", "EvictDirectly", annotations={APPROVAL: "true"})
        await until(lambda: status_of(fake, "j").get("reason") == "Waiting")
        assert "kubectl annotate pmj j" in status_of(fake, "j")["message"]
        changes = {"metadata": {"annotations": {APPROVED_BY: "ada"}}}
        await world.client.patch(JOBS, "j", changes)
        await until(lambda: status_of(fake, "j").get("phase") == "Succeeded")


@on_loop
async def test_a_new_process_finishes_what_was_begun() -> None:
    """The old one said that it evicts, and died before it did."""
    async with hot() as (world, fake):
        await job(
            world,
            "j",
            "web-0",
            "EvictDirectly",
            annotations={"descheduler.koordinator.sh/passed-arbitration": "true"},
        )
        uid = tree(fake, "pods", "web-0", "default")["metadata"]["uid"]
        await world.client.patch(JOBS, "j", {"spec": {"podRef": {"uid": uid}}})
        evicting = {"type": "Eviction", "status": "False", "reason": "Evicting"}
        status = {"phase": "Running", "status": "Eviction", "conditions": [evicting]}
        await world.client.patch(JOBS, "j", {"status": status}, subresource="status")
        async with companion(world, PART):
            await until(lambda: status_of(fake, "j").get("phase") == "Succeeded")
            assert "web-0" not in pods(fake)


APART = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "other"}},
                    "topologyKey": "kubernetes.io/hostname",
                }
            ]
        }
    }
}


@contextlib.asynccontextmanager
async def hot_and_apart() -> AsyncIterator[tuple[World, FakeKube]]:
    """As `hot`; one more pod there keeps off the others, where a pod is that it does not like."""
    async with hot() as (world, fake):
        for name in ("n1", "n2", "n3"):
            host = {"metadata": {"labels": {"kubernetes.io/hostname": name}}}
            await world.client.patch(NODES, name, host)
        uid = tree(fake, "replicasets", "web", "default")["metadata"]["uid"]
        for on in ("n2", "n3"):
            labels = {"app": "other"}
            body = {"metadata": {"name": f"o-{on}", "labels": labels}, "spec": {"nodeName": on}}
            await make(world, PODS, body, "default")
        await pod(world, "shy", "n1", uid, "1", spec=APART)
        yield world, fake


@on_loop
async def test_the_scheduler_of_the_process_says_who_would_come_back(tmp_path: Path) -> None:
    """Only its plugins know of affinities among pods."""
    args = {"maxMigratingPerWorkload": 9, "maxUnavailablePerWorkload": 9}
    path = configuration(tmp_path, dryRun=True, args=args)
    async with hot_and_apart() as (world, fake):
        parts = (PART, next(each for each in PARTS if each.name == "scheduler"))
        async with companion(world, *parts, descheduler_config=path) as made:
            desk = desk_of(made)
            await until(lambda: desk.context.placing.next_node is not None)
            await job(world, "j", "shy", "EvictDirectly")
            await until(lambda: status_of(fake, "j").get("phase") == "Failed")
            said = "the pod would come back to n1 under the policy in force"
            assert status_of(fake, "j")["message"] == said
            seen = desk.look()
            shy, other = (seen.by_key[f"default/{name}"].pod for name in ("shy", "web-0"))
            simulate = desk.ledger.simulate
            assert simulate is not None
            assert await asyncio.to_thread(simulate, shy) == "n1", "a round asks from a thread"
            assert await asyncio.to_thread(simulate, other) in ("n2", "n3")
            before = dict(scheduler_of(made).cluster.claims)
            assert simulate(shy) == "n1" and scheduler_of(made).cluster.claims == before
        assert desk.context.placing.next_node is None
        async with companion(world, PART, descheduler_config=path):
            await job(world, "k", "shy", "EvictDirectly")
            await until(lambda: status_of(fake, "k").get("phase") == "Succeeded")


def desk_of(made: Companion) -> Desk:
    found = next(each for _, each in made.controllers if isinstance(each, Descheduler))
    return found.desk


async def evicted_with_reservation(world: World, fake: FakeKube, name: str, of: str) -> None:
    """A job of a person whose pod is gone, and which waits for who takes its place."""
    await job(world, name, of, "ReservationFirst")
    await until(lambda: bool(fake.store._objects.get(fake.resource("reservations"))))
    (key,) = fake.store._objects[fake.resource("reservations")]
    status = {"phase": "Available", "nodeName": "n2"}
    await world.client.patch(RESERVATIONS, key[1], {"status": status}, subresource="status")
    await until(lambda: status_of(fake, name).get("reason") == "WaitForPodBindReservation")
    assert of not in pods(fake)


@on_loop
async def test_limits_hold_when_another_process_goes_on(tmp_path: Path) -> None:
    """It never saw the pods of jobs that run."""
    limits = {"maxMigratingPerNode": 1, "maxMigratingPerWorkload": 1}
    path = configuration(tmp_path, dryRun=True, args=limits)
    async with hot() as (world, fake):
        async with companion(world, PART, descheduler_config=path):
            await evicted_with_reservation(world, fake, "j", "web-0")
        async with companion(world, PART, descheduler_config=path):
            await job(world, "k", "web-1", "EvictDirectly")
            await until(lambda: bool(status_of(fake, "k")))
            said = "1 pods migrate on node n1 already (maxMigratingPerNode)"
            assert status_of(fake, "k")["message"] == said
        path = configuration(tmp_path, dryRun=True, args=limits | {"maxMigratingPerNode": 0})
        async with companion(world, PART, descheduler_config=path):
            await until(
                lambda: status_of(fake, "k")["message"] == "1 of 1 pods of web migrate already"
            )


@on_loop
async def test_what_this_process_let_pass_counts_before_the_watch_tells_of_it() -> None:
    async with hot() as (world, _), companion(world, PART) as made:
        feed = desk_of(made).feed
        note = {"metadata": {"annotations": {APPROVAL: "true"}}}
        await world.client.patch(PODS, "web-0", note, "default")
        await job(world, "j", "web-0", "EvictDirectly")
        await until(lambda: len(feed.all_jobs()) == 1)
        (known,) = feed.all_jobs()
        assert not feed.migrating([known], feed.world(), passed=True)
        feed.passed.add(known.uid)
        (counted,) = feed.migrating([known], feed.world(), passed=True)
        assert (counted.job, counted.node) == ("j", "n1")


@on_loop
async def test_a_lost_answer_does_not_let_two_pass(tmp_path: Path) -> None:
    path = configuration(tmp_path, dryRun=True, args={"maxMigratingPerNode": 1})
    async with hot() as (world, fake), companion(world, PART, descheduler_config=path):
        writes = "PATCH /apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs/j"
        fake.faults.add(Fault(lambda text: text.startswith(writes), drop=True))
        await job(world, "j", "web-0", "ReservationFirst")
        await until(lambda: status_of(fake, "j").get("phase") == "Running")
        await job(world, "k", "web-1", "EvictDirectly")
        await until(lambda: "maxMigratingPerNode" in status_of(fake, "k").get("message", ""))


@on_loop
async def test_a_job_that_passed_for_no_node_is_asked_again(tmp_path: Path) -> None:
    """The pod got a node since, or somebody else wrote that the job passed."""
    path = configuration(tmp_path, dryRun=True, args={"maxMigratingPerNode": 1})
    async with hot() as (world, fake), companion(world, PART, descheduler_config=path):
        await job(world, "j", "web-0", "ReservationFirst")
        await until(lambda: status_of(fake, "j").get("phase") == "Running")
        await job(world, "k", "web-1", "EvictDirectly", annotations={PASSED: "true"})
        await until(lambda: "maxMigratingPerNode" in status_of(fake, "k").get("message", ""))


@on_loop
async def test_a_job_that_ends_before_it_evicts_gives_back_what_it_took() -> None:
    async with hot() as (world, fake), companion(world, PART) as made:
        ledger = desk_of(made).ledger
        await job(world, "j", "web-0", "ReservationFirst")
        await until(lambda: status_of(fake, "j").get("phase") == "Running")
        (entry,) = ledger.entries(time.time())
        assert (entry.shape, entry.node) == ("default/ReplicaSet/web", "n1")
        await world.client.delete(JOBS, "j")
        await until(lambda: not ledger.entries(time.time()))
        await job(world, "k", "web-1", "EvictDirectly")
        await until(lambda: status_of(fake, "k").get("phase") == "Succeeded")
        await world.client.delete(JOBS, "k")
        await until(lambda: not jobs(fake))
        assert ledger.entries(time.time())


@on_loop
async def test_the_second_job_of_a_pod_waits() -> None:
    async with hot() as (world, fake), companion(world, PART):
        await job(world, "j", "web-0", "ReservationFirst")
        await until(lambda: status_of(fake, "j").get("phase") == "Running")
        await job(world, "k", "web-0", "EvictDirectly")
        await until(lambda: status_of(fake, "k").get("reason") == "Waiting")
        assert status_of(fake, "k")["message"] == "job j is about the same pod"
        await world.client.delete(JOBS, "j")
        await until(lambda: status_of(fake, "k").get("phase") == "Succeeded")


@pytest.mark.parametrize("policy", ["Delete", "SoftEviction"])
@on_loop
async def test_policies_of_pods(policy: str) -> None:
    async with hot() as (world, fake), companion(world, PART):
        labels = {"metadata": {"labels": {"koordinator.sh/evict-policy": policy}}}
        await world.client.patch(PODS, "web-0", labels, "default")
        await job(world, "j", "web-0", "EvictDirectly")
        if policy == "Delete":
            await until(lambda: status_of(fake, "j").get("phase") == "Succeeded")
            return
        key = "scheduling.koordinator.sh/soft-eviction"

        def notes() -> dict[str, str]:
            return tree(fake, "pods", "web-0", "default")["metadata"].get("annotations", {})

        await until(lambda: key in notes())
        assert status_of(fake, "j")["reason"] == "Evicting", "others delete it"


@on_loop
async def test_forbidden_jobs_say_why() -> None:
    async with hot() as (world, fake), companion(world, PART):
        await make(
            world, PODS, {"metadata": {"name": "bare"}, "spec": {"nodeName": "n1"}}, "default"
        )
        await job(world, "j", "bare", "EvictDirectly")
        await until(lambda: status_of(fake, "j").get("phase") == "Failed")
        found = status_of(fake, "j")
        assert found["reason"] == "ForbiddenMigratePod" and "no owner" in found["message"]
        await job(world, "k", "nobody", "EvictDirectly")
        await until(lambda: status_of(fake, "k").get("reason") == "MissingPod")


@on_loop
async def test_a_budget_delays_an_eviction() -> None:
    budgets = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, Object)
    async with hot() as (world, fake), companion(world, PART):
        spec = {"selector": {"matchLabels": {"app": "web"}}}
        await make(world, budgets, {"metadata": {"name": "b"}, "spec": spec}, "default")
        await job(world, "j", "web-0", "EvictDirectly")
        await until(lambda: status_of(fake, "j").get("reason") == "FailedEvict")
        allowed = {"status": {"disruptionsAllowed": 1}}
        await world.client.patch(budgets, "b", allowed, "default", subresource="status")
        await until(lambda: status_of(fake, "j").get("phase") == "Succeeded")


def test_migrate_shows_a_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def saved() -> str:
        async with hot() as (_, fake):
            path = tmp_path / "objects.yaml"
            kinds = ("nodes", "pods", "nodemetrics", "replicasets")
            found = [
                {"kind": fake.resource(kind).kind, **each}
                for kind in kinds
                for each in fake.store._objects[fake.resource(kind)].values()
            ]
            path.write_text(yaml.safe_dump_all(found))
            return str(path)

    objects, config = asyncio.run(saved()), configuration(tmp_path)
    command = ["migrate", "--dry-run", "--descheduler-config", config, "-f", objects]
    assert main([*command, "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [(each["node"], each["next"]) for each in answer["evictions"]] == [("n1", "n2")] * 2
    assert main(command) == 0
    assert "LowNodeLoad  node is overutilized" in capsys.readouterr().out
    assert main(command[:1]) == 2
    assert main(["migrate", "--dry-run", "-f", objects]) == 2


def test_a_configuration_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("profiles: {")
    with pytest.raises(ArgumentError, match=r"c\.yaml"):
        load(str(path))
    path.write_text("profiles: [{name: a, plugins: {balance: {enabled: [{name: Nothing}]}}}]")
    with pytest.raises(ArgumentError, match="no plugin is called 'Nothing'"):
        load(str(path))
    assert load("").configuration.interval_s == 0


@on_loop
async def test_a_grace_period_holds_for_deletions_too() -> None:
    deleted: list[Any] = []

    class Writes:
        async def delete(self, *_: Any, **options: Any) -> None:
            deleted.append(options)

    writes: Any = Writes()
    spec = PodMigrationJobSpec(delete_options=DeleteOptions(grace_period_seconds=7))
    pod = {"metadata": {"namespace": "default", "name": "p", "uid": "u"}}
    await evict(writes, pod, "Delete", Job(name="j", uid="j", spec=spec), 0.0)
    assert deleted == [{"uid": "u", "grace_s": 7}]
