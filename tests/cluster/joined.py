"""A daemon on the fake kernel that is a member of a fake cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import yaml

from koordlet.admin.cluster import ClusterObjectView
from koordlet.cluster.member import Member
from koordlet.daemon.membership import Membership
from koordlet.decision.snapshot import Pod
from tests.daemon.world import NO_ALARMS, World
from tests.fakekube import FakeKube
from tests.kube.worlds import until

NODE = "node-1"
CRDS = Path(__file__).parents[2] / "deploy" / "crds"
Tree = dict[str, Any]


def definitions() -> list[Tree]:
    return [yaml.safe_load(path.read_text()) for path in sorted(CRDS.glob("*.yaml"))]


def kubeconfig(directory: Path, url: str, **cluster: Any) -> Path:
    path = directory / "kubeconfig"
    tree = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "us"}}],
        "clusters": [{"name": "test", "cluster": {"server": url, **cluster}}],
        "users": [{"name": "us", "user": {}}],
    }
    path.write_text(json.dumps(tree))
    return path


def node(labels: Tree | None = None, annotations: Tree | None = None, **status: Any) -> Tree:
    amounts = {"cpu": "4", "memory": "8Gi", "kubernetes.io/batch-cpu": "2500"}
    return {
        "metadata": {"name": NODE, "labels": labels or {}, "annotations": annotations or {}},
        "status": {
            "capacity": {"cpu": "4", "memory": "8Gi"},
            "allocatable": amounts,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            **status,
        },
    }


def slo(**spec: Any) -> Tree:
    return {"metadata": {"name": NODE}, "spec": spec}


def pod(
    name: str,
    uid: str = "",
    *,
    labels: Tree | None = None,
    annotations: Tree | None = None,
    containers: tuple[Tree, ...] = (),
    ids: Tree | None = None,
    on: str = NODE,
    **status: Any,
) -> Tree:
    """``ids``: container name -> id at the runtime. ``uid`` is for callers that need to know it."""
    meta: Tree = {"name": name, "namespace": "default"}
    meta |= {"labels": labels or {}, "annotations": annotations or {}}
    if uid:
        meta["uid"] = uid
    return {
        "metadata": meta,
        "spec": {"nodeName": on, "containers": list(containers)},
        "status": {
            "phase": "Running",
            "qosClass": "Burstable",
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{each}"}
                for name, each in (ids or {}).items()
            ],
            **status,
        },
    }


def joined_by(world: World) -> Membership:
    made = Membership(world.engine, world._change)
    world.views.joined = made
    return made


class Joined:
    """``world`` is the machine, ``kube`` the server, ``membership`` what joins the two."""

    def __init__(self, world: World, kube: FakeKube) -> None:
        self.world, self.kube = world, kube
        self.membership = joined_by(world)

    @property
    def member(self) -> Member:
        assert self.membership.member is not None
        return self.membership.member

    async def sees(self, holds: Callable[[], bool]) -> None:
        """Returns when it is so, with all changes answered as the daemon does."""

        def looks() -> bool:
            self.world.host.advance(0.005)  # the kernel tells of new cgroups meanwhile
            self.world.answer()
            return holds()

        await until(looks)

    def pod(self, uid: str) -> Pod | None:
        return next((pod for pod in self.world.parts.state.pods() if pod.uid == uid), None)

    def object(self, kind: str) -> ClusterObjectView:
        objects = self.world.views.cluster().objects
        none = ClusterObjectView(kind=kind, name="", state="not shown")
        return next((each for each in objects if each.kind == kind), none)

    def put(self, plural: str, tree: Tree) -> Tree:
        """Makes it, its status included."""
        resource, meta = self.kube.resource(plural), tree["metadata"]
        namespace = meta.get("namespace", "")
        made = self.kube.store.create(resource, namespace, tree)
        if "status" in tree and resource.status:
            made = self.change(plural, meta["name"], {"status": tree["status"]}, namespace)
        return made

    def change(self, plural: str, name: str, patch: Tree, namespace: str = "") -> Tree:
        resource = self.kube.resource(plural)
        where = "status" if "status" in patch else ""
        return self.kube.store.merge(resource, (namespace, name), patch, where)

    def delete(self, plural: str, name: str, namespace: str = "") -> None:
        self.kube.store.delete(self.kube.resource(plural), (namespace, name), {})


def config(kubeconfig: Path, more: str = "") -> str:
    return f'[cluster]\napi = "{kubeconfig}"\n{more}\n{NO_ALARMS}'


@contextlib.asynccontextmanager
async def running(world: World, kube: FakeKube) -> AsyncIterator[Joined]:
    """``world`` has its configuration and is not started yet."""
    world.start()
    joined = Joined(world, kube)
    joined.membership.begin()
    task = asyncio.create_task(joined.membership.run())
    try:
        yield joined
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
