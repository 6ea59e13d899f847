"""Whether an eviction that was begun may go on."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.snapshot import Evicting, EvictPolicy, Pod, Snapshot, Wake
from koordlet.protocol.qos import KubeQoS, QoSClass
from koordlet.protocol.slo import NodeSLOSpec, ResourceThresholdStrategy
from koordlet.qos.evict.round import objection
from tests.qos.build import Kernel, Metrics, node

POD, APP = Victim(VictimKind.POD, "a"), Victim(VictimKind.APPLICATION, "job")
SLO = ResourceThresholdStrategy(
    enable=True, memory_evict_threshold_percent=70, evict_enabled_priority_threshold=5999
)
BE = Pod("a", "kubepods/besteffort/poda", KubeQoS.BEST_EFFORT, raw_qos=QoSClass.BE)
SAYS_YES = {"koordinator.sh/eviction-enabled": "true"}


def asked(
    victim: Victim = POD,
    feature: str = "BEMemoryEvict",
    *,
    pod: Pod = BE,
    slo: ResourceThresholdStrategy | None = SLO,
    policy: EvictPolicy = EvictPolicy.STOP,
    synced: bool = True,
) -> str | None:
    snapshot = Snapshot(
        100.0, 1000.0, Wake(), node(4), (pod,), (),
        NodeSLOSpec(resource_used_threshold_with_be=slo), Metrics(), Kernel(),
        sources_synced=synced, evicting=Evicting(policies={"job": policy}),
    )  # fmt: skip
    return objection(snapshot, victim, feature)


def changed(**fields: object) -> Pod:
    return msgspec.structs.replace(BE, **fields)


def test_it_goes_on_while_nothing_speaks_against_it() -> None:
    assert asked() == "" and asked(APP) == ""
    assert asked(Victim(VictimKind.POD, "gone from the list")) == ""


@pytest.mark.parametrize(
    ("pod", "feature", "may"),
    [
        (changed(labels={"koordinator.sh/eviction-enabled": "false"}), "BEMemoryEvict", True),
        (changed(annotations={"koordinator.sh/eviction-policy": "[]"}), "BEMemoryEvict", False),
        (changed(raw_qos=QoSClass.LSR), "BEMemoryEvict", False),
        (changed(raw_qos=QoSClass.LS), "BEMemoryEvict", False),
        (changed(priority=5000, labels=SAYS_YES), "MemoryEvict", True),
        (changed(priority=7000, labels=SAYS_YES), "MemoryEvict", False),
        (changed(priority=5000), "MemoryEvict", False),
    ],
)
def test_what_the_pod_says_now_counts(pod: Pod, feature: str, may: bool) -> None:
    why = asked(pod=pod, feature=feature)
    assert why == "" if may else why is not None and "no longer" in why


@pytest.mark.parametrize("policy", [EvictPolicy.NEVER, EvictPolicy.FREEZE])
def test_an_application_is_stopped_only_while_it_is_to_be(policy: EvictPolicy) -> None:
    assert asked(APP, policy=policy) == f"application job is configured with evict = {policy}"
    assert "never" in (asked(Victim(VictimKind.APPLICATION, "other")) or "")


@pytest.mark.parametrize(
    ("slo", "feature", "why"),
    [
        (None, "BEMemoryEvict", "enable is no longer true"),
        (ResourceThresholdStrategy(enable=False), "BEMemoryEvict", "enable is no longer true"),
        (SLO, "CPUEvict", "CPUEvict is switched off"),
        (SLO, "BECPUEvict", "BECPUEvict is switched off"),
        (SLO, "MemoryAllocatableEvict", "MemoryAllocatableEvict is switched off"),
        (SLO, "OldEvict", "this version has no feature 'OldEvict'"),
        (
            msgspec.structs.replace(SLO, memory_evict_lower_percent=80),
            "BEMemoryEvict",
            "BEMemoryEvict does not act: memoryEvictLowerPercent must be below 70, but is 80",
        ),
    ],
)
def test_what_is_configured_now_counts(
    slo: ResourceThresholdStrategy | None, feature: str, why: str
) -> None:
    assert why in (asked(slo=slo, feature=feature) or "")


def test_while_its_labels_are_not_known_nobody_can_tell() -> None:
    assert asked(synced=False) is None
    assert asked(pod=changed(awaits_labels=True)) is None
    assert asked(APP, synced=False) == ""
