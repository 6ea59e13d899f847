"""Pods of a real API server, as users make them, with our webhooks between."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from koord_scheduler.daemon import profiles
from koord_scheduler.daemon.access import (
    COLOCATIONPROFILE,
    PROCESS,
    WEBHOOK,
    WEBHOOK_REGISTRATION,
    merged,
)
from koord_scheduler.kube.quota_shapes import QUOTAS
from koord_scheduler.webhook.kinds import (
    MUTATING,
    NAMESPACES,
    PRIORITY_CLASSES,
    PROFILES,
    VALIDATING,
)
from koord_scheduler.webhook.registration import MUTATING_NAME, VALIDATING_NAME
from koordlet.kube.access import Need
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster, Material
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import PODS, Kind
from koordlet.kube.objects import Object
from tests.companion.webhook.stories import (
    DEFAULT,
    NAMESPACE,
    OTHER_GATES,
    PRIORITIES,
    WITHOUT_QUOTAS,
    companion,
    ensure,
    free_port,
    options,
    pod,
    priority_class,
)
from tests.kube.conftest import CRDS
from tests.kube.kinds import CONFIG_MAPS
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl

pytestmark = pytest.mark.cluster
NODES = Kind("", "v1", "Node", "nodes", False, Object)
LIMIT_RANGES = Kind("", "v1", "LimitRange", "limitranges", True, Object)
RUNTIME_CLASSES = Kind("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False, Object)
GATES = f"{WITHOUT_QUOTAS},{OTHER_GATES}"


@contextlib.asynccontextmanager
async def admitting(
    plane: ControlPlane,
    *,
    gates: str = GATES,
    us: Cluster | None = None,
    names: tuple[str, ...] = (),
    port: int = 0,
    **extra: str,
) -> AsyncIterator[Client]:
    """With everything that admission needs; afterwards nothing stands between pods and server."""
    port = port or free_port()
    async with Client(plane.admin, per_second=1e6, burst=1000) as client:
        for name in (NAMESPACE, "colocated", "plain"):
            labels = {"colocation": "true"} if name == "colocated" else {}
            body = {"metadata": {"name": name, "labels": labels}}
            await ensure(client, NAMESPACES, body)
        for name in PRIORITIES:
            await ensure(client, PRIORITY_CLASSES, priority_class(name))
        try:
            async with companion(us or plane.admin, options(port, gates, **extra), *names):
                await _registered(client)
                yield client
        finally:
            for kind, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
                with contextlib.suppress(RefusedError):
                    await client.delete(kind, name)
            for each in (await client.page(PROFILES)).items or ():
                found = msgspec.json.decode(each, type=Object)
                await client.delete(PROFILES, found.metadata.name)


async def _registered(client: Client) -> None:
    """The API server reads registrations with a delay: a probe tells when it asks us."""
    for _ in range(600):
        with contextlib.suppress(RefusedError):
            await client.get(MUTATING, MUTATING_NAME)
            await client.get(VALIDATING, VALIDATING_NAME)
            probe = pod("probe", {"koordinator.sh/qosClass": "LSR"}, cpu="1")
            try:
                await client._request(
                    "POST", PODS.path("plain"), query={"dryRun": "All"}, body=probe
                )
            except RefusedError as error:
                if "does not go with" in str(error):
                    return
        await asyncio.sleep(0.1)
    raise TimeoutError("the API server does not ask the webhooks")


async def tree(client: Client, name: str, namespace: str = "colocated") -> Any:
    return json.loads(await client.raw(PODS.path(namespace, name)))


BATCH = {
    "apiVersion": "config.koordinator.sh/v1alpha1",
    "kind": "ClusterColocationProfile",
    "metadata": {"name": "batch"},
    "spec": {
        "namespaceSelector": {"matchLabels": {"colocation": "true"}},
        "selector": {"matchLabels": {"app": "batch"}},
        "qosClass": "BE",
        "priorityClassName": "koord-batch",
        "koordinatorPriority": 1000,
        "labels": {"mutated": "true"},
        "annotations": {"by": "batch"},
        "schedulerName": "koord-scheduler",
        "patch": {
            "spec": {
                "terminationGracePeriodSeconds": 7,
                "containers": [{"name": "main", "env": [{"name": "A", "value": "1"}]}],
            }
        },
    },
}


def test_a_pod_of_a_real_api_server_becomes_a_batch_pod(plane: ControlPlane) -> None:
    async def story() -> None:
        async with admitting(plane) as client:
            await client.create(PROFILES, BATCH)
            body = pod("one", {"app": "batch"}, cpu="1500m", memory="1Gi")
            for _ in range(200):  # until the watch has shown the profile
                await client.create(PODS, body, "colocated")
                made = await tree(client, "one")
                if "mutated" in made["metadata"]["labels"]:
                    break
                await client.delete(PODS, "one", "colocated")
                await until_gone(client, "one")
            labels, spec = made["metadata"]["labels"], made["spec"]
            assert labels["koordinator.sh/qosClass"] == "BE"
            assert labels["koordinator.sh/priority"] == "1000"
            assert (spec["priorityClassName"], spec["priority"]) == ("koord-batch", 5000)
            assert spec["preemptionPolicy"] == "PreemptLowerPriority"
            assert spec["schedulerName"] == "koord-scheduler"
            assert spec["terminationGracePeriodSeconds"] == 7
            (container,) = spec["containers"]
            amounts = {"kubernetes.io/batch-cpu": "1500", "kubernetes.io/batch-memory": "1Gi"}
            assert container["resources"] == {"requests": amounts, "limits": amounts}
            assert container["env"] == [{"name": "A", "value": "1"}]
            annotations = made["metadata"]["annotations"]
            key = "node.koordinator.sh/extended-resource-spec"
            assert json.loads(annotations[key]) == {
                "containers": {"main": {"requests": amounts, "limits": amounts}}
            }
            assert made["status"]["qosClass"] == "BestEffort"
            # In a namespace that the profile does not select, a pod stays what it is.
            await client.create(PODS, {**body, "metadata": {**body["metadata"]}}, "plain")
            other = await tree(client, "one", "plain")
            assert other["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1500m"
            for namespace in ("colocated", "plain"):
                await client.delete(PODS, "one", namespace)

    asyncio.run(story())


def rules(needs: tuple[Need, ...], namespace: str) -> list[dict[str, Any]]:
    return [
        {
            "apiGroups": [each.group],
            "resources": [each.resource],
            "verbs": list(each.verbs),
            **({"resourceNames": list(each.names)} if each.names else {}),
        }
        for each in needs
        if each.namespace == namespace
    ]


def granted(plane: ControlPlane, needs: tuple[Need, ...]) -> Cluster:
    """A service account that may do this and nothing else."""
    rbac = "rbac.authorization.k8s.io"
    name = {"name": "admits"}
    subjects = [{"kind": "ServiceAccount", "name": "admits", "namespace": NAMESPACE}]
    found: list[dict[str, Any]] = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {**name, "namespace": NAMESPACE},
        },
    ]
    for kind, namespace in (("ClusterRole", ""), ("Role", NAMESPACE)):
        meta = {**name, **({"namespace": namespace} if namespace else {})}
        head = {"apiVersion": f"{rbac}/v1", "metadata": meta}
        found.append({**head, "kind": kind, "rules": rules(needs, namespace)})
        reference = {"apiGroup": rbac, "kind": kind, **name}
        binding = {"kind": f"{kind}Binding", "subjects": subjects, "roleRef": reference}
        found.append({**head, **binding})
    path = plane.work / "rights.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    kubectl(plane, "apply", "-f", str(path))
    token = kubectl(plane, "create", "token", "admits", "-n", NAMESPACE).strip()
    return Cluster(
        plane.url, "the test", ca=Material(str(plane.ca)), token=Material(text=token.encode())
    )


def test_the_declared_rights_are_enough(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the server, the registration and the controller of profiles."""
    monkeypatch.setattr(profiles, "EVERY_S", 0.5)
    needs = merged((PROCESS, WEBHOOK, WEBHOOK_REGISTRATION, COLOCATIONPROFILE))
    us = granted(plane, needs)
    names = (*DEFAULT, "colocationprofile")

    async def story() -> None:
        async with admitting(plane, us=us, names=names) as client:
            await client.create(PODS, pod("early", {"app": "late"}), "colocated")
            late = {
                **BATCH,
                "metadata": {
                    "name": "late",
                    "labels": {"config.koordinator.sh/controller-managed": "true"},
                },
                "spec": {
                    "namespaceSelector": {},
                    "selector": {"matchLabels": {"app": "late"}},
                    "labels": {"got": "it"},
                },
            }
            await client.create(PROFILES, late)
            for _ in range(600):
                made = await tree(client, "early")
                if made["metadata"]["labels"].get("got") == "it":
                    break
                await asyncio.sleep(0.1)
            else:
                raise AssertionError("the controller of profiles did not reach the pod")
            await client.delete(PODS, "early", "colocated")

    asyncio.run(story())


