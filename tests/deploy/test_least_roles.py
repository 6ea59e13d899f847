"""The roles of the scheduler and the descheduler are enough and are least: nothing that they ask is
refused and everything that they may ask they do, on the fake server, which has all kinds, and on a
real one, with a token of the ServiceAccount."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from koord_scheduler.daemon.descheduler.part import Descheduler
from koord_scheduler.daemon.process import Companion
from koord_scheduler.kube.gang_shapes import CORE_POD_GROUPS
from koord_scheduler.kube.migration_shapes import JOBS
from koordlet.kube.credentials import Cluster
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.companion.daemon.cluster import METRICS, PODS, Whole, here_on
from tests.companion.running import definitions
from tests.companion.scheduling.rig import SPACE, Rig, scheduler_of, scheduling
from tests.companion.scheduling.test_explanations import ask
from tests.companion.scheduling.test_reservations import RESERVATIONS, reserve, until_phase
from tests.deploy.audited import audited, cluster_of, requests
from tests.deploy.least import Verb, take_away, unused
from tests.deploy.objects import DEPLOY, loose_definition
from tests.fakekube import serving
from tests.fakekube.access import Request
from tests.realkube.binaries import why_not
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl
from tools.rbac import ACCOUNTS, Account

SCHEDULER, DESCHEDULER = (
    next(each for each in ACCOUNTS if each.name == name)
    for name in ("koord-scheduler", "koord-descheduler")
)
WITHIN_S = 60.0
NOT_ON_OURS: frozenset[Verb] = frozenset(
    {
        # A server has this alpha kind where somebody asks for it.
        ("watch", CORE_POD_GROUPS.group, "podgroups"),
        # Our definition keeps the status with the object, others keep it apart.
        ("patch", "scheduling.sigs.k8s.io", "podgroups/status"),
        # No Job controller is needed for the others.
        ("get", "batch", "jobs"),
        # Kruise is not installed here.
        ("get", "apps.kruise.io", "*/scale"),
    }
)
PLAYED_ELSEWHERE: frozenset[Verb] = frozenset(
    {
        # A drain that fails opens its node again: told by tests/companion/balance, where the fake
        # server refuses what the role does not allow.
        ("get", "", "nodes"),
        # A status that somebody wrote meanwhile is read again: tests/companion/kube.
        ("get", "scheduling.sigs.k8s.io", "podgroups"),
        ("get", "scheduling.koordinator.sh", "clusternetworktopologies"),
    }
)
GROUPS, QUOTAS = (
    Kind("scheduling.sigs.k8s.io", "v1alpha1", name, plural, True, Whole)
    for name, plural in (("PodGroup", "podgroups"), ("ElasticQuota", "elasticquotas"))
)
TOPOLOGY: Kind[Whole] = Kind(
    "scheduling.koordinator.sh",
    "v1alpha1",
    "ClusterNetworkTopology",
    "clusternetworktopologies",
    False,
    Whole,
)
CLASSES: Kind[Object] = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, Object
)
OWNERS: tuple[tuple[str, str, str], ...] = (
    ("apps/v1", "ReplicaSet", "replicasets"),
    ("apps/v1", "Deployment", "deployments"),
    ("v1", "ReplicationController", "replicationcontrollers"),
    ("apps.kruise.io/v1alpha1", "CloneSet", "clonesets"),
    ("batch/v1", "Job", "jobs"),
)


@dataclass(frozen=True)
class Server:
    """``us``: the account, on a real server; the fake one makes it of the parts."""

    admin: Cluster
    asked: Callable[[], set[Request]]
    us: Cluster | None = None


Story = Callable[[Rig, Server, Path], Awaitable[None]]


async def _until_asked(server: Server, account: Account, unplayed: frozenset[Verb]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while missing := unused(
        await asyncio.to_thread(server.asked), account, account.needs, unplayed
    ):
        assert time.monotonic() < until_s, "\n".join(missing)
        await asyncio.sleep(0.2)


def _at_once(made: Companion) -> None:
    """An event that is told again is counted without a wait."""
    for role in made.roles.values():
        role.events._every_s = 0.1


async def _make(rig: Rig, kind: Kind[Any], name: str, space: str = "", **body: Any) -> Whole:
    head = {"apiVersion": kind.api_version, "kind": kind.name}
    meta = {"name": name, **body.pop("metadata", {})}
    made: Whole = await rig.client.create(kind, {**head, "metadata": meta, **body}, space)
    return made


async def _scheduler(rig: Rig, server: Server, _: Path) -> None:
    await rig.node("a", cpu="4", labels={"block": "x"})
    await _make(rig, CLASSES, "high", value=1000)
    layers = [{"topologyLayer": "block", "labelKey": ["block"]}]
    await _make(rig, TOPOLOGY, "default", spec={"networkTopologySpec": layers})
    await _make(rig, GROUPS, "g", SPACE, spec={"minMember": 2})
    await _make(rig, QUOTAS, "team", SPACE, spec={"max": {"cpu": "9"}, "min": {"cpu": "1"}})
    # One that is over on a node that is gone.
    await reserve(rig, "old", "1")
    over = {"status": {"phase": "Succeeded", "nodeName": "gone"}}
    await rig.client.patch(RESERVATIONS, "old", over, subresource="status")
    async with scheduling(rig.here, us=server.us) as made:
        _at_once(made)
        await rig.pod("low", cpu="2", terminationGracePeriodSeconds=0)
        await rig.until_bound("low")
        label = {"quota.scheduling.koordinator.sh/name": "team"}
        copied = {"scheduling.koordinator.sh/resource-status": '{"cpuset":"0-3"}'}
        await rig.pod("copied", cpu="500m", annotations=copied, labels=label)
        await rig.until_bound("copied")
        await reserve(rig, "room", "500m", annotations=copied)
        await until_phase(rig, "room", "Available")
        await rig.pod("high", cpu="2500m", priority=1000, priorityClassName="high")
        await rig.until_bound("high")
        assert "low" not in await rig.nodes_of()
        await rig.pod("big", cpu="9")
        await rig.until_said("big", "Insufficient cpu")
        await ask(rig, "why", questionObjectKey=f"{SPACE}/big")
        await ask(rig, "short", questionObjectKey=f"{SPACE}/big", ttl="1ms")
        await rig.client.patch(PODS, "big", {"metadata": {"annotations": {"x": "1"}}}, SPACE)
        # An answer to a binding that was lost, and a watch that shows nothing.
        scheduler = scheduler_of(made)
        binder = scheduler.bindings._binder
        await binder._settled(scheduler.waiting[f"{SPACE}/big"], "a", "the test")
        await _until_asked(server, SCHEDULER, _unplayed(server))


async def _resident(rig: Rig, name: str, owner: dict[str, Any], policy: str = "") -> None:
    meta = {
        "name": name,
        "namespace": SPACE,
        "labels": {"koordinator.sh/evict-policy": policy} if policy else {},
        "ownerReferences": [{**owner, "controller": True}],
    }
    resources = {"requests": {"cpu": "2"}}
    spec = {
        "nodeName": "n1",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": resources}],
    }
    head = {"apiVersion": "v1", "kind": "Pod"}
    await rig.client.create(PODS, {**head, "metadata": meta, "spec": spec}, SPACE)
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await rig.client.patch(PODS, name, {"status": ready}, SPACE, subresource="status")


async def _owner(rig: Rig, number: int = 0, called: str = "web") -> dict[str, Any]:
    """A workload of 40 replicas."""
    version, name, plural = OWNERS[number]
    group, _, short = version.rpartition("/")
    labels = {"app": plural}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    selector = labels if not group else {"matchLabels": labels}
    spec = {"replicas": 40, "selector": selector, "template": template}
    kind: Kind[Whole] = Kind(group, short, name, plural, True, Whole)
    made = await _make(rig, kind, called, SPACE, spec=spec)
    return {"apiVersion": version, "kind": name, "name": called, "uid": made.metadata.uid}


async def _job(rig: Rig, name: str, of: str, mode: str, **spec: Any) -> None:
    ref = {"namespace": SPACE, "name": of}
    await _make(rig, JOBS, name, spec={"podRef": ref, "mode": mode, "ttl": "5m", **spec})


def _configuration(work: Path) -> str:
    profile = {
        "name": "p",
        "plugins": {"balance": {"enabled": [{"name": "CustomPriority"}]}},
        "pluginConfig": [
            {
                "name": "MigrationController",
                "args": {
                    "defaultJobMode": "EvictDirectly",
                    "maxMigratingPerNode": 0,
                    "maxMigratingPerWorkload": 9,
                    "maxUnavailablePerWorkload": 9,
                    "evictQPS": 1000,
                    "objectLimiters": {"workload": {"duration": "0s"}},
                },
            },
            {
                "name": "CustomPriority",
                "args": {
                    "mode": "DrainNode",
                    "autoCordon": True,
                    "evictionOrder": [
                        {"name": level, "nodeSelector": {"matchLabels": {"level": level}}}
                        for level in ("dear", "cheap")
                    ],
                },
            },
        ],
    }
    tree = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "deschedulingInterval": "500ms",
        "profiles": [profile],
    }
    path = work / "descheduler.yaml"
    path.write_text(yaml.safe_dump(tree))
    return str(path)


async def _descheduler(rig: Rig, server: Server, work: Path) -> None:
    await rig.node("n1", cpu="30", labels={"level": "dear"})
    await rig.node("n2", cpu="30", labels={"level": "cheap"})
    await _make(rig, METRICS, "n1")
    for number in range(len(OWNERS) if server.us is None else 3):
        await _resident(rig, f"web-{number}", await _owner(rig, number))
    # Each of a workload of its own: a pod of a workload that lost one stays for a while.
    for policy in ("Delete", "SoftEviction"):
        name = policy.lower()
        await _resident(rig, name, await _owner(rig, called=name), policy)
        await _job(rig, name, name, "EvictDirectly")
    # Room that a person has made, and room that the descheduler makes.
    await reserve(rig, "made", "2")
    for name in ("given", "first"):
        await _resident(rig, name, await _owner(rig, called=name))
    ref = {"kind": "Reservation", "name": "made", "apiVersion": RESERVATIONS.api_version}
    options = {"reservationOptions": {"reservationRef": ref}}
    await _job(rig, "given", "given", "ReservationFirst", **options)
    await _job(rig, "first", "first", "ReservationFirst")
    extra = {"descheduler_config": _configuration(work)}
    async with scheduling(rig.here, roles=("descheduler",), extra=extra, us=server.us) as made:
        _at_once(made)
        controller = next(each for _, each in made.controllers)
        assert isinstance(controller, Descheduler)
        late = ("delete", JOBS.group, JOBS.plural), ("delete", JOBS.group, "reservations")
        again = ("patch", "", "events")
        await _until_asked(server, DESCHEDULER, _unplayed(server) | {*late, again})
        # The same word of the same pod once more.
        (subject, kind, reason, text), *_rest = controller.desk.context.events._known
        controller.desk.context.events.tell(subject, kind, reason, text)
        # An hour later.
        desk = controller.desk
        desk.context = replace(desk.context, wall=lambda: time.time() + 3600)
        await controller.jobs.scavenge()
        await _until_asked(server, DESCHEDULER, _unplayed(server))


def _unplayed(server: Server) -> frozenset[Verb]:
    return PLAYED_ELSEWHERE if server.us is None else PLAYED_ELSEWHERE | NOT_ON_OURS


STORIES = pytest.mark.parametrize(
    ("account", "story"),
    [(SCHEDULER, _scheduler), (DESCHEDULER, _descheduler)],
    ids=["scheduler", "descheduler"],
)


@STORIES
def test_on_a_server_that_has_every_kind(account: Account, story: Story, tmp_path: Path) -> None:
    apart = [each for each in definitions() if each["spec"]["names"]["kind"] == "PodGroup"]
    for each in apart:
        each["spec"]["versions"][0]["subresources"] = {"status": {}}
    others = [
        loose_definition(CORE_POD_GROUPS.group, CORE_POD_GROUPS.version, CORE_POD_GROUPS.name),
        loose_definition("apps.kruise.io", "v1alpha1", "CloneSet", "scale"),
        loose_definition("batch", "v1", "Job"),
    ]

    async def tell() -> None:
        async with (
            serving(*definitions(), *apart, *others) as fake,
            here_on(Cluster(fake.url, "the test")) as here,
        ):
            server = Server(here.cluster, lambda: fake.access.asked)
            await story(Rig(here, fake), server, tmp_path)
            asked = fake.access.asked
            assert not unused(asked, account, account.needs, PLAYED_ELSEWHERE)
            assert {each.account for each in fake.access.asked} == {account.name}

    asyncio.run(tell())


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with audited(tmp_path, (SCHEDULER.name, DESCHEDULER.name)) as made:
        kubectl(
            made, "apply", "--server-side", "-k", str(DEPLOY / "descheduler")
        )  # not in the whole
        yield made


@pytest.mark.cluster
@pytest.mark.skipif(bool(why_not()), reason=why_not() or "a control plane can run here")
@STORIES
def test_on_a_real_server(
    plane: ControlPlane, account: Account, story: Story, tmp_path: Path
) -> None:
    us = cluster_of(plane, account.name)

    async def tell() -> None:
        async with here_on(plane.admin) as here:
            server = Server(plane.admin, lambda: requests(plane), us)
            await story(Rig(here, None), server, tmp_path)  # type: ignore[arg-type]

    asyncio.run(tell())
    made = requests(plane)
    assert not {each for each in made if each.code == 403}
    asyncio.run(take_away(plane, made, account, account.needs, NOT_ON_OURS | PLAYED_ELSEWHERE))
