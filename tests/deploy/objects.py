"""The objects of ``deploy/`` as they are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
Tree = dict[str, Any]


def objects(path: Path) -> list[Tree]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def kustomized(directory: Path = DEPLOY) -> list[Tree]:
    """What the resources of a kustomization hold."""
    tree = yaml.safe_load((directory / "kustomization.yaml").read_text())
    return [each for name in tree["resources"] for each in objects(directory / name)]


def the(kind: str, name: str) -> Tree:
    """The only object of this kind and name."""
    found = [
        each for each in kustomized() if each["kind"] == kind and each["metadata"]["name"] == name
    ]
    assert len(found) == 1, f"{kind} {name}: {len(found)} objects"
    return found[0]


def container(workload: Tree) -> Tree:
    (only,) = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def koordlet_toml() -> str:
    text: str = the("ConfigMap", "koordlet-config")["data"]["koordlet.toml"]
    return text


def daemon_set() -> Tree:
    return the("DaemonSet", "koordlet")


def manager() -> Tree:
    return the("Deployment", "koord-manager")


def loose_definition(group: str, version: str, kind: str, *subresources: str) -> Tree:
    """Of a kind that is not ours: whatever it says is kept."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    parts: Tree = {name: {} for name in subresources}
    served = {"name": version, "served": True, "storage": True, "subresources": parts}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.lower()}s.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": f"{kind.lower()}s"},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }
