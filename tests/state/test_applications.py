"""Host applications: where they are, and noticing when they come and go."""

from __future__ import annotations

import pytest

from koordlet.kernel.cgroup.kubepods import Kubepods
from koordlet.protocol.qos import PriorityClass, QoSClass
from koordlet.protocol.slo import CgroupPath, HostApplicationSpec
from koordlet.state.applications import (
    SEARCH_EVERY_S,
    ApplicationSpec,
    ApplicationsSource,
    specs_of_slo,
)
from koordlet.state.units import MAX_SLICES, check_unit, slice_path

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
        ("tenant-a.slice", "tenant.slice/tenant-a.slice"),
        ("user-7.slice", "user.slice/user-7.slice"),
        ("machine-vm.scope", "machine.slice/machine-vm.scope"),
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


@pytest.mark.parametrize(
    "place",
    [
        "user.slice/user-1000.slice/user@1000.service/app.slice/shop.service",
        "user.slice/user-1000.slice/shop.service",
        "user.slice/shop.service",
        "system.slice/docker.service/system.slice/shop.service",
        "machine.slice/machine-c.scope/system.slice/shop.service",
        "lxc.payload.c/system.slice/shop.service",
        "kubepods.slice/kubepods-besteffort.slice/shop.service",
        "kubelet.slice/kubelet-kubepods.slice/shop.service",
        "tenant.slice/evil.slice/shop.service",  # systemd puts evil.slice at the top
    ],
)
def test_a_unit_of_another_manager_is_not_that_of_the_system(world: World, place: str) -> None:
    """Whoever owns such a subtree can call a cgroup like a service of the system."""
    world.host.make_cgroup(place)
    world.host.make_cgroup("system.slice")
    source = source_of(world, ApplicationSpec("shop", QoSClass.LS, systemd_unit="shop.service"))
    assert states(source) == {"shop": ("system.slice/shop.service", False)}
    world.host.make_cgroup("system.slice/shop.service")
    world.host.deliver()
    assert states(source) == {"shop": ("system.slice/shop.service", True)}
    # Asked for by its path it is whoever it is.
    source.set((ApplicationSpec("shop", QoSClass.LS, cgroup=place),))
    assert states(source) == {"shop": (place, True)}


def count_listings(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    listed: list[str] = []
    real = world.host.subdirs

    def subdirs(path: str) -> list[str]:
        listed.append(path)
        return real(path)

    monkeypatch.setattr(world.host, "subdirs", subdirs)
    return listed


def test_what_comes_where_nothing_is_searched_starts_no_search(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.host.make_cgroup("user.slice/user-1000.slice/user@1000.service/app.slice")
    world.host.make_cgroup("system.slice")
    source = source_of(world, ApplicationSpec("shop", None, systemd_unit="shop.service"))
    listed = count_listings(world, monkeypatch)
    for n in range(30):
        for place in ("user@1000.service", "user@1000.service/app.slice"):
            world.host.make_cgroup(f"user.slice/user-1000.slice/{place}/n{n}.slice/shop.service")
        world.host.make_cgroup(f"system.slice/run-{n}.service")
        world.host.deliver()
        world.host.machine.now_ns += 1_000_000_000
        assert states(source) == {"shop": ("system.slice/shop.service", False)}
    assert listed == []


def test_slices_that_come_together_are_searched_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = source_of(world, ApplicationSpec("shop", None, systemd_unit="shop.service"))
    world.host.advance(2.0)
    listed = count_listings(world, monkeypatch)
    for n in range(50):
        world.host.make_cgroup(f"n{n}.slice")
        world.host.deliver()
    world.host.make_cgroup("n7.slice/shop.service")
    world.host.deliver()
    source.applications()
    assert len(listed) < 20  # one search, of few slices
    world.host.advance(SEARCH_EVERY_S)
    assert states(source) == {"shop": ("n7.slice/shop.service", True)}
    assert len(listed) < 100


def test_more_slices_than_are_searched_are_told(world: World) -> None:
    for n in range(MAX_SLICES + 5):
        world.host.mkdir(f"{world.layout.reference_root}/n{n}.slice")
        if world.layout.v1:
            world.host.mkdir(f"/sys/fs/cgroup/systemd/n{n}.slice")
    source = source_of(world, ApplicationSpec("shop", None, systemd_unit="shop.service"))
    assert any("more than 1000 slices" in fault.message for fault in source.faults())


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
