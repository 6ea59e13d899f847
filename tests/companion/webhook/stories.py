"""A companion that admits pods of a server of the tests."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

from koord_scheduler.daemon.controller import Options
from koord_scheduler.daemon.parts import PARTS
from koord_scheduler.daemon.process import Companion
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.errors import RefusedError
from koordlet.kube.kinds import Kind

NAMESPACE = "koordinator-system"
SERVER, KEEPER = DEFAULT = "webhook", "webhook-registration"
OTHER_GATES = (
    "NodeMutatingWebhook=true,NodeValidatingWebhook=true,ConfigMapValidatingWebhook=true,"
    "BindingAdmissionWebhook=true"
)
WITHOUT_QUOTAS = "ElasticMutatingWebhook=false,ElasticValidatingWebhook=false"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def options(port: int, gates: str = WITHOUT_QUOTAS, **extra: Any) -> Options:
    return Options(
        elect=False,
        metrics_address="0",
        health_address="0",
        requests_per_s=1000.0,
        requests_burst=1000,
        extra={
            "feature_gates": gates,
            "webhook_addr": f"127.0.0.1:{port}",
            "webhook_url": f"https://127.0.0.1:{port}",
            **extra,
        },
    )


@contextlib.asynccontextmanager
async def companion(cluster: Cluster, chosen: Options, *names: str) -> AsyncIterator[Companion]:
    """With the server and the keeper, unless others are named."""
    parts = [part for part in PARTS if part.name in (names or DEFAULT)]
    made = Companion(cluster, chosen, parts)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def ensure(client: Client, kind: Kind[Any], body: Any, namespace: str = "") -> None:
    try:
        await client.create(kind, body, namespace)
    except RefusedError as error:
        if not error.exists:
            raise


PRIORITIES = {"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000}


def priority_class(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "value": PRIORITIES[name],
        "preemptionPolicy": "PreemptLowerPriority",
    }


def pod(name: str, labels: dict[str, str] | None = None, **amounts: str) -> dict[str, Any]:
    """With a container ``main`` that requests ``amounts`` and is limited to them."""
    resources = {"requests": amounts, "limits": amounts} if amounts else {}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "main", "image": "none", "resources": resources}]},
    }
