"""Least RBAC, on a real API server: the parts run with their own ServiceAccounts, nothing that they
ask is refused, every verb of their roles is asked for, and without it the request would be."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from koord_scheduler.daemon.access import PROCESS
from koord_scheduler.daemon.admission import SECRET_NAME
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.daemon.process import Companion
from koord_scheduler.overcommit.nodeslo import BANDWIDTH
from koord_scheduler.webhook.kinds import MUTATING, SECRETS, VALIDATING
from koord_scheduler.webhook.registration import MUTATING_NAME, VALIDATING_NAME
from koordlet.actuator.evict.api import Mode
from koordlet.actuator.evict.executor import EvictResult
from koordlet.cluster.member import Member
from koordlet.cluster.options import Options
from koordlet.cluster.reporting.metric_reporter import MetricReporter
from koordlet.cluster.reporting.own_objects import OwnObjects
from koordlet.cluster.reporting.pod_notes import PodNotes
from koordlet.kube.access import Need
from koordlet.kube.client import Client
from koordlet.kube.errors import KubeError
from koordlet.kube.events import EVERY_S
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object
from tests.actuator.evict.test_api import begun, way
from tests.cluster.reporting.rig import Rig, be_pod, make_pod, quick
from tests.cluster.reporting.test_device import INVENTORY
from tests.cluster.reporting.test_pod_notes import BAD, outcome
from tests.companion.daemon.cluster import METRICS, NODES, ON, PODS, SLOS, Here
from tests.companion.daemon.cluster import NAMESPACES as SPACES
from tests.companion.webhook.stories import OTHER_GATES
from tests.deploy.audited import audited, cluster_of, requests
from tests.deploy.least import take_away, unused
from tests.kube.worlds import until
from tests.realkube.binaries import why_not
from tests.realkube.control_plane import ControlPlane, free_ports
from tools.rbac import ACCOUNTS, NAMESPACE, Account

__all__ = ["quick"]
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.usefixtures("quick"),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "a control plane can run here"),
]
JOBS = "jobs"
HERE = tuple(each for each in ACCOUNTS if each.name in ("koordlet", "koord-manager"))
"""Those of the scheduler and the descheduler are in `test_least_roles`."""
STORY = frozenset(
    (
        *("nodemetric", "nodeslo", "noderesource"),
        *("webhook", "webhook-registration"),
    )
)
"""Parts of the manager that are played here: not those of quotas and recommendations."""
PROFILES = Kind(
    "config.koordinator.sh",
    "v1alpha1",
    "ClusterColocationProfile",
    "clustercolocationprofiles",
    False,
    Object,
)
BY_KUBELET = frozenset({("get", "", "nodes/configz"), ("get", "", "nodes/pods")})
"""Asked of kubelet, which asks the API server whether koordlet may. There is no kubelet here;
tests/cluster/whole has one."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with audited(tmp_path, tuple(each.name for each in HERE)) as made:
        yield made


async def _koordlet(plane: ControlPlane, admin: Client) -> None:
    """All that a node does in a cluster."""
    rig = Rig("least-node")
    name = rig.node.name
    here = Here(plane.admin, admin, NAMESPACE)
    here.name = name
    await here.node(cpu="8", memory="16Gi")
    await admin.create(SPACES, {"metadata": {"name": JOBS}})
    await here.put(METRICS, name, {"spec": {}})
    await here.put(SLOS, name, {"spec": {}})
    uid = await make_pod(admin, "be", JOBS, name)
    notes, metric, objects = PodNotes(rig.lent), MetricReporter(rig.lent), OwnObjects(rig.lent)
    rig.inventory = INVENTORY
    rig.state.all = (be_pod(uid, "be", JOBS, faults=BAD),)
    rig.use(10, 2.0)
    us = cluster_of(plane, "koordlet")
    assert us.token is not None
    kubeconfig = plane.kubeconfig_of("koordlet", us.token.text.decode())
    options = Options(str(kubeconfig), name, kubelet=False)
    member = Member(options, rig.around, (notes, metric, objects))
    task = asyncio.create_task(member.run())
    try:
        await rig.passes(lambda: notes.written >= 1 and metric.written >= 1)
        await rig.passes(lambda: objects.written >= 2)
        # What was made is changed later.
        rig.inventory = type(INVENTORY)()
        await here.node(labels={"node.koordinator.sh/enable-numa-reservation": "true"})
        await rig.passes(lambda: objects.written >= 4)
        # The same event twice is one that is counted.
        notes.heard(outcome(EvictResult.EVICTED, uid, "be", "SIGTERM", namespace=JOBS))
        await _until_made(plane, "koordlet", "create", "events")
        await asyncio.sleep(EVERY_S)
        notes.heard(outcome(EvictResult.EVICTED, uid, "be", "SIGTERM", namespace=JOBS))
        await _until_made(plane, "koordlet", "patch", "events")
        async with Client(us) as client:
            progress = way(client, Mode.ONLY_API).begin(begun(uid, namespace=JOBS))
            assert not isinstance(progress, str)
            await until(lambda: progress.done)
            assert progress.error == ""
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _until_made(
    plane: ControlPlane, account: str, verb: str, resource: str, namespace: str = ""
) -> None:
    """The account has made such a request."""

    for _ in range(600):
        made = requests(plane)
        if any(
            (each.account, each.verb, each.resource) == (account, verb, resource)
            and namespace in ("", each.namespace)
            for each in made
        ):
            return
        await asyncio.sleep(0.1)
    of_it = sorted(each for each in made if (each.account, each.resource) == (account, resource))
    raise AssertionError(f"{account} never asks to {verb} {resource} in {namespace!r}: {of_it}")


