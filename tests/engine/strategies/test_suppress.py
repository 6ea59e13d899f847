"""CPU suppress in the whole daemon: usage answers to limits, limits to usage."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from koordlet_fakefs import shape

from koordlet.decision.resource import Resource
from koordlet.kernel.cgroup.cgroups import Cgroups
from koordlet.kernel.cgroup.layout import detect
from tests.daemon.world import APPLICATIONS, CPUS, LAYOUTS, NO_ALARMS, World, suppress

# 65 % of the node by default.
SHARE = 0.65 * CPUS
STEP = 0.1 * CPUS
MakeWorld = Callable[..., World]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_quota_follows_what_ls_leaves(make_world: MakeWorld, layout: str) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS + APPLICATIONS, layout)
    shop = world.application("shop", 0.4)
    world.application("batch", CPUS)
    world.start()
    world.run(5)
    assert world.limit_cores("batch") == pytest.approx(SHARE - 0.4, abs=0.05)
    assert world.pod("batch").cpu_cores == pytest.approx(SHARE - 0.4, abs=0.05)

    world.host.set_demand(shop, 1.8)
    world.run(2)
    assert world.limit_cores("batch") == pytest.approx(SHARE - 1.8, abs=0.05)
    world.run(1)
    assert world.pod("batch").cpu_cores == pytest.approx(SHARE - 1.8, abs=0.05)
    assert world.pod("shop").cpu_cores == pytest.approx(1.8, abs=0.05)

    world.host.set_demand(shop, 0.2)
    limits = [world.limit_cores("batch")]
    while limits[-1] < SHARE - 0.25 and len(limits) < 20:
        world.run(1)
        limits.append(world.limit_cores("batch"))
    growth = [after - before for before, after in pairwise(limits)]
    assert limits[-1] == pytest.approx(SHARE - 0.2, abs=0.05)
    assert max(growth) <= STEP + 0.01
    assert len(limits) > (SHARE - 0.2 - limits[0]) / STEP


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cpuset_follows_what_ls_leaves(make_world: MakeWorld, layout: str) -> None:
    world = make_world(suppress("cpuset") + NO_ALARMS + APPLICATIONS, layout)
    shop = world.application("shop", 0.4)
    world.application("batch", CPUS)
    world.start()
    world.run(5)
    assert world.limit_cores("batch") == 3  # 2.2 cores, rounded up
    assert world.pod("batch").cpu_cores == pytest.approx(3, abs=0.05)
    world.host.set_demand(shop, 1.8)
    world.run(3)
    assert world.limit_cores("batch") == 2  # the minimum of the policy
    world.host.set_demand(shop, 0.2)
    world.run(3)
    assert world.limit_cores("batch") == 3


@pytest.mark.parametrize("policy", ["cfsQuota", "cpuset"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_switched_off_by_reload_everything_is_as_before(
    make_world: MakeWorld, layout: str, policy: str
) -> None:
    body = suppress(policy) + APPLICATIONS
    world = make_world(body, layout)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    before = _values(world)
    world.start()
    world.run(3)
    assert _values(world) != before
    assert world.views.status().journal.entries > 0
    world.reload(body + "[strategies.cpu-suppress]\nenable = false\n")
    world.run(1)
    assert _values(world) == before
    assert world.views.status().journal.entries == 0
    (off,) = [s for s in world.views.status().strategies if s.name == "cpu-suppress"]
    assert not off.enabled
    world.run(10)
    assert _values(world) == before
    world.reload(body)
    world.run(2)
    assert _values(world) != before


def test_a_restart_while_suppressed_takes_no_list_of_its_own_from_a_cgroup(
    make_world: MakeWorld,
) -> None:
    """On v1, where the parent is squeezed to just what a cgroup below it has anyway."""
    body = suppress("cpuset") + NO_ALARMS + APPLICATIONS
    world = make_world(body, "v1")
    world.application("shop", 1.8)
    world.application("batch", CPUS)
    world.host.make_cgroup("batch/own")
    lists, own = "/sys/fs/cgroup/cpuset/batch", "0-1"
    wide = world.host.look(f"{lists}/cpuset.cpus").strip()
    world.host.write(f"{lists}/own/cpuset.cpus", own.encode())
    world.start()
    world.run(5)
    for _ in range(2):
        world.stop()
        world.start()
        world.run(15)
    assert world.value("batch", Resource.CPUSET_CPUS) == own
    world.reload(NO_ALARMS + APPLICATIONS)
    world.run(3)
    found = [world.value(each, Resource.CPUSET_CPUS) for each in ("batch", "batch/own")]
    assert found == [wide, own]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_disabled_in_the_slo_everything_goes_back(make_world: MakeWorld, layout: str) -> None:
    body = suppress("cfsQuota") + APPLICATIONS
    world = make_world(body, layout)
    world.application("shop", 1.0)
    world.application("batch", CPUS)
    before = _values(world)
    world.start()
    world.run(3)
    assert _values(world) != before
    world.reload(APPLICATIONS)
    world.run(1)
    assert _values(world) == before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_change_of_policy_gives_the_old_limit_back(make_world: MakeWorld, layout: str) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS + APPLICATIONS, layout)
    world.application("shop", 0.4)
    world.application("batch", CPUS)
    world.start()
    world.run(3)
    quota = world.value("batch", Resource.CPU_QUOTA_US)
    assert quota != -1
    world.reload(suppress("cpuset") + NO_ALARMS + APPLICATIONS)
    world.run(2)
    assert world.value("batch", Resource.CPU_QUOTA_US) == -1
    assert world.limit_cores("batch") == 3


def test_explain_says_why_with_the_figures(make_world: MakeWorld) -> None:
    world = make_world(suppress("cfsQuota") + APPLICATIONS)
    world.application("shop", 0.4)
    world.application("batch", CPUS)
    world.start()
    world.run(3)
    answer = world.views.explain("batch", 20)()
    assert answer.matched == "application in cgroup batch"
    written = [d for d in answer.decisions if d.result == "written"]
    assert written
    assert written[0].owner == "cpu-suppress"
    assert written[0].resource == Resource.CPU_QUOTA_US
    assert "minus LS applications 0.4" in written[-1].why.text
    usage = [i for i in written[0].why.inputs if i.name.startswith("host_application_cpu_usage")]
    assert usage
    assert all(i.unit == "cores" and i.window_s == 2 for i in usage)
    top = world.views.top()()
    assert top.be_limit_cores == pytest.approx(world.limit_cores("batch"))
    assert top.cpu_be_cores == world.pod("batch").cpu_cores
    assert top.decisions[0].owner == "cpu-suppress"


def _values(world: World) -> dict[tuple[str, str], bytes]:
    """What the kernel holds, byte for byte; of CPU lists on v2 what is in effect, since the kernel
    takes no empty list back while tasks run."""
    cgroups = Cgroups(world.host, detect(world.host))
    v1 = "cpuset" in cgroups.layout.v1
    files = (
        Resource.CPU_QUOTA_US,
        Resource.CPU_PERIOD_US,
        Resource.CPU_SHARES,
        Resource.CPUSET_CPUS if v1 else Resource.CPUSET_CPUS_EFFECTIVE,
    )
    return {
        (cgroup, resource): world.host.read(cgroups.path(cgroup, resource))
        for cgroup in ("shop", "batch")
        for resource in files
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_quotas_inside_do_not_keep_the_limit_from_falling(
    make_world: MakeWorld, layout: str
) -> None:
    world = make_world(suppress("cfsQuota") + NO_ALARMS + APPLICATIONS, layout)
    shop = world.application("shop", 0.4)
    world.application("batch", CPUS)
    world.application("batch/job", CPUS)
    outside = Cgroups(world.host, detect(world.host))
    outside.write("batch/job", Resource.CPU_QUOTA_US, 190_000)
    world.start()
    world.run(3)
    world.host.set_demand(shop, 1.8)
    world.run(3)
    assert world.limit_cores("batch") == pytest.approx(SHARE - 1.8, abs=0.05)
    lifted = -1 if "cpu" in world.parts.cgroups.layout.v1 else 190_000
    assert world.value("batch/job", Resource.CPU_QUOTA_US) == lifted
    assert not [record for record in world.texts() if "EINVAL" in record]
    world.host.set_demand(shop, 0.1)
    world.run(8)
    assert world.value("batch/job", Resource.CPU_QUOTA_US) == 190_000
    world.host.set_demand(shop, 1.8)
    world.run(3)
    world.views.restore(dry_run=False)
    assert world.value("batch", Resource.CPU_QUOTA_US) == -1
    assert world.value("batch/job", Resource.CPU_QUOTA_US) == 190_000


UNSET = "[slo.resourceUsedThresholdWithBE]\nenable = true\n"
FEW = shape(cores_per_l3=2)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_on_two_cpus_a_quota_in_long_periods_is_the_default(
    make_world: MakeWorld, layout: str
) -> None:
    body = UNSET + NO_ALARMS + APPLICATIONS
    world = make_world(body, layout, topology=FEW)
    shop = world.application("shop", 0.2)
    world.application("batch", 2)
    world.application("batch/job", 2)
    outside = Cgroups(world.host, detect(world.host))
    outside.write("batch/job", Resource.CPU_QUOTA_US, 90_000)
    world.start()
    world.run(3)
    assert world.limit_cores("batch") == pytest.approx(1.1, abs=0.05)
    assert world.value("batch", Resource.CPU_PERIOD_US) == 1_000_000
    assert world.value("batch", Resource.CPUSET_CPUS) in ("0-1", "")
    world.host.set_demand(shop, 0.6)
    world.run(3)
    assert world.limit_cores("batch") == pytest.approx(0.7, abs=0.05)
    assert not [record for record in world.texts() if "EINVAL" in record]
    world.reload(suppress("cfsQuota") + NO_ALARMS + APPLICATIONS)
    world.run(2)
    assert world.value("batch", Resource.CPU_PERIOD_US) == 100_000
    assert world.limit_cores("batch") == pytest.approx(0.7, abs=0.05)
    world.reload(body)
    world.run(2)
    assert world.value("batch", Resource.CPU_PERIOD_US) == 1_000_000
    world.views.restore(dry_run=False)
    assert world.value("batch", Resource.CPU_PERIOD_US) == 100_000
    assert world.value("batch", Resource.CPU_QUOTA_US) == -1
    assert world.value("batch/job", Resource.CPU_QUOTA_US) == 90_000
