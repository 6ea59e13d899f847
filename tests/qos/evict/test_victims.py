"""Filters and order of victims: docs/reference/qos.md 4.4 and 4.5."""

from __future__ import annotations

import msgspec
import pytest

from koordlet.decision.plan import Victim, VictimKind
from koordlet.decision.snapshot import Evicting, EvictPolicy, Resources
from koordlet.protocol.keys import EVICTION_FEATURES
from koordlet.protocol.qos import PriorityClass
from koordlet.qos.evict.config import Feature, Watermark
from koordlet.qos.evict.victims import candidates, eligible, requested
from tests.qos.build import app
from tests.qos.evict.scene import GB, Scene

ANYBODY = Watermark(80, 70, 7999)
POLICY = "koordinator.sh/eviction-policy"
PRIORITY = "koordinator.sh/eviction-priority"
SUB = "koordinator.sh/priority"


def order(scene: Scene, feature: Feature, rules: Watermark | None = ANYBODY) -> list[str]:
    return [each.victim.name for each in eligible(feature, rules, candidates(scene.take()))]


@pytest.mark.parametrize("feature", [Feature.CPU, Feature.MEMORY])
@pytest.mark.parametrize(
    ("qos", "enabled", "priority", "phase", "chosen"),
    [
        ("BE", "true", 5500, "Running", True),
        ("LS", "true", 5500, "Running", True),
        (None, "true", 7999, "", True),
        ("LS", "true", 8000, "Running", False),
        ("LS", None, 5500, "Running", False),
        ("BE", None, 5500, "Running", False),
        ("BE", "false", 5500, "Running", False),
        ("BE", "yes", 5500, "Running", False),
        ("BE", "true", 5500, "Succeeded", False),
        ("LSE", "true", 5500, "Running", False),
        ("LSR", "true", 5500, "Running", False),
        ("SYSTEM", "true", 5500, "Running", False),
    ],
)
def test_by_priority(
    feature: Feature, qos: str | None, enabled: str | None, priority: int, phase: str, chosen: bool
) -> None:
    scene = Scene().pod(
        "a", qos=qos, enabled=enabled, priority=priority, phase=phase, cores=1, memory=GB
    )
    assert (order(scene, feature) == ["a"]) is chosen


@pytest.mark.parametrize("feature", [Feature.BE_CPU, Feature.BE_MEMORY])
@pytest.mark.parametrize(
    ("qos", "enabled", "phase", "chosen"),
    [
        ("BE", None, "Running", True),
        ("BE", "true", "", True),
        ("BE", "false", "Running", True),
        ("BE", None, "Failed", False),
        (None, "true", "Running", False),
        ("LS", "true", "Running", False),
    ],
)
def test_by_class(
    feature: Feature, qos: str | None, enabled: str | None, phase: str, chosen: bool
) -> None:
    scene = Scene().pod("a", qos=qos, enabled=enabled, phase=phase)
    assert (order(scene, feature, None) == ["a"]) is chosen


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        (None, True),
        ('["CPUEvict"]', True),
        ('["MemoryEvict", "CPUEvict"]', True),
        ('["MemoryEvict"]', False),
        ('["cpuevict"]', False),
        ("[]", False),
        ("", False),
        ("null", False),
        ("{}", False),
        ('"CPUEvict"', False),
        ("CPUEvict", False),
    ],
)
def test_policy_annotation(text: str | None, allowed: bool) -> None:
    annotations = {} if text is None else {POLICY: text}
    scene = Scene().pod("a", annotations=annotations, cores=1)
    assert (order(scene, Feature.CPU) == ["a"]) is allowed


def test_order_by_priority_then_label_then_use() -> None:
    scene = (
        Scene()
        .pod("e", priority=120, labels={SUB: "4000"}, memory=99 * GB)
        .pod("d", priority=120, labels={SUB: "3000"}, memory=99 * GB)
        .pod("c", priority=120, labels={SUB: "2000"}, memory=1 * GB)
        .pod("b", priority=100, memory=10 * GB)
        .pod("a", priority=100, memory=11 * GB)
        .pod("x", priority=3400, memory=99 * GB)
    )
    assert order(scene, Feature.MEMORY, Watermark(80, 70, 3000)) == ["a", "b", "c", "d", "e"]


def test_order_by_eviction_priority() -> None:
    scene = (
        Scene()
        .pod("hundred", priority=10, annotations={PRIORITY: "100"}, cores=1)
        .pod("invalid", priority=120, annotations={PRIORITY: "soon"}, cores=1)
        .pod("unset", priority=100, cores=1)
        .pod("minus", priority=500, annotations={PRIORITY: "-1"}, cores=1)
    )
    assert order(scene, Feature.CPU) == ["minus", "unset", "invalid", "hundred"]


