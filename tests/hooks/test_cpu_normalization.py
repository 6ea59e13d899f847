"""CPU normalization (docs/reference/hooks.md 2.4): scaled once, from what kubelet asked for."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from koordlet.decision.resource import Resource
from koordlet.decision.snapshot import Container, Pod, Resources
from koordlet.decision.strategy import Adjustment, Level, Subject
from koordlet.hooks.cpu_normalization import HOOK
from tests.hooks.test_batch_resource import MID, amounts, annotated
from tests.qos.build import Kernel, app, node, pod, snapshot

QUOTA = Resource.CPU_QUOTA_US
ASKED = {QUOTA: 120_000}


def evaluate(
    found: Pod,
    container: Container,
    *,
    ratio: float | None = 1.2,
    in_force: Kernel | None = None,
) -> Adjustment:
    subject = Subject(Level.CONTAINER, container.cgroup, pod=found, container=container)
    snap = snapshot(node(8, normalization_ratio=ratio), in_force=in_force or Kernel())
    return HOOK.evaluate(subject, snap)


def quota(adjustment: Adjustment) -> int | str | None:
    return next((value for _, value, _ in adjustment.settings), None)


def box(name: str = "c", **fields: Any) -> Container:
    return Container(name, f"kubepods/burstable/podp/{name}", name=name, **fields)


@pytest.mark.parametrize(
    ("found", "applies"),
    [
        (pod("p", "LS"), True),
        (pod("p", "LS", cpus={1}), True),
        (pod("p", None), True),
        (pod("p", None, cpus={1}), False),
        *((pod("p", qos), False) for qos in ("LSE", "LSR", "BE", "SYSTEM")),
        (pod("p", "LS", annotations=annotated(c=amounts(MID, limit=1000))), False),
        (pod("p", "LS", annotations=annotated(c=amounts(limit=1000))), True),
    ],
)
def test_to_whom_it_applies(found: Pod, applies: bool) -> None:
    expected = 100_000 if applies else None
    assert quota(evaluate(found, box(requested=ASKED))) == expected


@pytest.mark.parametrize("ratio", [None, 1.0, 0.8])
def test_without_a_larger_ratio_nothing_is_wanted(ratio: float | None) -> None:
    assert evaluate(pod("p"), box(requested=ASKED), ratio=ratio) == Adjustment()


@pytest.mark.parametrize(
    ("container", "held", "original", "expected"),
    [
        (box(requested=ASKED), 100_000, None, 100_000),
        (box(requested=ASKED, resources=Resources(limit_cpu_milli=600)), None, None, 100_000),
        (box(requested={QUOTA: -1}), 120_000, None, None),
        (box(resources=Resources(limit_cpu_milli=600)), 120_000, None, 50_000),
        (box(), 100_000, 120_000, 100_000),
        (box(), 120_000, None, 100_000),
        (box(), -1, None, None),
        (box(), None, None, None),
        (box(requested={Resource.CPU_SHARES: 2, QUOTA: 0}), 120_000, None, 100_000),
        # After a resize to no limit the file may hold the old one for a moment.
        (box(resources=Resources(request_cpu_milli=500)), 50_000, 62_500, None),
    ],
)
def test_scaled_is_what_kubelet_asked_for(container, held, original, expected) -> None:
    kernel = Kernel()
    if held is not None:
        kernel.add(container.cgroup, quota=held)
    if original is not None:
        kernel.originals[container.cgroup, QUOTA] = original
    assert quota(evaluate(pod("p"), container, in_force=kernel)) == expected


def test_a_limit_counts_for_the_period_in_force() -> None:
    kernel = Kernel().add("kubepods/burstable/podp/c", period=20_000)
    limited = box(resources=Resources(limit_cpu_milli=1200))
    assert quota(evaluate(pod("p"), limited, in_force=kernel)) == 20_000


GUEST = {"runtime_handler": "kata-qemu"}


@pytest.mark.parametrize(
    ("found", "nests", "expected"),
    [
        (pod("p", "LS"), False, 100_000),
        (pod("p", None), False, 100_000),
        (pod("p", "LSR"), False, None),
        # v1: a container with kubelet's own quota could not start in a scaled pod.
        (pod("p", "LS"), True, None),
        # Of a guest there is no container on the host.
        (pod("p", "LS", **GUEST), True, 100_000),
        (pod("p", "LS", **GUEST), False, 100_000),
        (pod("p", "BE", **GUEST), True, None),
    ],
)
@pytest.mark.parametrize("limit", [None, 1200])
def test_pods_are_scaled_where_their_containers_can_start(
    found: Pod, nests: bool, expected: int | None, limit: int | None
) -> None:
    found = msgspec.structs.replace(found, resources=Resources(limit_cpu_milli=limit))
    kernel = Kernel().add(found.cgroup, quota=120_000)
    subject = Subject(Level.POD, found.cgroup, pod=found)
    machine = node(8, normalization_ratio=1.2, quotas_nest=nests)
    adjustment = HOOK.evaluate(subject, snapshot(machine, in_force=kernel))
    assert quota(adjustment) == expected
    kernel = Kernel().add(found.cgroup, quota=-1)
    unlimited = HOOK.evaluate(subject, snapshot(machine, in_force=kernel))
    assert quota(unlimited) is None, "one of its containers has no limit"


def test_applications_are_not_its_business() -> None:
    subject = Subject(Level.APPLICATION, "web", application=app("web", "LS"))
    snap = snapshot(node(8, normalization_ratio=1.2))
    assert HOOK.evaluate(subject, snap) == Adjustment()