def test_quotas_are_admitted(plane: ControlPlane) -> None:
    if not (CRDS / "scheduling.sigs.k8s.io_elasticquotas.yaml").exists():
        pytest.skip("the definition of ElasticQuota is not here")

    async def story() -> None:
        async with admitting(plane, gates="") as client:
            prefix = "quota.scheduling.koordinator.sh/"

            def body(name: str, least: str, **labels: str) -> dict[str, Any]:
                return {
                    "apiVersion": QUOTAS.api_version,
                    "kind": "ElasticQuota",
                    "metadata": {
                        "name": name,
                        "labels": {prefix + k.replace("_", "-"): v for k, v in labels.items()},
                    },
                    "spec": {"min": {"cpu": least}, "max": {"cpu": "8"}},
                }

            async def known(name: str) -> None:
                """Until the watch of the webhook has shown it: its name is taken then."""
                for _ in range(600):
                    try:
                        await client._request(
                            "POST",
                            QUOTAS.path("colocated"),
                            query={"dryRun": "All"},
                            body=body(name, "0"),
                        )
                    except RefusedError as error:
                        if "there is a quota" in str(error):
                            return
                    await asyncio.sleep(0.1)
                raise TimeoutError(name)

            try:
                top = body("top", "4", is_parent="true", tree_id="t")
                made = await client.create(QUOTAS, top, "plain")
                assert made.metadata.labels[f"{prefix}parent"] == "koordinator-root-quota"
                weight = json.loads(made.metadata.annotations[f"{prefix}shared-weight"])
                assert weight == {"cpu": "8"}
                await known("top")
                with pytest.raises(RefusedError, match=r"more spec\.min together"):
                    await client.create(QUOTAS, body("leaf", "5", parent="top"), "plain")
                leaf = await client.create(QUOTAS, body("leaf", "3", parent="top"), "plain")
                assert leaf.metadata.labels[f"{prefix}tree-id"] == "t"
                await known("leaf")
                with pytest.raises(RefusedError, match="has quotas below it"):
                    await client.delete(QUOTAS, "top", "plain")
                labelled = pod("in-leaf", {f"{prefix}name": "leaf"})
                await client.create(PODS, labelled, "plain")
                with pytest.raises(RefusedError, match="has pods"):
                    await client.delete(QUOTAS, "leaf", "plain")
                with pytest.raises(RefusedError, match="quotas below it; pods belong"):
                    await client.create(PODS, pod("in-top", {f"{prefix}name": "top"}), "plain")
                await client.delete(PODS, "in-leaf", "plain")
            finally:
                for kind, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
                    with contextlib.suppress(RefusedError):
                        await client.delete(kind, name)
                await asyncio.sleep(1.0)
                for name in ("leaf", "top"):
                    with contextlib.suppress(RefusedError):
                        await client.delete(QUOTAS, name, "plain")

    asyncio.run(story())


