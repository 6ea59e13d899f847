"""Host applications: where they are, and noticing when they come and go."""

from __future__ import annotations

import pytest

from koordlet.kernel.kubepods import Kubepods
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.slo import CgroupPath, HostApplicationSpec
from koordlet.state.applications import ApplicationSpec, ApplicationsSource, specs_of_slo
from koordlet.state.units import check_unit, slice_path

from .world import World, make_world

TREE = Kubepods("kubepods")


def source_of(world: World, *specs: ApplicationSpec) -> ApplicationsSource:
    source = ApplicationsSource("config", world.host, world.cgroups)
    source.set(specs)
    source.start(world.changed)
    return source


def states(source: ApplicationsSource) -> dict[str, tuple[str, bool]]:
    return {app.name: (app.cgroup, app.present) for app in source.applications()}


def test_by_cgroup_comes_and_goes(world: World) -> None:
    source = source_of(world, ApplicationSpec("web", QoSClass.LS, cgroup="tenants/web"))
    assert states(source) == {"web": ("tenants/web", False)}
    assert source.synced
    for _ in range(2):
        world.host.make_cgroup("tenants/web")  # both levels are new
        world.host.deliver()
        assert states(source) == {"web": ("tenants/web", True)}
        world.host.remove_cgroup("tenants/web")
        world.host.remove_cgroup("tenants")
        world.host.deliver()
        assert states(source) == {"web": ("tenants/web", False)}
    assert source.applications()[0].origin == "config"


@pytest.mark.parametrize(
    ("unit", "place"),
    [
        ("nginx.service", "system.slice/nginx.service"),
        ("nginx.service", "tenant.slice/tenant-a.slice/nginx.service"),
        ("foo@1.service", "system.slice/system-foo.slice/foo@1.service"),
        ("x.service", "user.slice/user-0.slice/user@0.service/app.slice/x.service"),
        ("session-3.scope", "user.slice/user-0.slice/session-3.scope"),
        ("tenant-a.slice", "tenant.slice/tenant-a.slice"),
    ],
)
def test_by_systemd_unit(world: World, unit: str, place: str) -> None:
    source = source_of(world, ApplicationSpec("app", QoSClass.LS, systemd_unit=unit))
    assert not source.applications()[0].present
    world.host.make_cgroup(place)
    world.host.deliver()
    source.rescan()
    assert states(source) == {"app": (place, True)}
    world.host.remove_cgroup(place)
    world.host.deliver()
    assert not source.applications()[0].present


def test_a_unit_is_noticed_without_a_rescan(world: World) -> None:
    world.host.make_cgroup("system.slice/other.service")
    source = source_of(world, ApplicationSpec("a", None, systemd_unit="nginx.service"))
    world.host.make_cgroup("system.slice/nginx.service")
    world.host.deliver()
    assert states(source) == {"a": ("system.slice/nginx.service", True)}


@pytest.mark.parametrize(
    ("layout", "trees", "present"),
    [("hybrid", ("systemd", "unified"), True), ("v1", ("systemd",), False)],
)
def test_a_unit_without_a_cpu_cgroup_is_a_fault(
    layout: str, trees: tuple[str, ...], present: bool
) -> None:
    """A service without CPUAccounting: it is in systemd's own tree, not in that of cpu."""
    world = make_world(layout)
    for tree in trees:
        for path in ("system.slice", "system.slice/nginx.service"):
            world.host.mkdir(f"/sys/fs/cgroup/{tree}/{path}")
    source = source_of(world, ApplicationSpec("a", None, systemd_unit="nginx.service"))
    assert states(source) == {"a": ("system.slice/nginx.service", present)}
    assert "CPUAccounting" in source.faults()[0].message
    world.host.make_cgroup("system.slice/nginx.service")
    source.rescan()
    assert source.faults() == () and source.applications()[0].present


@pytest.mark.parametrize(
    "spec",
    [
        ApplicationSpec("a", None, cgroup="../etc"),
        ApplicationSpec("a", None, cgroup="a//b"),
        ApplicationSpec("a", None),
        ApplicationSpec("a", None, systemd_unit="a/b.service"),
        ApplicationSpec("a", None, systemd_unit="nginx"),
    ],
)
def test_bad_places_are_faults_and_harm_nobody_else(spec: ApplicationSpec) -> None:
    world = make_world()
    source = source_of(world, spec, ApplicationSpec("good", None, cgroup="good"))
    assert list(states(source)) == ["good"]
    assert [fault.subject for fault in source.faults()] == ["application a"]


def test_set_replaces_and_tells_only_of_changes() -> None:
    world = make_world()
    spec = ApplicationSpec("web", QoSClass.LS, cgroup="web")
    source = source_of(world, spec)
    told = len(world.changes)
    before = source.applications()
    source.set((spec,))
    source.rescan()
    assert source.applications() is before and len(world.changes) == told
    source.set(())
    assert source.applications() == () and len(world.changes) == told + 1


def test_slice_names() -> None:
    assert slice_path("a.slice") == "a.slice"
    assert slice_path("a-b-c.slice") == "a.slice/a-b.slice/a-b-c.slice"
    assert slice_path("-.slice") == ""
    check_unit("nginx.service")
    with pytest.raises(ValueError, match="nginx"):
        check_unit("nginx")


@pytest.mark.parametrize(
    ("entry", "cgroup"),
    [
        (HostApplicationSpec("nginx", qos="LS"), "host-latency-sensitive/nginx"),
        (HostApplicationSpec("nginx", qos="LSR"), "host-latency-sensitive/nginx"),
        (HostApplicationSpec("job", qos="BE"), "host-best-effort/job"),
        (HostApplicationSpec("x", qos="SYSTEM"), "x"),
        (HostApplicationSpec("x"), "x"),
        (
            HostApplicationSpec(
                "n", qos="LS", cgroup_path=CgroupPath("CgroupRoot", "host-ls/", "nginx/")
            ),
            "host-ls/nginx",
        ),
        (HostApplicationSpec("n", cgroup_path=CgroupPath(None, "a", "b")), "a/b"),
        (
            HostApplicationSpec("n", cgroup_path=CgroupPath("KubepodsBesteffort", "", "job")),
            "kubepods/besteffort/job",
        ),
    ],
)
def test_host_applications_of_a_slo(entry: HostApplicationSpec, cgroup: str) -> None:
    specs, faults = specs_of_slo([entry], TREE)
    assert [spec.cgroup for spec in specs] == [cgroup] and faults == ()


def test_host_applications_refused() -> None:
    entries = [
        HostApplicationSpec("a", cgroup_path=CgroupPath("Kubepods", "", "x")),
        HostApplicationSpec("b", cgroup_path=CgroupPath("CgroupRoot", "..", "x")),
        HostApplicationSpec("c", priority="koord-batch", qos="BE"),
    ]
    specs, faults = specs_of_slo(entries, None)
    assert [(spec.name, spec.priority_class) for spec in specs] == [("c", PriorityClass.BATCH)]
    assert [fault.path for fault in faults] == [
        "hostApplications[0].cgroupPath",
        "hostApplications[1].cgroupPath",
    ]
