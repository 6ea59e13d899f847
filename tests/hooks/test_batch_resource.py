"""Batch and mid resources: the table of docs/reference/hooks.md 2.3."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container, Pod, Resources
from koordlet.decision.strategy import Adjustment, Level, Subject
from koordlet.hooks.batch_resource import HOOK, governs
from koordlet.protocol.errors import AnnotationError
from koordlet.protocol.slo import NodeSLOSpec
from tests.qos.build import Kernel, app, node, pod, slo, snapshot

SHARES, QUOTA, MEMORY = Resource.CPU_SHARES, Resource.CPU_QUOTA_US, Resource.MEMORY_LIMIT
BATCH, MID = "kubernetes.io/batch-", "kubernetes.io/mid-"
GI = 1 << 30


def amounts(tier: str = BATCH, **given: Any) -> dict[str, dict[str, Any]]:
    """``request``, ``limit``: milli-cores; ``memory``: limit."""
    names = {"request": ("requests", "cpu"), "limit": ("limits", "cpu")}
    names["memory"] = ("limits", "memory")
    found: dict[str, dict[str, Any]] = {}
    for name, amount in given.items():
        where, kind = names[name]
        found.setdefault(where, {})[tier + kind] = amount
    return found


def annotated(**containers: dict[str, Any]) -> dict[str, str]:
    text = json.dumps({"containers": containers})
    return {"node.koordinator.sh/extended-resource-spec": text}


FULL = amounts(request=500, limit=1000, memory=GI)


def be(qos: str | None = "BE", **containers: dict[str, Any]) -> Pod:
    return pod("p", qos, "BestEffort", annotations=annotated(**containers))


def evaluate(
    found: Pod,
    container: Container | None = None,
    *,
    in_force: Kernel | None = None,
    spec: NodeSLOSpec | None = None,
    **machine: Any,
) -> Adjustment:
    level = Level.POD if container is None else Level.CONTAINER
    cgroup = found.cgroup if container is None else container.cgroup
    subject = Subject(level, cgroup, pod=found, container=container)
    snap = snapshot(node(8, **machine), pods=[found], spec=spec, in_force=in_force or Kernel())
    return HOOK.evaluate(subject, snap)


def values(adjustment: Adjustment) -> dict[Resource, int | str]:
    return {resource: value for resource, value, _ in adjustment.settings}


def box(name: str = "main", **fields: Any) -> Container:
    return Container("c", f"kubepods/besteffort/podp/{name}", name=name, **fields)


def want(shares: int, quota: int, memory: int) -> dict[Resource, int]:
    return {SHARES: shares, QUOTA: quota, MEMORY: memory}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (FULL, want(512, 100_000, GI)),
        (amounts(request=500), want(512, -1, -1)),
        (amounts(limit=5), want(2, 1000, -1)),
        (amounts(memory="1Gi"), want(2, -1, GI)),
        (amounts(request="1k", limit="1k"), want(1024, 100_000, -1)),
        (amounts(request=-5, limit=-1, memory=-1), {}),
        (amounts(request=0), {}),
        ({}, {}),
        ({"limits": {"cpu": "1"}}, {}),
    ],
)
def test_a_container_and_its_pod(given, expected) -> None:
    assert values(evaluate(be(main=given), box())) == expected
    assert values(evaluate(be(main=given))) == expected


def test_a_pod_is_the_sum_of_its_containers() -> None:
    found = be(a=FULL, b=amounts(request=250, limit=500, memory=GI))
    assert values(evaluate(found)) == want(768, 150_000, 2 * GI)
    found = be(a=FULL, b=amounts(request=250, limit=500))
    assert values(evaluate(found)) == want(768, 150_000, -1)
    found = be(a=FULL, b=amounts(request=250, memory=GI))
    assert values(evaluate(found)) == want(768, -1, 2 * GI)
    assert values(evaluate(be(a=FULL, b={}))) == want(512, -1, -1)


def test_a_container_that_is_not_listed_is_not_touched() -> None:
    assert evaluate(be(main=FULL), box("other")) == Adjustment()


@pytest.mark.parametrize("text", ["{}", '{"containers":{}}', "null"])
def test_no_container_is_no_annotation(text: str) -> None:
    key = "node.koordinator.sh/extended-resource-spec"
    found = pod("p", "BE", "BestEffort", annotations={key: text})
    assert evaluate(found) == evaluate(found, box()) == Adjustment()
    assert not governs(found)


def test_what_the_pod_spec_says_goes_before_the_annotation() -> None:
    spec = Resources(request_batch_cpu_milli=1000, limit_batch_cpu_milli=2000)
    found = pod("p", "BE", "BestEffort", resources=spec)
    assert values(evaluate(found)) == want(1024, 200_000, -1)
    assert values(evaluate(found, box(resources=spec))) == want(1024, 200_000, -1)
    assert values(evaluate(be(main=FULL), box(resources=spec))) == want(1024, 200_000, GI)


@pytest.mark.parametrize("qos", ["LS", "LSR", "LSE", "SYSTEM", None])
def test_batch_resources_are_for_the_class_be(qos: str | None) -> None:
    found = be(qos, main=FULL)
    assert evaluate(found) == evaluate(found, box()) == Adjustment()


@pytest.mark.parametrize("qos", ["LS", None, "BE"])
def test_mid_resources_go_by_their_names(qos: str | None) -> None:
    found = be(qos, main=amounts(MID, request=500, limit=1000, memory=GI))
    assert values(evaluate(found)) == want(512, 100_000, GI)
    assert values(evaluate(found, box())) == want(512, 100_000, GI)
    assert governs(found)
    (_, _, why), *_ = evaluate(found).settings
    assert "kubernetes.io/mid-cpu" in why.text


def test_without_a_quota_while_best_effort_itself_has_one() -> None:
    found = be(main=FULL)
    for subject in (None, box()):
        quota = slo(cpu_suppress_policy="cfsQuota")
        adjustment = evaluate(found, subject, spec=quota)
        assert values(adjustment) == want(512, -1, GI)
        (why,) = (why for resource, _, why in adjustment.settings if resource is QUOTA)
        assert "cpuSuppressPolicy cfsQuota" in why.text
        for spec in (slo(), slo(enable=False, cpu_suppress_policy="cfsQuota"), NodeSLOSpec()):
            assert values(evaluate(found, subject, spec=spec)) == want(512, 100_000, GI)


def test_a_limit_that_no_kernel_takes_is_none() -> None:
    """A runtime would fail to create the container."""
    adjustment = evaluate(be(main=amounts(request=5, limit=10**15)), box())
    (found,) = ((value, why) for resource, value, why in adjustment.settings if resource is QUOTA)
    assert found[0] == -1 and "more than the kernel's largest quota" in found[1].text


def test_quotas_are_normalized() -> None:
    found = be(main=FULL)
    adjustment = evaluate(found, box(), normalization_ratio=1.5)
    assert values(adjustment) == want(512, 66_667, GI)
    assert values(evaluate(found, normalization_ratio=0.5)) == want(512, 100_000, GI)
    unlimited = be(main=amounts(request=5))
    assert values(evaluate(unlimited, normalization_ratio=1.5))[QUOTA] == -1


def test_quotas_are_for_the_period_that_is_in_force() -> None:
    period = Resource.CPU_PERIOD_US
    asked = box(requested={period: 20_000})
    assert values(evaluate(be(main=FULL), asked))[QUOTA] == 20_000
    held = Kernel().add("kubepods/besteffort/podp/main", period=50_000)
    assert values(evaluate(be(main=FULL), box(), in_force=held))[QUOTA] == 50_000


def test_what_batch_does_not_limit_keeps_its_native_limit() -> None:
    native = {SHARES: 300, QUOTA: 70_000, MEMORY: 5 * GI}
    found = be(main=amounts(request=500))
    assert values(evaluate(found, box(requested=native))) == {SHARES: 512}
    found = be(main=amounts(limit=1000))
    assert values(evaluate(found, box(requested=native))) == {QUOTA: 100_000}
    held = Kernel({(found.cgroup, key): value for key, value in native.items()})
    assert values(evaluate(found, in_force=held)) == {QUOTA: 100_000}
    nothing = {SHARES: 2, QUOTA: -1, MEMORY: 0}
    assert values(evaluate(found, box(requested=nothing))) == want(2, 100_000, -1)


def test_a_pod_with_native_resources_too_has_no_limit_of_its_own() -> None:
    found = pod("p", "BE", "Burstable", annotations=annotated(main=FULL))
    adjustment = evaluate(found)
    assert values(adjustment) == want(512, -1, -1)
    assert [why.rule for *_, why in adjustment.settings[1:]] == ["batch-resource.mixed"] * 2
    assert values(evaluate(found, box())) == want(512, 100_000, GI)


def test_a_bad_annotation_is_refused() -> None:
    key = "node.koordinator.sh/extended-resource-spec"
    found = pod("p", "BE", "BestEffort", annotations={key: "{"})
    with pytest.raises(AnnotationError, match=key):
        evaluate(found)
    assert not governs(found)


def test_applications_are_not_its_business() -> None:
    subject = Subject(Level.APPLICATION, "job", application=app("job", "BE"))
    assert HOOK.evaluate(subject, snapshot(node(8))) == Adjustment()