async def until_gone(client: Client, name: str) -> None:
    for _ in range(200):
        try:
            await client.get(PODS, name, "colocated")
        except RefusedError as error:
            if error.missing:
                return
        await asyncio.sleep(0.05)


def test_overhead_of_a_runtime_class_stays_what_the_class_says(plane: ControlPlane) -> None:
    """The API server compares it once more after the webhooks."""

    async def story() -> None:
        async with admitting(plane) as client:
            sandboxed = {
                "metadata": {"name": "sandboxed"},
                "handler": "any",
                "overhead": {"podFixed": {"cpu": "100m", "memory": "64Mi"}},
            }
            await ensure(client, RUNTIME_CLASSES, sandboxed)
            await client.create(PROFILES, BATCH)
            body = pod("over", {"app": "batch"}, cpu="1")
            body["spec"]["runtimeClassName"] = "sandboxed"
            for _ in range(200):
                await client.create(PODS, body, "colocated")
                made = await tree(client, "over")
                await client.delete(PODS, "over", "colocated")
                if "mutated" in made["metadata"]["labels"]:
                    break
                await until_gone(client, "over")
            assert made["spec"]["overhead"] == {"cpu": "100m", "memory": "64Mi"}
            asked = made["spec"]["containers"][0]["resources"]["requests"]
            assert asked == {"kubernetes.io/batch-cpu": "1k"}

    asyncio.run(story())


TIERS = {
    "batch": {"qosClass": "BE", "priorityClassName": "koord-batch"},
    "mid": {"priorityClassName": "koord-mid"},
}


