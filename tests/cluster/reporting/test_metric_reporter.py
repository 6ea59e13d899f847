"""NodeMetric on its way to the API server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from koordlet.cluster.reporting.kinds import NODE_METRICS
from koordlet.cluster.reporting.metric_reporter import PROBLEM, MetricReporter
from koordlet.decision import metrics as k
from koordlet.kube.client import Client
from tests.cluster.reporting.rig import GIB, NAME, Rig, be_pod, fake_cluster, quick
from tests.fakekube import FakeKube, Fault
from tests.kube.worlds import WITHIN_S, until

__all__ = ["quick"]
pytestmark = pytest.mark.usefixtures("quick")
STATUS_PATH = f"/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{NAME}/status"


async def make_metric(client: Client, spec: dict[str, Any] | None = None) -> None:
    await client.create(
        NODE_METRICS,
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": NAME, "labels": {"mine": "x"}},
            "spec": spec or {},
        },
    )


def there(fake: FakeKube) -> dict[str, Any]:
    return fake.store.get(fake.resource("nodemetrics"), ("", NAME))


def play(story: Callable[[Rig, MetricReporter, FakeKube, Client], Awaitable[None]]) -> None:
    async def run() -> None:
        rig = Rig()
        reporter = MetricReporter(rig.lent)
        async with fake_cluster() as (fake, client), rig.reporting(client, reporter):
            await story(rig, reporter, fake, client)

    asyncio.run(run())


def test_the_first_report_and_the_following() -> None:
    async def story(rig: Rig, reporter: MetricReporter, fake: FakeKube, client: Client) -> None:
        rig.state.all = (be_pod("u1"),)
        await until(lambda: PROBLEM in rig.problems)
        assert "is the manager there?" in rig.problems[PROBLEM]
        assert fake.requests[f"PUT {STATUS_PATH}"] == 0
        await make_metric(client)
        await asyncio.sleep(0.2)  # nothing has been measured
        assert reporter.written == 0
        rig.use(10, 2.0)
        rig.measure(10, {(k.POD_CPU_USAGE, ("u1",)): 1.5, (k.POD_MEMORY_USAGE, ("u1",)): GIB})
        await until(lambda: reporter.written == 1)
        assert reporter.why == "first report" and PROBLEM not in rig.problems
        status = there(fake)["status"]
        assert status["nodeMetric"]["nodeUsage"]["resources"] == {"cpu": "2", "memory": "4Gi"}
        (pod,) = status["podsMetric"]
        assert (pod["namespace"], pod["name"], pod["qos"]) == ("jobs", "be", "BE")
        assert pod["podUsage"]["resources"] == {"cpu": "1500m", "memory": "1Gi"}
        assert there(fake)["metadata"]["labels"] == {"mine": "x"}
        rig.state.all = ()
        rig.use(59, 2.0)
        await asyncio.sleep(0.2)
        assert reporter.written == 1
        rig.use(1, 2.0)
        await until(lambda: reporter.written == 2)
        assert reporter.why == "period"
        assert "podsMetric" not in there(fake)["status"]  # nothing of the report before stays

    play(story)


def test_usage_that_moves_is_reported_at_once() -> None:
    async def story(rig: Rig, reporter: MetricReporter, fake: FakeKube, client: Client) -> None:
        await make_metric(client)
        rig.use(20, 2.0)
        await until(lambda: reporter.written == 1)
        rig.use(5, 6.0)
        await until(lambda: reporter.written == 2)
        assert reporter.why.startswith("CPU moved by")

    play(story)


def test_the_policy_of_the_manager() -> None:
    async def story(rig: Rig, reporter: MetricReporter, fake: FakeKube, client: Client) -> None:
        spec = {
            "metricCollectPolicy": {
                "reportIntervalSeconds": 30,
                "aggregateDurationSeconds": 60,
                "nodeAggregatePolicy": {"durations": ["1m0s"]},
            }
        }
        await make_metric(client, spec)
        rig.use(20, 2.0)
        await until(lambda: reporter.written == 1)
        usages = there(fake)["status"]["nodeMetric"]["aggregatedNodeUsages"]
        assert [each["duration"] for each in usages] == ["1m"]
        rig.use(30, 2.0)
        await until(lambda: reporter.written == 2)
        await client.patch(NODE_METRICS, NAME, {"spec": {"metricCollectPolicy": None}})
        await until(lambda: reporter.policy.interval_s == 60.0)
        await client.patch(
            NODE_METRICS, NAME, {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 45}}}
        )
        await until(lambda: reporter.policy.interval_s == 45.0)

    play(story)


def test_somebody_else_writes_meanwhile() -> None:
    async def story(rig: Rig, reporter: MetricReporter, fake: FakeKube, client: Client) -> None:
        await make_metric(client)
        late = fake.faults.add(Fault(lambda what: what.startswith("PUT"), before_s=0.3))
        rig.use(20, 2.0)
        await until(lambda: late.met == 1)
        await client.patch(NODE_METRICS, NAME, {"metadata": {"labels": {"other": "y"}}})
        await until(lambda: reporter.written == 1)
        assert fake.requests[f"PUT {STATUS_PATH}"] == 2
        assert there(fake)["metadata"]["labels"] == {"mine": "x", "other": "y"}

    play(story)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(lambda what: what.startswith("PUT"), times=3, status=500),
        Fault(lambda what: what.startswith("PUT"), times=2, drop=True),
        Fault(lambda what: what.startswith("PUT"), times=1, after_s=None),
    ],
)
def test_a_write_that_fails_is_made_again(fault: Fault) -> None:
    async def story(rig: Rig, reporter: MetricReporter, fake: FakeKube, client: Client) -> None:
        await make_metric(client)
        fake.faults.add(fault)
        rig.use(20, 2.0)
        await until(lambda: PROBLEM in rig.problems and "manager" not in rig.problems[PROBLEM])
        async with asyncio.timeout(WITHIN_S):
            while not reporter.written:  # the pace allows one each ten seconds
                rig.use(10, 2.0)
                await asyncio.sleep(0.1)
        assert PROBLEM not in rig.problems

    play(story)
