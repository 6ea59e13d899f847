"""What profiles make of a pod (docs/reference/protocol.md 6.2, step 1)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from koord_scheduler.admission.pod_mutation import Facts, Mutation, mutate_pod, settle_pod
from koord_scheduler.admission.profiles import PriorityClassValue, Profile
from koord_scheduler.admission.words import AdmissionError, Gates
from koordlet.protocol.objects.colocation_profile import ClusterColocationProfileSpec
from tests.companion.admission.pods import container, pod

QOS = "koordinator.sh/qosClass"
SPEC_KEY = "node.koordinator.sh/extended-resource-spec"
CLASSES = {
    "koord-batch": PriorityClassValue(5000, "Never"),
    "koord-mid": PriorityClassValue(7000),
    "koord-free": PriorityClassValue(3000),
    "koord-prod": PriorityClassValue(9000),
}


def profile(name: str, meta: Mapping[str, str] | None = None, **spec: Any) -> Profile:
    made = msgspec.convert(spec, ClusterColocationProfileSpec)
    return Profile(name, made, {}, meta or {})


def mutated(
    tree: Any,
    *profiles: Profile,
    namespace_labels: Mapping[str, str] | None = None,
    gates: Gates = Gates(),  # noqa: B008
    draw: Callable[[], float] = lambda: 0.0,
) -> Mutation:
    before = copy.deepcopy(tree)
    facts = Facts(profiles, namespace_labels or {}, CLASSES)
    made = mutate_pod(tree, "ns", facts, gates, draw)
    assert tree == before, "the pod that was given is not to be changed"
    return made


def labels(made: Mutation) -> dict[str, str]:
    return made.pod["metadata"].get("labels", {})


MATCHES: list[tuple[dict[str, Any], bool]] = [
    ({}, True),
    ({"selector": {}, "namespaceSelector": {}}, True),
    ({"selector": {"matchLabels": {"app": "a"}}}, True),
    ({"selector": {"matchLabels": {"app": "b"}}}, False),
    ({"namespaceSelector": {"matchLabels": {"team": "x"}}}, True),
    ({"namespaceSelector": {"matchLabels": {"team": "y"}}}, False),
    (
        {
            "namespaceSelector": {"matchLabels": {"team": "x"}},
            "selector": {"matchLabels": {"app": "b"}},
        },
        False,
    ),
    ({"selector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}}, True),
    ({"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
    (
        {"selector": {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}},
        True,
    ),
    # A selector that Kubernetes would refuse matches nothing here, everything in the reference.
    ({"selector": {"matchExpressions": [{"key": "app", "operator": "In"}]}}, False),
    ({"selector": {"matchLabels": {"not a name!": "x"}}}, False),
]


@pytest.mark.parametrize(("spec", "matches"), MATCHES)
def test_which_pods_fall_under_a_profile(spec: dict[str, Any], matches: bool) -> None:
    made = mutated(
        pod(labels={"app": "a"}),
        profile("p", labels={"got": "it"}, **spec),
        namespace_labels={"team": "x"},
    )
    assert ("got" in labels(made)) is matches
    assert (made.matches[0].why == "") is matches


PERCENT: list[tuple[Any, float, bool]] = [
    (None, 0.99, True),
    (100, 0.999, True),
    ("100%", 0.999, True),
    (150, 0.999, True),
    (0, 0.0, False),
    ("0%", 0.0, False),
    (-5, 0.0, False),
    (30, 0.29, True),
    (30, 0.30, False),  # the reference takes 31 of a hundred
    ("30%", 0.29, True),
    ("30%", 0.30, False),
]


@pytest.mark.parametrize(("probability", "drawn", "applies"), PERCENT)
def test_so_many_in_a_hundred(probability: Any, drawn: float, applies: bool) -> None:
    made = mutated(
        pod(), profile("p", probability=probability, labels={"got": "it"}), draw=lambda: drawn
    )
    assert ("got" in labels(made)) is applies
    assert made.left_out == (() if applies else ("p",))


@pytest.mark.parametrize("text", ["half", "30", "33.3%", "%", "1e2%", "٣%"])
def test_a_probability_that_is_none(text: str) -> None:
    with pytest.raises(AdmissionError, match="profile p: probability") as raised:
        mutated(pod(), profile("p", probability=text))
    assert raised.value.code == 500


def test_the_order_of_profiles_is_that_of_their_names() -> None:
    made = mutated(
        pod(labels={"a": "0"}),
        profile("z", labels={"a": "z"}),
        profile("b", labels={"a": "b", "only": "b"}),
    )
    assert labels(made) == {"a": "z", "only": "b"}


def test_the_order_of_fields() -> None:
    made = mutated(
        pod(labels={"old": "v", "suffixed": "x"}, annotations={"a": "1"}),
        profile(
            "p",
            labels={"old": "new", QOS: "LS"},
            labelKeysMapping={"old": "copy", "missing": "empty"},
            annotations={"b": "2"},
            annotationKeysMapping={"b": "c", "none": "d"},
            labelSuffixes={"suffixed": "-y", "copy": "-s", "absent": "-z"},
            qosClass="BE",
            koordinatorPriority=0,
            schedulerName="other",
            patch={"metadata": {"labels": {"patched": "yes"}}},
        ),
    )
    assert labels(made) == {
        "old": "new",
        "copy": "new-s",
        "empty": "",
        "suffixed": "x-y",
        QOS: "BE",
        "koordinator.sh/priority": "0",
        "patched": "yes",
    }
    assert made.pod["metadata"]["annotations"] == {"a": "1", "b": "2", "c": "2", "d": ""}
    assert made.pod["spec"]["schedulerName"] == "other"


def test_a_priority_class_comes_with_value_and_policy() -> None:
    spec = mutated(pod(), profile("p", priorityClassName="koord-batch")).pod["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("koord-batch", 5000)
    assert spec["preemptionPolicy"] == "Never"
    spec = mutated(pod(), profile("p", priorityClassName="koord-mid")).pod["spec"]
    assert spec["preemptionPolicy"] == "PreemptLowerPriority"
    with pytest.raises(AdmissionError, match="there is no PriorityClass gone") as raised:
        mutated(pod(), profile("p", priorityClassName="gone"))
    assert raised.value.code == 500


@pytest.mark.parametrize(
    "patch",
    [{"spec": {"containers": "none"}}, {"metadata": {"labels": {"a": 1}}}, {"$patch": "what"}],
)
def test_a_patch_that_breaks_the_pod_is_the_profiles_fault(patch: dict[str, Any]) -> None:
    with pytest.raises(AdmissionError, match="profile p") as raised:
        mutated(pod(), profile("p", patch=patch))
    assert raised.value.code == 500


AMOUNTS = {"cpu": "1500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}
BATCH = {
    "kubernetes.io/batch-cpu": "1500",
    "kubernetes.io/batch-memory": "1Gi",
    "ephemeral-storage": "1Gi",
}
TRANSLATED: list[tuple[str, str, dict[str, str]]] = [
    ("BE", "koord-batch", BATCH),
    ("BE", "koord-free", AMOUNTS),
    ("LS", "koord-prod", AMOUNTS),
    (
        "BE",
        "koord-mid",
        {k.replace("batch", "mid"): v for k, v in BATCH.items()},
    ),
    ("BE", "", BATCH),  # BE alone means batch
    ("LS", "", AMOUNTS),
]


@pytest.mark.parametrize(("qos", "priority", "amounts"), TRANSLATED)
def test_resources_under_the_names_of_their_tier(
    qos: str, priority: str, amounts: dict[str, str]
) -> None:
    tree = pod(
        container(requests=AMOUNTS, limits=AMOUNTS),
        initContainers=[container("init", requests=AMOUNTS)],
        overhead={"cpu": "100m", "memory": "10Mi"},
    )
    given = {"priorityClassName": priority} if priority else {}
    made = mutated(tree, profile("p", qosClass=qos, **given))
    (main,), (init,) = made.pod["spec"]["containers"], made.pod["spec"]["initContainers"]
    assert main["resources"] == {"requests": amounts, "limits": amounts}
    assert init["resources"]["requests"] == amounts
    overhead = made.pod["spec"]["overhead"]
    assert ("cpu" in overhead) is ("cpu" in amounts)
    batch = "kubernetes.io/batch-cpu" in amounts
    assert (SPEC_KEY in made.pod["metadata"].get("annotations", {})) is batch
    if batch:
        assert overhead == {"kubernetes.io/batch-cpu": "100", "kubernetes.io/batch-memory": "10Mi"}
        amounts = {k: v for k, v in amounts.items() if k != "ephemeral-storage"}
        assert json.loads(made.pod["metadata"]["annotations"][SPEC_KEY]) == {
            "containers": {"main": {"requests": amounts, "limits": amounts}}
        }


QUANTITIES = [
    ("cpu", "0.5", "500"),
    ("cpu", "1", "1k"),
    ("cpu", "100u", "1"),
    ("cpu", 2, "2k"),
    ("cpu", "0", "0"),
    ("memory", "1500M", "1500M"),
    ("memory", "512m", "1"),
    ("memory", "1024Ki", "1Mi"),
    ("memory", "1e9", "1e9"),
]


@pytest.mark.parametrize(("name", "given", "text"), QUANTITIES)
def test_quantities(name: str, given: Any, text: str) -> None:
    made = mutated(pod(container(requests={name: given})), profile("p", qosClass="BE"))
    (main,) = made.pod["spec"]["containers"]
    assert main["resources"]["requests"] == {f"kubernetes.io/batch-{name}": text}


def test_a_limit_alone_is_the_request_too() -> None:
    made = mutated(pod(container(limits={"cpu": "1"})), profile("p", qosClass="BE"))
    (main,) = made.pod["spec"]["containers"]
    assert main["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1k"}


def test_overhead_of_a_runtime_class_stays() -> None:
    tree = pod(
        container(requests={"cpu": "1"}), overhead={"cpu": "100m"}, runtimeClassName="sandboxed"
    )
    spec = mutated(tree, profile("p", qosClass="BE")).pod["spec"]
    assert spec["overhead"] == {"cpu": "100m"}
    assert spec["containers"][0]["resources"]["requests"] == {"kubernetes.io/batch-cpu": "1k"}


def test_a_quantity_that_is_none_is_the_pods_fault() -> None:
    with pytest.raises(AdmissionError, match="container main: requests of cpu") as raised:
        mutated(pod(container(requests={"cpu": "much"})), profile("p", qosClass="BE"))
    assert raised.value.code == 400


def test_what_keeps_resources_as_they_are() -> None:
    tree = pod(container(requests=AMOUNTS), labels={QOS: "BE"})
    skip = {"config.koordinator.sh/skip-update-resources": ""}
    kept = (
        mutated(tree),  # no profile at all
        mutated(tree, profile("p", selector={"matchLabels": {"no": "match"}})),
        mutated(tree, profile("a"), profile("p", skip)),
        mutated(tree, profile("p", skip, probability=0)),  # counts though it is not drawn
        mutated(tree, profile("p"), gates=Gates(colocation_profile_skip_mutating_resources=True)),
    )
    for made in kept:
        assert made.pod["spec"]["containers"][0]["resources"]["requests"] == AMOUNTS
    # A profile that matches and is not drawn translates all the same.
    made = mutated(tree, profile("p", probability=0))
    assert made.pod["spec"]["containers"][0]["resources"]["requests"] == BATCH


EXTENDED: list[tuple[str | None, dict[str, str], str | None]] = [
    (None, {"cpu": "1"}, None),
    ('{"containers":{}}', {"cpu": "1"}, '{"containers":{}}'),  # means the same: untouched
    ('{"containers":{"x":{"requests":{"kubernetes.io/batch-cpu":"1"}}}}', {"cpu": "1"}, "{}"),
    (
        '{"containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "1000"}}}}',
        {"kubernetes.io/batch-cpu": "1k"},
        '{"containers": {"main": {"requests": {"kubernetes.io/batch-cpu": "1000"}}}}',
    ),
    (
        None,
        {"kubernetes.io/batch-cpu": "5", "kubernetes.io/mid-cpu": "7"},
        '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"5"}}}}',
    ),
]


@pytest.mark.parametrize(("before", "amounts", "after"), EXTENDED)
def test_what_the_node_learns(
    before: str | None, amounts: dict[str, str], after: str | None
) -> None:
    given = {} if before is None else {SPEC_KEY: before}
    made = mutated(pod(container(requests=amounts), annotations=given))
    assert made.pod["metadata"]["annotations"].get(SPEC_KEY) == after
    off = mutated(
        pod(container(requests=amounts), annotations=given),
        gates=Gates(disable_extended_resource_spec=True),
    )
    assert off.pod["metadata"]["annotations"].get(SPEC_KEY) == before


def test_an_annotation_that_cannot_be_read_is_an_error() -> None:
    for text in ("", "{", '{"containers":[]}', "x" * 20_000):
        with pytest.raises(AdmissionError, match=SPEC_KEY):
            mutated(pod(annotations={SPEC_KEY: text}))


def test_native_defaults_do_not_come_back() -> None:
    found = profile("p", qosClass="BE")
    tier = {"kubernetes.io/batch-cpu": "500"}
    full = {**tier, "cpu": "100m", "memory": "1Gi"}
    tree = pod(container(requests=full, limits=full), labels={QOS: "BE"})
    facts = Facts((found,))
    made, steps = settle_pod(tree, facts, Gates())
    kept = {**tier, "memory": "1Gi"}  # nothing of its tier stands beside it
    (main,) = made["spec"]["containers"]
    assert main["resources"] == {"requests": kept, "limits": kept}
    assert len(steps) == 2 and settle_pod(made, facts, Gates()) == (made, ())
    skip = Facts((profile("p", {"config.koordinator.sh/skip-update-resources": ""}),))
    gates = Gates(colocation_profile_skip_mutating_resources=True)
    for others in ((Facts(), Gates()), (skip, Gates()), (facts, gates)):
        assert settle_pod(tree, *others) == (tree, ())
    prod = pod(container(requests=full), labels={QOS: "LS"}, priority=9000)
    assert settle_pod(prod, facts, Gates()) == (prod, ())


def test_each_change_is_explained() -> None:
    made = mutated(
        pod(container(requests={"cpu": "1"}), labels={"a": "1"}),
        profile("p", labels={"a": "2", "same": "x"}, qosClass="BE"),
    )
    steps = [(each.by, each.where, each.before, each.after) for each in made.steps]
    assert ("profile p", "label a", "1", "2") in steps
    assert (
        "resource translation",
        "container main: requests of cpu",
        "1",
        "1k of kubernetes.io/batch-cpu",
    ) in steps
    again = mutated(made.pod, profile("p", labels={"a": "2", "same": "x"}, qosClass="BE"))
    assert again.steps == () and again.pod == made.pod
