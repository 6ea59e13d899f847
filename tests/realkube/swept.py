"""Removal of what a test leaves on an API server that others use after it."""

from __future__ import annotations

import contextlib
import time
import urllib.error
from collections.abc import Iterator
from typing import Any

from tests.realkube.control_plane import ControlPlane

CORE = (
    "/api/v1/pods",
    "/api/v1/nodes",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/batch/v1/jobs",
    "/apis/policy/v1/poddisruptionbudgets",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/coordination.k8s.io/v1/leases",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
)
"""Collections over all namespaces. Namespaces stay: no controller here ends them."""
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_GONE_WITHIN_S = 30.0


@contextlib.contextmanager
def swept(plane: ControlPlane) -> Iterator[None]:
    """Delete at the end what was not there at the beginning, webhooks first: one whose server has
    ended would refuse the rest."""
    before = set(_objects(plane))
    try:
        yield
    finally:
        for path in sorted(_new_collections(set(_objects(plane)), before), key=_webhooks_first):
            _delete(plane, path)  # thousands of pods in one request
        until_s = time.monotonic() + _GONE_WITHIN_S
        while left := sorted(set(_objects(plane)) - before, key=_webhooks_first):
            assert time.monotonic() < until_s, f"these cannot be deleted: {left[:5]}"
            for path in left:
                _delete(plane, path)


def _webhooks_first(path: str) -> bool:
    return "webhook" not in path


def _new_collections(objects: set[str], before: set[str]) -> set[str]:
    """Return the paths of those, of a namespace each, that had nothing in them."""
    return {p.rpartition("/")[0] for p in objects} - {p.rpartition("/")[0] for p in before}


def _objects(plane: ControlPlane) -> Iterator[str]:
    for path in (*CORE, *_custom(plane)):
        root, _, plural = path.rpartition("/")
        for item in (_listed(plane, path) or {"items": ()})["items"]:
            meta = item["metadata"]
            space = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
            yield f"{root}{space}/{plural}/{meta['name']}"


def _listed(plane: ControlPlane, path: str) -> Any:
    """List a collection; one whose definition is new answers 429 until its storage is there."""
    until_s = time.monotonic() + _GONE_WITHIN_S
    while True:
        try:
            return plane.get(path)
        except urllib.error.HTTPError as error:
            if error.code != 429 or time.monotonic() > until_s:
                raise
            time.sleep(0.2)


def _custom(plane: ControlPlane) -> Iterator[str]:
    for each in plane.get(_DEFINITIONS)["items"]:
        spec: dict[str, Any] = each["spec"]
        version = next(v["name"] for v in spec["versions"] if v["storage"])
        yield f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def _delete(plane: ControlPlane, path: str) -> None:
    """Nobody waits for a kubelet or for a controller that would take its finalizer away."""
    with contextlib.suppress(OSError):
        options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        plane.send("DELETE", path, options, within_s=120)
        plane.send("PATCH", path, {"metadata": {"finalizers": None}})
