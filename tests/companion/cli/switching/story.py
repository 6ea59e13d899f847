"""A switch on the fake API server, which can be killed after each write."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import yaml

from koord_scheduler.cli.switching.look import Look, look
from koord_scheduler.cli.switching.names import APPS, NAMESPACE
from koord_scheduler.cli.switching.objects import DEPLOY, Ours, read_ours
from koord_scheduler.cli.switching.plan import Plan, wanted
from koord_scheduler.cli.switching.steps import Step, carry_out
from koord_scheduler.kube.trees import Ref
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from tests.companion.cli.switching import reference
from tests.companion.cli.switching.controllers import Kubernetes
from tests.fakekube import serving

Tree = dict[str, Any]
ROLES = tuple(APPS.values())
OURS_FILES = read_ours("")


class KilledError(Exception):
    """The command ended in the middle."""


class Mortal(Client):
    """Ends before the write after ``left`` others."""

    left = 1_000_000

    async def _request(self, method: str, path: str, **rest: Any) -> bytearray:
        if method != "GET":
            if not self.left:
                raise KilledError
            self.left -= 1
        return await super()._request(method, path, **rest)


class Story(NamedTuple):
    kube: Kubernetes
    client: Mortal
    ours: Ours = OURS_FILES

    async def read(self, roles: tuple[str, ...] = ROLES, others: tuple[Ref, ...] = ()) -> Look:
        self.kube.round()
        return await look(self.client, roles, others)

    async def plan(
        self, make: Callable[..., Plan], roles: tuple[str, ...] = ROLES, image: str = ""
    ) -> Plan:
        seen = await self.read()
        return make(await self.read(ROLES, wanted(seen, self.ours)), self.ours, roles, image)

    async def go(
        self,
        make: Callable[..., Plan],
        roles: tuple[str, ...] = ROLES,
        writes: int = 1_000_000,
        image: str = "",
    ) -> list[str]:
        """What was done. ``writes``: how many before it is killed."""
        self.client.left = writes
        done: list[str] = []

        def tell(step: Step, missing: str) -> None:
            if not missing:
                done.append(f"{step.role} {step.verb} {step.what}")

        made = await self.plan(make, roles, image)
        assert not made.problems, made.problems
        clock = iter(range(100_000))
        await carry_out(
            self.client, made.steps, self.read, tell, every_s=0.0, clock=lambda: next(clock) * 5.0
        )
        return done

    def world(self) -> dict[str, Tree]:
        """Everything but pods and what follows them, without what versions and times change."""
        found = {}
        for resource, each in self.kube.fake.store._objects.items():
            if resource.plural in ("pods", "leases", "endpointslices", "customresourcedefinitions"):
                continue
            for (space, name), tree in each.items():
                meta = {
                    k: v
                    for k, v in tree["metadata"].items()
                    if k not in ("resourceVersion", "generation", "uid", "creationTimestamp")
                    and v != {}
                }
                rest = {k: v for k, v in tree.items() if k not in ("metadata", "status")}
                found[f"{resource.plural}/{space}/{name}"] = json.loads(
                    json.dumps({"metadata": meta, **rest})
                )
        return found


@contextlib.asynccontextmanager
async def story(*, nodes: int = 6, **options: Any) -> AsyncIterator[Story]:
    definitions = [yaml.safe_load(path.read_text()) for path in sorted(DEPLOY.glob("crds/*.yaml"))]
    async with serving(*definitions) as fake:
        kube = Kubernetes(fake)
        kube.put("namespaces", {"metadata": {"name": NAMESPACE}})
        for each in definitions:
            kube.put("customresourcedefinitions", each)
        for number in range(nodes):
            kube.put("nodes", {"metadata": {"name": f"n{number}", "labels": {"zone": "a"}}})
        for each in reference.installation(**options):
            kube.put(fake_plural(each["kind"]), each)
        kube.settle()
        kube.watched = frozenset(APPS)
        kube.faults.clear()
        client = Mortal(Cluster(fake.url, "the test"), per_second=1e6, burst=100_000)
        async with client:
            yield Story(kube, client)


def fake_plural(kind: str) -> str:
    return f"{kind.lower()}s"


def told(story_of: Callable[[Story], Any], **options: Any) -> None:
    async def play() -> None:
        async with story(**options) as made:
            await story_of(made)

    asyncio.run(play())
