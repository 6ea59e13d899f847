"""Clusters that do not have every definition of Koordinator."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import yaml

from koordlet.kube.credentials import Cluster
from tests.companion.daemon.cluster import (
    CRDS,
    METRICS,
    NODES,
    ON,
    SLOS,
    WITHIN_S,
    here_on,
    manager,
)
from tests.companion.daemon.test_manager import _offers as offers
from tests.fakekube import serving


def test_a_cluster_without_optional_definitions_has_a_manager_all_the_same() -> None:
    """Quotas, profiles and recommendations wait; nobody restarts the pod for it."""
    optional = ("elasticquotas", "elasticquotaprofiles", "recommendations",
                "clustercolocationprofiles")  # fmt: skip

    async def story() -> None:
        definitions = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
        known = [each for each in definitions if each["spec"]["names"]["plural"] not in optional]
        assert len(known) < len(definitions)
        async with serving(*known) as fake, here_on(Cluster(fake.url, "the test")) as here:
            await here.configure(ON)
            async with manager(here) as made:
                await here.node()
                await here.until(METRICS, lambda m: True)
                await here.report()
                await here.until(NODES, offers("58000", "66000000000"))
                await here.until(SLOS, lambda slo: True)
                page = made.context.metrics.page()
                waits = {"nodemetric": 0, "noderesource": 0, "quotaprofile": 1, "recommender": 1}
                for name, value in waits.items():
                    line = f'koord_scheduler_controller_waiting{{controller="{name}"}} {value}\n'
                    assert line in page
                async with aiohttp.ClientSession() as session:
                    url = f"http://127.0.0.1:{made.health_port}"
                    async with session.get(f"{url}/healthz") as answer:
                        assert answer.status == 200
                    async with session.get(f"{url}/readyz") as answer:
                        text = await answer.text()
                        assert answer.status == 200 and text.startswith("ok, leads\n")
                        assert "recommendations.analysis.koordinator.sh: " in text

    asyncio.run(story())


def test_fields_that_an_old_definition_does_not_have_are_named() -> None:
    """helm upgrades no definitions, and the server drops silently what they lack."""

    async def story() -> None:
        definitions = [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]
        (slo,) = (each for each in definitions if each["spec"]["names"]["plural"] == "nodeslos")
        schema = slo["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        threshold = schema["properties"]["resourceUsedThresholdWithBE"]["properties"]
        del threshold["cpuSuppressPolicy"], schema["properties"]["systemStrategy"]
        about = {"namespace": "default", "about": slo["metadata"]["name"]}
        async with serving(*definitions) as fake, here_on(Cluster(fake.url, "the test")) as here:
            strategy = {"clusterStrategy": {"enable": True, "cpuSuppressPolicy": "cpuset"}}
            await here.configure(ON, resource_threshold_config=json.dumps(strategy))
            async with manager(here):
                await here.node()
                async with asyncio.timeout(WITHIN_S):
                    while not (events := await here.events(**about)):
                        await asyncio.sleep(0.01)
                for path in ("resourceUsedThresholdWithBE.cpuSuppressPolicy", "systemStrategy"):
                    assert f"spec.{path}" in events[0].message
                assert events[0].reason == "FieldsDropped"
                await here.until(SLOS, lambda s: s.spec["resourceUsedThresholdWithBE"]["enable"])

    asyncio.run(story())
