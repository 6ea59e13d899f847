"""The two files of docs/kubernetes.md do what the page says."""

from __future__ import annotations

import msgspec

from koord_scheduler.daemon.controller import Options
from koord_scheduler.overcommit.configuration import load
from koordlet.protocol.decode import decode
from koordlet.protocol.objects.colocation_profile import ClusterColocationProfileSpec
from tests.deploy.objects import DEPLOY, objects

EXAMPLES = DEPLOY / "examples"
TREES = {each["kind"]: each for each in objects(EXAMPLES / "colocation.yaml")}
(POD,) = objects(EXAMPLES / "be-pod.yaml")


def test_every_key_of_the_configmap_is_taken() -> None:
    tree = TREES["ConfigMap"]
    assert tree["metadata"]["name"] == Options().config_name
    assert tree["metadata"]["namespace"] == Options().config_namespace
    found = load(tree["data"], None)
    assert [each for each in found.outcomes if each.refused] == []
    assert found != load({}, None)


def test_the_pod_falls_under_the_profile() -> None:
    spec = decode(
        ClusterColocationProfileSpec, TREES["ClusterColocationProfile"]["spec"], strict=True
    )
    labels = TREES["Namespace"]["metadata"]["labels"]
    wanted = msgspec.to_builtins(spec)
    assert POD["metadata"]["namespace"] == TREES["Namespace"]["metadata"]["name"]
    assert wanted["namespaceSelector"]["matchLabels"].items() <= labels.items()
    assert wanted["selector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()
    assert (wanted["qosClass"], wanted["priorityClassName"]) == ("BE", "koord-batch")