def test_order_of_starving_best_effort() -> None:
    scene = (
        Scene()
        .pod("three", priority=100, cores=3, batch_cpu=16000)
        .pod("four", priority=100, cores=4, batch_cpu=16000)
        .pod("low", priority=10, cores=1, batch_cpu=16000)
        .pod("idle", priority=100, cores=9)
    )
    assert order(scene, Feature.BE_CPU, None) == ["low", "four", "three", "idle"]


def test_order_of_best_effort_memory() -> None:
    scene = (
        Scene()
        .pod("late", priority=120, memory=10 * GB)
        .pod("small", priority=100, memory=5 * GB)
        .pod("none", priority=100)
        .pod("big", priority=100, memory=20 * GB)
    )
    assert order(scene, Feature.BE_MEMORY, None) == ["big", "small", "none", "late"]


def test_one_without_a_priority_stands_where_its_class_does() -> None:
    scene = (
        Scene()
        .pod("low", priority=5000, memory=GB)
        .pod("unset", memory=9 * GB)
        .pod("high", priority=5999, memory=99 * GB)
    )
    assert order(scene, Feature.BE_MEMORY, None) == ["low", "unset", "high"]


@pytest.mark.parametrize("feature", [Feature.BE_CPU, Feature.BE_MEMORY])
def test_without_a_priority_the_label_orders(feature: Feature) -> None:
    """A container runtime tells labels, and not spec.priority."""
    scene = Scene().pod("big", memory=9 * GB, cores=9, labels={SUB: "3000"})
    scene.pod("low", memory=1 * GB, cores=1, labels={SUB: "1000"})
    scene.pod("bad", memory=1 * GB, cores=1, labels={SUB: "none"})
    assert order(scene, feature, None) == ["low", "big", "bad"]
    # Where it is told it alone counts.
    scene = Scene().pod("big", priority=5500, memory=9 * GB, cores=9, labels={SUB: "3000"})
    scene.pod("low", priority=5500, memory=1 * GB, cores=1, labels={SUB: "1000"}, batch_cpu=9000)
    assert order(scene, Feature.BE_MEMORY, None) == ["big", "low"]


def test_equals_are_ordered_by_name() -> None:
    scene = Scene().pod("b", memory=GB).pod("a", memory=GB).pod("c", memory=GB)
    assert order(scene, Feature.BE_MEMORY, None) == ["a", "b", "c"]


def test_requests_by_tier() -> None:
    spec = '{"containers": {"c": {"requests": {"kubernetes.io/mid-cpu": "1500"}}}}'
    extended = {"node.koordinator.sh/extended-resource-spec": spec}
    scene = (
        Scene()
        .pod("batch", batch_cpu=45000, batch_memory=7, cores=1)
        .pod("other", batch_cpu=40000, enabled=None)
        .pod("mid", qos="LS", cls=PriorityClass.MID, annotations=extended, cores=0)
        .pod("prod", qos="LS", cls=PriorityClass.PROD, batch_cpu=1)
        .pod("done", batch_cpu=9000, phase="Succeeded")
        .pod("never", batch_cpu=5, enabled="false")
    )
    names = ("kubernetes.io/batch-cpu", "kubernetes.io/mid-cpu")
    found = candidates(scene.take())
    assert requested(found, ANYBODY, names) == {names[0]: 85005, names[1]: 1500}
    assert requested(found, Watermark(80, 70, 5999), names) == {names[0]: 85005}
    assert order(scene, Feature.CPU_ALLOCATABLE) == ["batch", "mid"]


def test_applications_by_their_configuration() -> None:
    scene = (
        Scene()
        .app(app("stop", "BE"), cores=1, memory=GB)
        .app(app("freeze", "BE"), cores=1, memory=GB)
        .app(app("quiet", "BE"), cores=9, memory=9 * GB)
        .app(app("shop", "LSR"), cores=9, memory=9 * GB)
        .app(app("absent", "BE", present=False))
    )
    policies = dict.fromkeys(("stop", "shop", "absent"), EvictPolicy.STOP)
    scene.evicting = Evicting(policies=policies | {"freeze": EvictPolicy.FREEZE})
    assert order(scene, Feature.BE_MEMORY, None) == ["stop"]
    assert order(scene, Feature.BE_CPU, None) == ["stop"]
    assert order(scene, Feature.CPU) == ["freeze", "stop"]
    assert order(scene, Feature.CPU_ALLOCATABLE) == []


