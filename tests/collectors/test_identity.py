"""Who the numbers are about."""

from __future__ import annotations

import msgspec

from koordlet.decision.metrics import IDENTITY_REPEAT_S
from koordlet.protocol.qos import QoSClass
from tests.collectors.world import UID, UID2, World

KINDS = {"pod_info", "host_application_info", "node_cpu_capacity", "node_memory_capacity"}


def _told(world: World) -> dict[tuple[str, ...], float]:
    samples = world.samples(world.rounds())
    return {key: value for key, value in samples.items() if key[0] in KINDS}


def test_everybody_at_first_then_newcomers_then_everybody_again() -> None:
    world = World()
    pod = world.pod("burstable", UID, raw=QoSClass.LS)
    world.pods = (msgspec.structs.replace(pod, name="web-0", namespace="shop"),)
    world.application("batch", "batch.slice", QoSClass.BE)
    # Labels in alphabetical order of their names.
    web = ("pod_info", pod.cgroup, "web-0", "shop", UID, "LS")
    batch = ("host_application_info", "batch.slice", "batch", "BE")
    node = {("node_cpu_capacity", "n1"): 4.0, ("node_memory_capacity", "n1"): float(8 << 30)}
    node[("node_cpu_capacity", "n1")] = world.node.capacity_milli / 1000
    assert _told(world) == {web: 1.0, batch: 1.0, **node}
    assert _told(world) == {}

    other = world.pod("besteffort", UID2)
    new = ("pod_info", other.cgroup, "", "", UID2, "BE")
    assert _told(world) == {new: 1.0}
    world.host.advance(IDENTITY_REPEAT_S)
    assert _told(world) == {web: 1.0, batch: 1.0, new: 1.0, **node}


def test_a_pod_whose_class_is_not_known_yet_is_not_named() -> None:
    world = World()
    pod = world.pod("besteffort", UID)
    world.pods = (msgspec.structs.replace(pod, awaits_labels=True),)
    assert "pod_info" not in {key[0] for key in _told(world)}
    world.pods = (msgspec.structs.replace(pod, raw_qos=QoSClass.LS),)
    assert [key[-1] for key in _told(world)] == ["LS"]


def test_names_are_bounded_and_can_be_written() -> None:
    world = World()
    pod = world.pod("burstable", UID)
    world.pods = (msgspec.structs.replace(pod, name="x" * 1000, namespace="a\udcff"),)
    world.rounds()
    (found,) = (world.store.describe(each)[1] for each in world.store.select("pod_info", {}))
    assert dict(found)["name"] == "x" * 253
    assert dict(found)["namespace"] == "a\\xff"


def test_who_is_gone_is_released() -> None:
    world = World()
    world.pod("burstable", UID)
    world.rounds()
    (series,) = world.store.select("pod_info", {})
    world.pods = ()
    world.rounds()
    before = world.store.status().refused_samples
    world.store.append(1, [series], [1.0])
    assert world.store.status().refused_samples == before + 1
