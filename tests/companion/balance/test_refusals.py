"""Evictions that the server refuses hold up nobody else (a budget: 429; two of them: 500)."""

from __future__ import annotations

import functools
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from koord_scheduler.balance.rates import TokenBucket
from koord_scheduler.balance.refusals import FIRST_S, MOST_S, Refusals
from koord_scheduler.kube.migration_shapes import JOBS
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.companion.balance.test_descheduler import (
    PART,
    desk_of,
    hot,
    job,
    on_loop,
    pods,
    status_of,
)
from tests.companion.running import PODS, companion, make, tree
from tests.fakekube import FakeKube
from tests.kube.worlds import World, until

BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, Object)


def test_refused_pods_are_asked_for_less_and_less_often() -> None:
    refusals, now_s = Refusals(), 1000.0
    waits = []
    for _ in range(9):
        refusals.note("u", now_s)
        waited_s = 0.0
        while refusals.why("u", now_s + waited_s) is not None:
            waited_s += FIRST_S
        waits.append(waited_s)
        now_s += waited_s
    assert waits[:4] == [FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S]
    assert waits[-1] == MOST_S
    for each in range(1100):
        refusals.note("for weeks", each * MOST_S)
    assert refusals.why("other", now_s) is None
    refusals.note("u", now_s + 2 * MOST_S)
    assert refusals.why("u", now_s + 2 * MOST_S + FIRST_S) is None, "long ago"


def test_a_token_that_was_not_used_goes_back() -> None:
    bucket = TokenBucket(0.001, 1)
    assert bucket.take(0.0) and not bucket.take(1.0)
    bucket.give_back()
    assert bucket.take(1.0) and not bucket.take(1.0)


def old_pods(tmp_path: Path, *, life_s: int = 60, **changes: Any) -> str:
    """All old pods may go, one in a round, by evictions without a job."""
    one = {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "MigrationController"}]}
    document = {
        "deschedulingInterval": "1h",
        "maxNoOfPodsToEvictTotal": 1,
        "profiles": [
            {
                "name": "old",
                "plugins": {
                    "deschedule": {"enabled": [{"name": "PodLifeTime"}]},
                    "evict": one,
                    "filter": one,
                },
                "pluginConfig": [
                    {"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": life_s}},
                ],
            }
        ],
        **changes,
    }
    path = tmp_path / "descheduler.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def only_jobs(tmp_path: Path, **args: Any) -> str:
    document = {
        "profiles": [{"name": "a", "pluginConfig": [{"name": "MigrationController", "args": args}]}]
    }
    path = tmp_path / "descheduler.yaml"
    path.write_text(yaml.safe_dump({"kind": "DeschedulerConfiguration", **document}))
    return str(path)


MANY = {"maxMigratingPerNode": 0, "maxMigratingPerWorkload": 9, "maxUnavailablePerWorkload": 9}


async def guarded(world: World) -> None:
    """web-0 has a budget without room, web-1 has two budgets."""
    for name, apps in (("b0", "zero"), ("b1", "one"), ("b2", "one")):
        spec = {"selector": {"matchLabels": {"guard": apps}}}
        await make(world, BUDGETS, {"metadata": {"name": name}, "spec": spec}, "default")
    for name, apps in (("web-0", "zero"), ("web-1", "one")):
        labels = {"metadata": {"labels": {"guard": apps}}}
        await world.client.patch(PODS, name, labels, "default")


def failed_to_evict(fake: FakeKube, name: str) -> bool:
    return status_of(fake, name).get("reason") == "FailedEvict"


def asked(fake: FakeKube) -> list[str]:
    """The pods of which evictions were asked for."""
    ends = [
        text.split("?")[0] for text in fake.requests if text.split("?")[0].endswith("/eviction")
    ]
    return [text.split("/")[-2] for text in ends]


