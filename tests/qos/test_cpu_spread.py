"""Which best-effort cgroups are spread, and over which CPUs."""

from __future__ import annotations

from koordlet.decision.resource import Resource
from koordlet.protocol.slo import CPUQOS, NodeSLOSpec, ResourceQOS, ResourceQOSStrategy
from koordlet.qos.cpu_spread import STRATEGY
from tests.qos.build import app, kernel, node, slo, snapshot

SPREAD = Resource.CPU_SPREAD


def _slo(enable: bool | None = True) -> NodeSLOSpec:
    qos = ResourceQOS(cpu_qos=CPUQOS(enable=enable))
    return NodeSLOSpec(resource_qos_strategy=ResourceQOSStrategy(be_class=qos))


def test_every_best_effort_application_over_its_own_cpus() -> None:
    apps = (app("batch", "BE"), app("shop", "LS"))
    found = STRATEGY.decide(
        snapshot(node(4), apps=apps, spec=_slo(), in_force=kernel(4, "1-3")), None
    )
    assert {(s.cgroup, s.resource) for s in found.plan.settings} >= {("batch", SPREAD)}
    assert not [s for s in found.plan.settings if s.cgroup == "shop"]
    assert all("kept on one of" in s.why.text for s in found.plan.settings)


def test_nothing_where_best_effort_is_not_to_yield() -> None:
    apps = (app("batch", "BE"),)
    for each in (_slo(enable=False), _slo(enable=None), slo(), NodeSLOSpec()):
        found = STRATEGY.decide(snapshot(node(4), apps=apps, spec=each), None)
        assert not found.plan.settings and not found.plan.keep


def test_what_holds_a_service_too_is_left_alone() -> None:
    apps = (app("all", "BE"), app("shop", "LS", "all/shop"))
    found = STRATEGY.decide(snapshot(node(4), apps=apps, spec=_slo()), None)
    assert "all" not in {s.cgroup for s in found.plan.settings}
    assert [note.rule for note in found.notes] == ["cpu-spread.left-alone"]
