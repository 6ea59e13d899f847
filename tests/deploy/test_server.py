"""A real API server takes what is deployed, and gives the accounts what they need and no more."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

import pytest
import yaml

from tests.deploy.objects import DEPLOY, kustomized
from tests.kube.conftest import defined, plane, real
from tests.realkube.control_plane import ControlPlane
from tests.realkube.kubectl import kubectl
from tools.rbac import ACCOUNTS, NAMESPACE, Account

__all__ = ("defined", "plane", "real")  # fixtures

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def deployed(plane: ControlPlane) -> ControlPlane:
    for each in (DEPLOY, DEPLOY / "descheduler"):  # which is not in the whole
        kubectl(plane, "apply", "--server-side", "--validate=strict", "-k", str(each))
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


def test_the_examples_are_taken(deployed: ControlPlane) -> None:
    for name in ("colocation.yaml", "be-pod.yaml"):
        path = str(DEPLOY / "examples" / name)
        kubectl(deployed, "apply", "--server-side", "--validate=strict", "-f", path)


class Question(NamedTuple):
    """Whether an account may: as in RBAC, with ``name`` of an object, or empty."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


def _allowed(plane: ControlPlane, account: str, questions: Sequence[Question]) -> list[bool]:
    """What the server's own authorizer says, also about resources that it does not serve."""
    user = f"system:serviceaccount:{NAMESPACE}:{account}"
    reviews = []
    for verb, group, resource, namespace, name in questions:
        resource, _, sub = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": resource, "subresource": sub}
        asked |= {"namespace": namespace, "name": name}
        reviews.append(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": user, "resourceAttributes": asked},
            }
        )
    file = plane.work / "reviews.yaml"
    file.write_text(yaml.safe_dump_all(reviews))
    path = '-o=jsonpath={.status.allowed}{"\\n"}'
    answers = kubectl(plane, "create", "-f", str(file), path).split()
    assert len(answers) == len(questions)
    return [each == "true" for each in answers]


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda each: each.name)
def test_each_need_is_met(deployed: ControlPlane, account: Account) -> None:
    questions = [
        Question(
            verb,
            need.group,
            need.resource,
            need.namespace,
            "" if verb == "create" else name,
        )
        for need in account.needs
        for name in need.names or ("",)
        for verb in need.verbs
    ]
    answers = _allowed(deployed, account.name, questions)
    refused = [each for each, may in zip(questions, answers, strict=True) if not may]
    assert refused == []


@pytest.mark.parametrize("account", ["koordlet", "koord-manager"])
def test_nothing_else(deployed: ControlPlane, account: str) -> None:
    questions = (
        Question("list", "", "secrets"),
        Question("get", "", "secrets", "kube-system", "token"),
        Question("create", "", "pods", "default"),
        Question("create", "", "pods/exec", "default"),
        Question("delete", "", "pods", "default"),
        Question("delete", "", "nodes"),
        Question("get", "", "nodes/proxy"),
        Question("create", "", "serviceaccounts/token", "kube-system"),
        Question("impersonate", "", "users"),
        Question("create", "rbac.authorization.k8s.io", "clusterrolebindings"),
        Question("escalate", "rbac.authorization.k8s.io", "clusterroles"),
    )
    assert _allowed(deployed, account, questions) == [False] * len(questions)