@on_loop
async def test_the_limit_of_a_round_counts_evictions(tmp_path: Path) -> None:
    async with hot() as (world, fake):
        await guarded(world)
        async with companion(world, PART, descheduler_config=old_pods(tmp_path)) as made:
            await until(lambda: pods(fake) == ["web-0", "web-1", "web-3"])
            assert asked(fake) == ["web-0", "web-1", "web-2"]
            (_, controller), *_ = made.controllers
            await until(lambda: len(controller.desk.feed.world().by_key) == 3)
            await controller.rounds.once()
            assert pods(fake) == ["web-0", "web-1"]
            assert asked(fake)[3:] == ["web-3"], "refused pods do not come first again"
            # What did not go is not in the ledger: two evictions are, as one pair.
            assert controller.desk.ledger.noted["descheduler"] == 2
            events = list(fake.store._objects[fake.resource("events")].values())
            await until(
                lambda: len(fake.store._objects[fake.resource("events")]) >= 2,
            )
            events = list(fake.store._objects[fake.resource("events")].values())
            told = [e["involvedObject"]["name"] for e in events if e["reason"] == "Descheduled"]
            assert sorted(told) == ["web-2", "web-3"]


@on_loop
async def test_a_refused_job_takes_no_part_of_the_rate(tmp_path: Path) -> None:
    path = only_jobs(
        tmp_path, **MANY, evictQPS=0.001, objectLimiters={"workload": {"duration": "0s"}}
    )
    async with hot() as (world, fake):
        await guarded(world)
        async with companion(world, PART, descheduler_config=path):
            for name, of in (("j0", "web-0"), ("j1", "web-1")):
                await job(world, name, of, "EvictDirectly")
            for name in ("j0", "j1"):
                await until(functools.partial(failed_to_evict, fake, name))
            await job(world, "j2", "web-2", "EvictDirectly")
            await until(lambda: status_of(fake, "j2").get("phase") == "Succeeded")
            await job(world, "j3", "web-3", "EvictDirectly")
            await until(lambda: "evictQPS" in status_of(fake, "j3").get("message", ""))
            assert status_of(fake, "j3")["reason"] == "Waiting"
            # What is written about a job is no reason to try again at once.
            assert max(Counter(asked(fake)).values()) <= 8


@on_loop
async def test_a_job_that_was_refused_to_its_end_lets_others_go_first() -> None:
    async with hot() as (world, fake):
        await guarded(world)
        async with companion(world, PART) as made:
            desk = desk_of(made)
            uid = tree(fake, "pods", "web-1", "default")["metadata"]["uid"]
            await job(world, "j", "web-1", "EvictDirectly")
            await until(lambda: status_of(fake, "j").get("reason") == "FailedEvict")
            assert desk.refusals.why(uid, time.time()) is None, "the job goes on"
            await world.client.patch(JOBS, "j", {"spec": {"ttl": "1s"}})
            await until(lambda: status_of(fake, "j").get("reason") == "Timeout")
            await until(lambda: desk.refusals.why(uid, time.time()) is not None)
            assert not desk.ledger.entries(time.time()), "nobody went"


@on_loop
async def test_jobs_of_people_tell_at_the_pod_and_say_what_holds_them_back(
    tmp_path: Path,
) -> None:
    path = only_jobs(
        tmp_path, **MANY, objectLimiters={"workload": {"duration": "1h", "maxMigrating": 1}}
    )
    async with hot() as (world, fake), companion(world, PART, descheduler_config=path):
        why = {"koordinator.sh/evict-reason": "kernel update"}
        await job(world, "j", "web-0", "EvictDirectly", annotations=why)
        await until(lambda: status_of(fake, "j").get("phase") == "Succeeded")

        def events() -> list[dict[str, Any]]:
            return list(fake.store._objects.get(fake.resource("events"), {}).values())

        await until(lambda: bool(events()))
        (event,) = [each for each in events() if each["reason"] == "Descheduled"]
        assert event["involvedObject"]["name"] == "web-0"
        assert event["message"] == "a person: kernel update (node n1, job j)"
        await job(world, "k", "web-1", "EvictDirectly")
        await until(lambda: "objectLimiters" in status_of(fake, "k").get("message", ""))
        assert (status_of(fake, "k")["phase"], status_of(fake, "k")["reason"]) == (
            "Running",
            "Waiting",
        )