@pytest.mark.parametrize("tier", TIERS)
def test_defaults_of_a_namespace_do_not_come_back(plane: ControlPlane, tier: str) -> None:
    """A LimitRange fills in native resources once more, after they got the names of their tier."""

    async def story() -> None:
        async with admitting(plane) as client:
            limits = {
                "metadata": {"name": "usual"},
                "spec": {
                    "limits": [
                        {
                            "type": "Container",
                            "default": {"cpu": "200m", "memory": "1Gi"},
                            "defaultRequest": {"cpu": "100m", "memory": "256Mi"},
                        }
                    ]
                },
            }
            await ensure(client, LIMIT_RANGES, limits, "colocated")
            try:
                given = {"labels": {"mutated": "true"}, **TIERS[tier]}
                await client.create(PROFILES, {**BATCH, "spec": given})
                body = pod("filled", {"app": "batch"}, cpu="1500m")
                for _ in range(200):
                    await client.create(PODS, body, "colocated")
                    made = await tree(client, "filled")
                    await client.delete(PODS, "filled", "colocated")
                    if "mutated" in made["metadata"]["labels"]:
                        break
                    await until_gone(client, "filled")
                (container,) = made["spec"]["containers"]
                cpu, memory = f"kubernetes.io/{tier}-cpu", f"kubernetes.io/{tier}-memory"
                assert container["resources"] == {
                    "requests": {cpu: "1500", memory: "256Mi"},
                    "limits": {cpu: "1500", memory: "1Gi"},
                }
                assert made["status"]["qosClass"] == "BestEffort"
            finally:
                await client.delete(LIMIT_RANGES, "usual", "colocated")

    asyncio.run(story())


def test_what_does_not_go_together_is_refused_with_a_reason(plane: ControlPlane) -> None:
    async def story() -> None:
        async with admitting(plane) as client:
            cases = (
                (pod("a", {"koordinator.sh/qosClass": "BE"}, cpu="1"), "does not go with"),
                (
                    pod("b", {"koordinator.sh/qosClass": "LSE"}, cpu="1500m"),
                    "whole CPUs",
                ),
                (pod("c", {}, **{"kubernetes.io/batch-cpu": "1000"}), "need the QoS label BE"),
            )
            for body, why in cases:
                with pytest.raises(RefusedError, match=why):
                    await client.create(PODS, body, "plain")
            good = pod("d", {"koordinator.sh/qosClass": "LS"}, cpu="1")
            await client.create(PODS, good, "plain")
            with pytest.raises(RefusedError, match="cannot change"):
                change = {"metadata": {"labels": {"koordinator.sh/qosClass": "LSE"}}}
                await client.patch(PODS, "d", change, "plain")
            await client.patch(PODS, "d", {"metadata": {"labels": {"any": "other"}}}, "plain")
            await client.delete(PODS, "d", "plain")
            # Our own namespace is never asked about: the manager must start by itself.
            own = pod("own", {"koordinator.sh/qosClass": "BE"}, cpu="1")
            await client.create(PODS, own, NAMESPACE)
            await client.delete(PODS, "own", NAMESPACE)

    asyncio.run(story())


def test_allocatable_of_a_node_is_amplified(plane: ControlPlane) -> None:
    async def story() -> None:
        async with admitting(plane) as client:
            key = "node.koordinator.sh/resource-amplification-ratio"
            body = {"metadata": {"name": "n1", "annotations": {key: '{"cpu":1.5,"memory":1}'}}}
            await client.create(NODES, body)
            status = {"status": {"allocatable": {"cpu": "4", "memory": "8Gi"}}}
            await client.patch(NODES, "n1", status, subresource="status")
            node = json.loads(await client.raw(NODES.path("", "n1")))
            assert node["status"]["allocatable"] == {"cpu": "6", "memory": "8Gi"}
            raw = node["metadata"]["annotations"]["node.koordinator.sh/raw-allocatable"]
            assert json.loads(raw) == {"cpu": "4", "memory": "8Gi"}
            # What kubelet reports next is what the node really has.
            await client.patch(NODES, "n1", status, subresource="status")
            again = json.loads(await client.raw(NODES.path("", "n1")))
            assert again["status"]["allocatable"] == {"cpu": "6", "memory": "8Gi"}
            await client.patch(NODES, "n1", {"metadata": {"annotations": {key: None}}})
            await client.patch(NODES, "n1", status, subresource="status")
            bare = json.loads(await client.raw(NODES.path("", "n1")))
            assert bare["status"]["allocatable"] == {"cpu": "4", "memory": "8Gi"}
            assert "annotations" not in bare["metadata"] or (
                "node.koordinator.sh/raw-allocatable" not in bare["metadata"]["annotations"]
            )
            await client.delete(NODES, "n1")

    asyncio.run(story())


