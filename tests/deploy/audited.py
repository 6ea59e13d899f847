"""A real API server that writes down what each account asks of it, and these accounts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from koordlet.kube.credentials import Cluster, Material
from tests.deploy.objects import DEPLOY
from tests.fakekube.access import Request
from tests.realkube import control_plane
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl
from tools.rbac import NAMESPACE

PREFIX = f"system:serviceaccount:{NAMESPACE}:"


@contextlib.contextmanager
def audited(work: Path, accounts: tuple[str, ...]) -> Iterator[ControlPlane]:
    """With everything of ``deploy/`` applied."""
    kept = dict(control_plane._AUDIT)
    users = [PREFIX + each for each in accounts]
    rules = [{"level": "Metadata", "users": users}, {"level": "None"}]
    control_plane._AUDIT.update(rules=rules, omitStages=["RequestReceived", "Panic"])
    plane = ControlPlane(work)
    try:
        plane.start()
        kubectl(plane, "apply", "--server-side", "-f", str(DEPLOY / "crds"))
        kubectl(plane, "wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        kubectl(plane, "apply", "--server-side", "-k", str(DEPLOY))
        yield plane
    finally:
        plane.end()
        control_plane._AUDIT.clear()
        control_plane._AUDIT.update(kept)


def cluster_of(plane: ControlPlane, account: str) -> Cluster:
    """As a pod of that ServiceAccount would be, with a token of an hour."""
    token = kubectl(plane, "-n", NAMESPACE, "create", "token", account, "--duration=1h").strip()
    text = Material(text=token.encode())
    return Cluster(plane.url, "the test", ca=Material(str(plane.ca)), token=text)


def requests(plane: ControlPlane) -> set[Request]:
    """All so far, each once."""
    found = set()
    for line in (plane.work / "audit.log").read_text().splitlines():
        told = json.loads(line)
        user = told["user"]["username"]
        target = told.get("objectRef")
        if not user.startswith(PREFIX) or target is None:
            continue
        parts = (target.get("resource", ""), target.get("subresource", ""))
        found.add(
            Request(
                user.removeprefix(PREFIX),
                told["verb"],
                target.get("apiGroup", ""),
                "/".join(filter(None, parts)),
                target.get("namespace", ""),
                target.get("name", ""),
                told.get("responseStatus", {}).get("code", 0),
            )
        )
    return found
