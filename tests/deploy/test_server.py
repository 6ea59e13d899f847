"""A real API server takes what is deployed, and gives the accounts what they need and no more."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.deploy.objects import DEPLOY, kustomized
from tests.kube.conftest import plane, real
from tests.realkube.binaries import program
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl
from tools.rbac import ACCOUNTS, NAMESPACE, Account

__all__ = ("plane", "real")  # fixtures

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def deployed(plane: ControlPlane) -> ControlPlane:
    kubectl(plane, "apply", "--server-side", "--validate=strict", "-k", str(DEPLOY))
    return plane


def test_a_second_time_changes_nothing(deployed: ControlPlane) -> None:
    said = kubectl(deployed, "diff", "--server-side", "-k", str(DEPLOY))
    assert said == ""


def test_all_of_it_is_there(deployed: ControlPlane) -> None:
    for each in kustomized():
        meta = each["metadata"]
        where = ("-n", meta["namespace"]) if "namespace" in meta else ()
        kubectl(deployed, "get", each["kind"], meta["name"], *where)


def test_no_field_is_unknown_or_dropped(deployed: ControlPlane) -> None:
    """Every key that we write is in what the server keeps."""
    for kind, name in (("DaemonSet", "koordlet"), ("Deployment", "koord-manager")):
        kept = json.loads(kubectl(deployed, "-n", NAMESPACE, "get", kind, name, "-o", "json"))
        ours = next(
            each
            for each in kustomized()
            if (each["kind"], each["metadata"]["name"]) == (kind, name)
        )
        _within(ours["spec"], kept["spec"], kind)


def _within(ours: object, kept: object, where: str) -> None:
    if isinstance(ours, dict):
        assert isinstance(kept, dict), where
        for key, value in ours.items():
            assert key in kept, f"{where}.{key}"
            _within(value, kept[key], f"{where}.{key}")
    elif isinstance(ours, list):
        assert isinstance(kept, list), where
        assert len(ours) == len(kept), where
        for i, (mine, theirs) in enumerate(zip(ours, kept, strict=True)):
            _within(mine, theirs, f"{where}[{i}]")
    else:
        assert ours == kept, where


def _may(plane: ControlPlane, account: str, verb: str, what: str, *where: str) -> bool:
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    asked = ("auth", "can-i", verb, what, who, *where)
    done = subprocess.run(
        [program("kubectl"), f"--kubeconfig={plane.kubeconfig}", *asked],
        capture_output=True,
        text=True,
        timeout=60,
        env={"HOME": str(plane.work), "PATH": "/usr/bin:/bin"},
    )  # it fails where it says no
    answer = done.stdout.strip()
    assert answer in ("yes", "no"), done.stderr
    return answer == "yes"


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda each: each.name)
def test_each_need_is_met(deployed: ControlPlane, account: Account) -> None:
    for need in account.needs:
        resource, _, sub = need.resource.partition("/")
        what = f"{resource}.{need.group}" if need.group else resource
        named = f"{what}/{need.names[0]}" if need.names else what
        where = ("-n", need.namespace) if need.namespace else ("--all-namespaces",)
        subresource = (f"--subresource={sub}",) if sub else ()
        for verb in need.verbs:
            asked = what if verb == "create" else named
            assert _may(deployed, account.name, verb, asked, *subresource, *where), (need, verb)


@pytest.mark.parametrize("account", ["koordlet", "koord-manager"])
@pytest.mark.parametrize(
    ("verb", "what"),
    [
        ("list", "secrets"),
        ("create", "pods"),
        ("delete", "pods"),
        ("create", "clusterrolebindings"),
        ("impersonate", "users"),
        ("create", "serviceaccounts/token"),
    ],
)
def test_nothing_else(deployed: ControlPlane, account: str, verb: str, what: str) -> None:
    assert not _may(deployed, account, verb, what, "--all-namespaces")


def test_a_node_cannot_proxy_to_others(deployed: ControlPlane) -> None:
    assert not _may(deployed, "koordlet", "get", "nodes", "--subresource=proxy")