@contextlib.asynccontextmanager
async def _leading(plane: ControlPlane, here: Here) -> AsyncIterator[Companion]:
    (port,) = free_ports(1)
    extra = {
        "webhook_addr": f"127.0.0.1:{port}",
        "webhook_url": f"https://127.0.0.1:{port}",
        "colocation_profile_reconcile_by_default": True,
        "feature_gates": f"{OTHER_GATES},MultiQuotaTree=true,EnablePodEnhancedValidator=true",
    }
    parts = tuple(part for part in PARTS if part.name in STORY)
    made = Companion(cluster_of(plane, "koord-manager"), here.options(extra=extra), parts)
    task = asyncio.create_task(made.run())
    try:

        def leads() -> bool:
            if task.done():
                task.result()
            return made.leads() and not made.context.watches.unsynced()

        await until(leads)
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _manager(plane: ControlPlane, admin: Client) -> None:
    """All that the manager does, with every part on."""
    here = Here(plane.admin, admin, NAMESPACE)
    # A pod that waits for a node, under a profile that is made after it.
    await admin.create(SPACES, {"metadata": {"name": "waiting", "labels": {"colocation": "on"}}})
    body = {
        "metadata": {"name": "waits", "labels": {"colocation": "on"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    await admin.create(PODS, {"apiVersion": "v1", "kind": "Pod", **body}, "waiting")
    profile = {
        "metadata": {"name": "batch"},
        "spec": {
            "namespaceSelector": {"matchLabels": {"colocation": "on"}},
            "selector": {"matchLabels": {"colocation": "on"}},
            "labels": {"given": "late"},
        },
    }
    head = {"apiVersion": PROFILES.api_version, "kind": PROFILES.name}
    await admin.create(PROFILES, {**head, **profile})
    await here.node()
    await here.configure(ON)
    async with _leading(plane, here) as running:
        await here.until(SLOS, lambda _: True)
        await here.until(METRICS, lambda _: True)
        await here.report()
        await here.until(NODES, lambda node: "kubernetes.io/batch-cpu" in json.dumps(node.status))

        # What is wrong with the ConfigMap and with a node is told, and counted when it comes back.
        bad = {BANDWIDTH: "much"}
        for interval_s, verb in ((61, "create"), (62, "patch")):
            changed = {**ON, "metricReportIntervalSeconds": interval_s}
            await here.configure(changed, cpu_burst_config="{")
            await here.node(annotations=bad)
            for namespace in (NAMESPACE, "default"):
                await _until_made(plane, "koord-manager", verb, "events", namespace)
            await here.configure(changed, cpu_burst_config="{}")
            await here.node(annotations={BANDWIDTH: None})
            await here.until(NODES, lambda node: BANDWIDTH not in node.metadata.annotations)

        # A namespace that the watch has not shown yet is asked for.
        world = next(each for part, each in running.controllers if part.name == "webhook")
        with contextlib.suppress(KubeError):
            await world._world.namespace_labels("nobody")  # type: ignore[attr-defined]
        await world._world.pod("waiting", "waits")  # type: ignore[attr-defined]

        # Somebody takes the certificate away and changes the registration.
        await admin.patch(SECRETS, SECRET_NAME, {"data": {"tls.crt": None}}, NAMESPACE)
        for kind, name in ((MUTATING, MUTATING_NAME), (VALIDATING, VALIDATING_NAME)):
            await admin.patch(kind, name, {"webhooks": []})
            await _until_made(plane, "koord-manager", "patch", kind.plural)
        await _until_made(plane, "koord-manager", "update", "secrets")

        # What the node had goes with it.
        await admin.delete(NODES, here.name)
        await here.until_gone(METRICS)
        await here.until_gone(SLOS)


def test_everything_is_needed_and_nothing_is_missing(plane: ControlPlane) -> None:
    async def play() -> None:
        async with Client(plane.admin, per_second=1e6, burst=1000) as admin:
            await _koordlet(plane, admin)
            await _manager(plane, admin)

    asyncio.run(play())
    made = requests(plane)
    assert not {each for each in made if each.code == 403}
    for account in HERE:
        assert not unused(made, account, _played(account), BY_KUBELET)
        asyncio.run(take_away(plane, made, account, _played(account), BY_KUBELET))


def _played(account: Account) -> tuple[Need, ...]:
    """Its needs, of the manager those of the parts above."""
    if account.name == "koordlet":
        return account.needs
    return (*PROCESS, *(need for part in PARTS if part.name in STORY for need in part.needs))
