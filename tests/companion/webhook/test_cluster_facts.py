"""What admission learns of the cluster, and what it writes to it: quotas, existing pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from koord_scheduler.daemon import profiles as controller
from koord_scheduler.webhook.kinds import NAMESPACES, PROFILES
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.kinds import PODS, Kind
from koordlet.kube.objects import Object
from tests.companion.webhook.stories import companion, free_port, options, pod
from tests.companion.webhook.test_server import (
    CRDS,
    PROFILE,
    asked,
    authorities,
    prepared,
    review,
    server_of,
    trusting,
)
from tests.fakekube import FakeKube, serving
from tests.kube.worlds import until

P = "quota.scheduling.koordinator.sh/"
GROUP = "scheduling.sigs.k8s.io"
ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
QUOTA_CRD: dict[str, Any] = {
    "metadata": {"name": f"elasticquotas.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "ElasticQuota", "plural": "elasticquotas"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": ANY}}},
            }
        ],
    },
}
QUOTAS = Kind(GROUP, "v1alpha1", "ElasticQuota", "elasticquotas", True, Object)


def quota(name: str, **labels: str) -> dict[str, Any]:
    given = {P + key.replace("_", "-"): value for key, value in labels.items()}
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "colocated", "labels": given},
        "spec": {"min": {"cpu": "1"}, "max": {"cpu": "2"}},
    }


def test_quotas_know_their_pods() -> None:
    async def story() -> None:
        known = [each for each in CRDS if each["spec"]["names"]["plural"] != "elasticquotas"]
        cluster: Cluster
        async with (
            serving(*known, QUOTA_CRD) as fake,
            Client(cluster := Cluster(fake.url, "the test")) as client,
        ):
            await prepared(client)
            await client.create(QUOTAS, quota("leaf"), "colocated")
            port = free_port()
            async with companion(cluster, options(port, "")) as made:
                await until(lambda: server_of(made).port == port)
                trust = trusting(await authorities(client))
                path = "-scheduling-sigs-k8s-io-v1alpha1-elasticquota"

                async def refusal(tree: Any, operation: str, old: Any = None) -> str:
                    body = review(tree, operation=operation, oldObject=old)
                    found = await asked(port, trust, f"/validate{path}", body)
                    return str(found.get("status", {}).get("message", ""))

                leaf, parent = quota("leaf"), quota("leaf", is_parent="true")
                assert await refusal(None, "DELETE", leaf) == ""
                assert await refusal(parent, "UPDATE", leaf) == ""
                body = pod("p", {f"{P}name": "leaf"})
                await client.create(PODS, body, "colocated")
                assert "has pods" in await refusal(None, "DELETE", leaf)
                assert "has pods" in await refusal(parent, "UPDATE", leaf)
                twin = quota("leaf")
                twin["metadata"]["namespace"] = "other"
                assert "already" in await refusal(twin, "CREATE")
                found = await asked(port, trust, f"/mutate{path}", review(quota("new")))
                assert found["allowed"] and found["patch"]

    asyncio.run(story())


def test_pods_that_wait_get_what_their_profiles_say_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "EVERY_S", 0.05)

    async def story() -> None:
        cluster: Cluster
        async with (
            serving(*CRDS) as fake,
            Client(cluster := Cluster(fake.url, "the test")) as client,
        ):
            await client.create(
                NAMESPACES, {"metadata": {"name": "colocated", "labels": {"colocation": "true"}}}
            )
            bound = pod("bound", {"app": "a"})
            bound["spec"]["nodeName"] = "n1"
            for body in (pod("waits", {"app": "a"}), bound, pod("other", {"app": "b"})):
                await client.create(PODS, body, "colocated")
            managed = {
                **PROFILE,
                "metadata": {
                    "name": "managed",
                    "labels": {"config.koordinator.sh/controller-managed": "true"},
                },
                "spec": {
                    "namespaceSelector": {},
                    "selector": {"matchLabels": {"app": "a"}},
                    "labels": {"got": "it"},
                    "labelSuffixes": {"app": "-x"},
                    "schedulerName": "never",
                },
            }
            await client.create(PROFILES, managed)
            ignored = {
                **PROFILE,
                "metadata": {"name": "ignored"},
                "spec": {"selector": {}, "namespaceSelector": {}, "labels": {"no": "no"}},
            }
            await client.create(PROFILES, ignored)
            chosen = options(free_port())
            async with companion(cluster, chosen, "colocationprofile") as made:
                await until(lambda: labels(fake, "waits").get("got") == "it")
                assert labels(fake, "waits") == {"got": "it", "app": "a-x"}
                version = fake.store.version
                await asyncio.sleep(0.3)
                assert fake.store.version == version, "a pod is left alone for five minutes"
                assert labels(fake, "bound") == {"app": "a"}
                assert labels(fake, "other") == {"app": "b"}
                assert "schedulerName" not in tree(fake, "waits")["spec"]
                page = made.context.metrics.page()
                assert 'updates_total{profile="managed",outcome="updated"} 1' in page

    asyncio.run(story())


def tree(fake: FakeKube, name: str) -> Any:
    return fake.store.get(fake.resource("pods"), ("colocated", name))


def labels(fake: FakeKube, name: str) -> dict[str, str]:
    return dict(tree(fake, name)["metadata"]["labels"])