def test_one_without_a_process_gives_nothing() -> None:
    """Evicted before, it keeps its cgroup and its place in the configuration."""
    asked = Resources(request_cpu_milli=2000)
    scene = (
        Scene()
        .app(app("over", "BE", resources=asked), cores=0, memory=4096)
        .app(app("sleeps", "BE", resources=asked), cores=0, memory=GB)
        .app(app("new", "BE", resources=asked))
    )
    scene.evicting = Evicting(policies=dict.fromkeys(("over", "sleeps", "new"), EvictPolicy.STOP))
    found = {each.victim.name: each.requests for each in candidates(scene.take())}
    batch = {"kubernetes.io/batch-cpu": 2000}
    assert found == {"over": {}, "sleeps": batch, "new": batch}


@pytest.mark.parametrize(
    ("feature", "chosen"),
    [
        (Feature.CPU, ["cpu"]),
        (Feature.CPU_ALLOCATABLE, ["cpu"]),
        (Feature.MEMORY, ["memory"]),
        (Feature.MEMORY_ALLOCATABLE, ["memory"]),
        (Feature.BE_CPU, ["cpu", "memory", "neither"]),
        (Feature.BE_MEMORY, ["memory", "cpu", "neither"]),
    ],
)
def test_whoever_is_not_measured_is_no_candidate_by_priority(
    feature: Feature, chosen: list[str]
) -> None:
    """4.4, last line of the table. A source may not have heard of the end of a pod."""
    asked = {"batch_cpu": 1000, "batch_memory": GB}
    scene = Scene().pod("cpu", cores=1, **asked).pod("memory", memory=GB, **asked)
    scene.pod("neither", **asked)
    assert order(scene, feature) == chosen


def test_whoever_holds_others_is_left_alone() -> None:
    scene = Scene().app(app("outer", "BE", "outer"), memory=GB).pod("a", memory=GB)
    scene.app(app("inner", "LS", "outer/inner")).app(app("all", "BE", "kubepods"), memory=GB)
    scene.evicting = Evicting(policies=dict.fromkeys(("outer", "all"), EvictPolicy.STOP))
    assert order(scene, Feature.BE_MEMORY, None) == ["a"]


def test_what_it_uses_is_in_milli_cores_and_bytes() -> None:
    scene = Scene().pod("a", cores=1.5, memory=3 * GB)
    (found,) = candidates(scene.take())
    assert found.victim == Victim(VictimKind.POD, "a")
    assert (found.cpu_milli, found.memory_bytes) == (1500, 3 * GB)
    scene.samples.last[("pod_cpu_usage", ("a",))] = float("nan")
    (found,) = candidates(msgspec.structs.replace(scene.take()))
    assert found.cpu_milli is None


@pytest.mark.parametrize("feature", [Feature.BE_CPU, Feature.BE_MEMORY])
@pytest.mark.parametrize(
    ("annotation", "exempt"),
    [
        ("[]", True),
        ('["CPUEvict"]', True),
        ('["BECPUEvict", "BEMemoryEvict"]', False),
        ('["BECPUEvict", "BEMemoryEvict", "Future"]', False),
        # What says nothing exempts nobody.
        ("", False),
        ("null", False),
        ("BEMemoryEvict", False),
        ("[0]", False),
        ('["never"]', False),
        ("[" * 300_000, False),
    ],
)
def test_only_a_list_that_can_be_read_exempts_best_effort(
    feature: Feature, annotation: str, exempt: bool
) -> None:
    scene = Scene().pod("hog", annotations={POLICY: annotation}, enabled="false", memory=9 * GB)
    assert (order(scene, feature, None) == []) is exempt


@pytest.mark.parametrize("feature", [Feature.BE_CPU, Feature.BE_MEMORY])
@pytest.mark.parametrize("claim", ["2147483647", "6000"])
def test_a_label_lifts_no_pod_out_of_its_class(feature: Feature, claim: str) -> None:
    scene = Scene().pod("hog", memory=9 * GB, cores=9, batch_cpu=1000, labels={SUB: claim})
    scene.pod("neighbour", memory=1 * GB, cores=1, batch_cpu=1000)
    assert order(scene, feature, None) == ["hog", "neighbour"]
    # Inside the class it orders as it says.
    scene = Scene().pod("later", memory=9 * GB, cores=9, batch_cpu=1000, labels={SUB: "5999"})
    scene.pod("neighbour", memory=1 * GB, cores=1, batch_cpu=1000)
    assert order(scene, feature, None) == ["neighbour", "later"]


def test_no_label_lifts_a_pod_above_the_band_that_admission_gave_it() -> None:
    scene = Scene().pod("hog", priority=5500, memory=9 * GB, labels={SUB: "2147483647"})
    scene.pod("neighbour", priority=5500, memory=1 * GB)
    assert order(scene, Feature.MEMORY) == ["hog", "neighbour"]


def test_the_protocol_knows_every_feature() -> None:
    assert set(EVICTION_FEATURES) == {*Feature, "GPUEnvInject"}