def test_a_configuration_that_is_wrong_is_refused(plane: ControlPlane) -> None:
    async def story() -> None:
        async with admitting(plane) as client:

            def body(text: str) -> dict[str, Any]:
                return {
                    "metadata": {
                        "name": "slo-controller-config",
                        "labels": {"koordinator.sh/configmap-type": "slo-controller-config"},
                    },
                    "data": {"resource-threshold-config": text},
                }

            with pytest.raises(RefusedError, match=r"ConfigParamInvalid.*from 0 to 100"):
                wrong = '{"clusterStrategy":{"cpuSuppressThresholdPercent":165}}'
                await client.create(CONFIG_MAPS, body(wrong), NAMESPACE)
            good = '{"clusterStrategy":{"cpuSuppressThresholdPercent":65}}'
            await client.create(CONFIG_MAPS, body(good), NAMESPACE)
            await client.delete(CONFIG_MAPS, "slo-controller-config", NAMESPACE)

    asyncio.run(story())


PATCHES: tuple[dict[str, Any], ...] = (
    {"containers": [{"name": "main", "env": [{"name": "B", "value": "2"}]}]},
    {"containers": [{"name": "main", "env": [{"name": "A", "$patch": "delete"}]}]},
    {"containers": [{"name": "side", "image": "other"}]},
    {"containers": [{"name": "second", "image": "x"}, {"name": "main", "image": "y"}]},
    {"tolerations": [{"key": "k", "operator": "Exists"}]},
    {"volumes": [{"name": "v", "emptyDir": None, "hostPath": {"path": "/tmp"}}]},
    {"volumes": [{"$patch": "replace"}, {"name": "w", "emptyDir": {}}]},
    {"hostAliases": [{"ip": "10.0.0.1", "hostnames": ["b"]}]},
    {"nodeSelector": {"a": None, "b": "2"}},
    {"nodeSelector": {"$patch": "replace", "c": "3"}},
    {"containers": [{"name": "main", "ports": [{"containerPort": 80, "name": "web"}]}]},
    {"containers": [{"name": "main", "volumeMounts": [{"mountPath": "/x", "name": "v"}]}]},
    {"imagePullSecrets": [{"name": "two"}]},
    {"containers": [{"name": "main", "$patch": "delete"}]},
    {"securityContext": {"runAsUser": 5}},
    {
        "$setElementOrder/containers": [{"name": "new"}, {"name": "second"}, {"name": "main"}],
        "containers": [{"name": "new", "image": "n"}],
    },
    {"containers": [{"name": "second", "image": "x"}, {"name": "new", "image": "n"}]},
)


@pytest.mark.parametrize("patch", PATCHES, ids=lambda each: json.dumps(each)[:40])
def test_a_strategic_merge_is_what_the_api_server_makes_of_it(
    plane: ControlPlane, patch: dict[str, Any]
) -> None:
    from koord_scheduler.admission.strategic_merge import strategic_merge

    spec = {
        "containers": [
            {
                "name": "main",
                "image": "i",
                "env": [{"name": "A", "value": "1"}, {"name": "C", "value": "3"}],
                "ports": [{"containerPort": 80}, {"containerPort": 81}],
            },
            {"name": "second", "image": "j"},
        ],
        "tolerations": [{"key": "old", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
        "nodeSelector": {"a": "1"},
        "imagePullSecrets": [{"name": "one"}],
    }
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "t", "namespace": "default"},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": spec},
    }
    path = plane.work / "template.json"
    path.write_text(json.dumps(template))
    kubectl(plane, "create", "-f", str(path))
    try:
        before = json.loads(kubectl(plane, "get", "podtemplate", "t", "-o", "json"))
        body = json.dumps({"template": {"spec": patch}})
        kubectl(plane, "patch", "podtemplate", "t", "--type=strategic", "-p", body)
        after = json.loads(kubectl(plane, "get", "podtemplate", "t", "-o", "json"))
    finally:
        kubectl(plane, "delete", "podtemplate", "t")
    ours = strategic_merge({"spec": before["template"]["spec"]}, {"spec": patch})["spec"]
    assert _bare(ours) == _bare(after["template"]["spec"])


def _bare(tree: Any) -> Any:
    """Without what the server fills in for new elements."""
    filled = {"terminationMessagePath", "terminationMessagePolicy", "imagePullPolicy", "protocol"}
    if isinstance(tree, dict):
        return {k: _bare(v) for k, v in tree.items() if k not in (*filled, "type", "resources")}
    return [_bare(each) for each in tree] if isinstance(tree, list) else tree
