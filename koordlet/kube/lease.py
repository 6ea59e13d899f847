"""One leader of several, by a Lease of the API server, fenced by time.

Whoever holds the lease may write until one deadline of a request before it would run out: what was
sent in time has then ended before somebody else may begin. No clock of another machine is trusted:
a lease has run out when nobody renewed it while *we* watched for all of its duration.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from koordlet.kube.budget import Priority
from koordlet.kube.client import Client
from koordlet.kube.errors import CredentialsError, KubeError, RefusedError
from koordlet.kube.kinds import Kind
from koordlet.kube.objects import Object, Shape
from koordlet.protocol.objects.times import micro_instant

DURATION_S = 15
RENEW_S = 2.0
DEADLINE_S = 5.0
"""Of a request of the holder."""


class LeaseSpec(Shape, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = DURATION_S
    acquire_time: str = ""
    renew_time: str = ""
    lease_transitions: int = 0


class Lease(Object, frozen=True):
    spec: LeaseSpec = LeaseSpec()


LEASES = Kind("coordination.k8s.io", "v1", "Lease", "leases", True, Lease)


class Leadership:
    """``identity`` must differ between processes, restarts included. ``on_change`` hears when it
    begins and ends. ``deadline_s`` must be no less than that of the requests which it fences."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        on_change: Callable[[bool], None],
        *,
        duration_s: int = DURATION_S,
        renew_s: float = RENEW_S,
        deadline_s: float = DEADLINE_S,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.identity = identity
        self.holder = ""
        """Who has it, as far as is known."""
        self.error = ""
        self._client = client
        self._namespace, self._name = namespace, name
        self._on_change = on_change
        self._duration_s, self._renew_s, self._deadline_s = duration_s, renew_s, deadline_s
        self._clock, self._wall, self._draw = clock, wall, draw
        self._valid_until_s = float("-inf")
        self._told = False
        self._seen = ""
        """Version of the lease that somebody else had when we last looked."""
        self._seen_s = 0.0

    def held(self) -> bool:
        """Whether a request that is sent now ends while we still lead."""
        return self._clock() < self._valid_until_s - self._deadline_s

    async def run(self) -> None:
        """Until it is cancelled; then the lease is given back, if the server can be asked."""
        try:
            while True:
                await self._turn()
                await asyncio.sleep(self._renew_s * (0.9 + 0.2 * self._draw()))
        finally:
            await self._give_back()

    async def _turn(self) -> None:
        begun_s = self._clock()
        try:
            async with asyncio.timeout(self._deadline_s):
                got = await self._try()
            self.error = ""
        except (KubeError, CredentialsError, TimeoutError) as error:
            self.error = str(error) or "no answer in time"
            got = False
        if got:
            self._valid_until_s = begun_s + self._duration_s
        self._tell()
        if self._told and not got:
            # Told again at the instant it ends, not at the next turn.
            left_s = self._valid_until_s - self._deadline_s - self._clock()
            asyncio.get_running_loop().call_later(max(0.0, left_s) + 0.001, self._tell)

    def _tell(self) -> None:
        now = self.held()
        if now != self._told:
            self._told = now
            self._on_change(now)

    async def _try(self) -> bool:
        """Whether it is ours now."""
        try:
            lease = await self._client.get(
                LEASES, self._name, self._namespace, priority=Priority.LEASE
            )
        except RefusedError as error:
            if not error.missing:
                raise
            return await self._make()
        self.holder = lease.spec.holder_identity
        if self.holder not in ("", self.identity) and not self._ran_out(lease):
            self._valid_until_s = float("-inf")
            return False
        changed = self.holder != self.identity
        spec = self._spec(lease.spec.lease_transitions + changed, lease if not changed else None)
        body = self._body(spec, lease.metadata.resource_version)
        try:
            await self._client.replace(
                LEASES, self._name, body, self._namespace, priority=Priority.LEASE
            )
        except RefusedError as error:
            if error.conflict:
                return False
            raise
        self.holder = self.identity
        return True

    async def _make(self) -> bool:
        try:
            body = self._body(self._spec(0, None))
            await self._client.create(LEASES, body, self._namespace, priority=Priority.LEASE)
        except RefusedError as error:
            if error.exists:
                return False
            raise
        self.holder = self.identity
        return True

    def _ran_out(self, lease: Lease) -> bool:
        now, version = self._clock(), lease.metadata.resource_version
        if version != self._seen:
            self._seen, self._seen_s = version, now
        return now - self._seen_s >= lease.spec.lease_duration_seconds

    def _spec(self, transitions: int, ours: Lease | None) -> dict[str, Any]:
        now = micro_instant(self._wall())
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self._duration_s,
            "acquireTime": ours.spec.acquire_time if ours is not None else now,
            "renewTime": now,
            "leaseTransitions": transitions,
        }

    def _body(self, spec: dict[str, Any], version: str = "") -> dict[str, Any]:
        meta = {"name": self._name, "namespace": self._namespace}
        if version:
            meta["resourceVersion"] = version
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.name,
            "metadata": meta,
            "spec": spec,
        }

    async def _give_back(self) -> None:
        """So that the next leader need not wait for it to run out."""
        held = self.held()
        self._valid_until_s = float("-inf")
        self._tell()
        if not held:
            return
        try:
            async with asyncio.timeout(self._deadline_s):
                lease = await self._client.get(LEASES, self._name, self._namespace)
                if lease.spec.holder_identity != self.identity:
                    return
                spec = {**self._spec(lease.spec.lease_transitions, lease), "holderIdentity": ""}
                spec["leaseDurationSeconds"] = 1
                body = self._body(spec, lease.metadata.resource_version)
                await self._client.replace(
                    LEASES, self._name, body, self._namespace, priority=Priority.LEASE
                )
        except (KubeError, CredentialsError, TimeoutError) as error:
            self.error = str(error) or "no answer in time"
