"""Whatever comes in, only ProtocolError comes out."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.protocol import keys
from koordlet.protocol.annotations import parse_node, parse_pod
from koordlet.protocol.configmap import CONFIG_KEYS, load_slo
from koordlet.protocol.decode import decode, decode_json
from koordlet.protocol.document import parse_json
from koordlet.protocol.errors import ProtocolError
from koordlet.protocol.slo import NodeSLOSpec
from koordlet.protocol.slo_defaults import effective
from koordlet.protocol.validate import validate

HOSTILE = [
    "",
    "null",
    "{",
    "[" * 50_000,
    '{"a":' * 3000,
    "1" * 5000,
    "-1e400",
    "NaN",
    '{"a":NaN}',
    '"\\ud800"',
    '{"\\ud800":0}',
    "\x00",
    "\ufeff{}",
    '{"enable":1,"enable":2}',
    "[null,null]",
    '{"blocks":[[]]}',
    '{"containers":{"":{"limits":{"":"1e99999999999"}}}}',
    '{"cpuset":"0-99999999999999999999"}',
    '{"llc":{"schemata":{"range":[1e308,-1e308]}}}',
]

_known = [
    *("enable", "policy", "blocks", "ioCfg", "readIOPS", "cpuset", "containers", "limits", "llc"),
    *("schemata", "range", "resourceQOSStrategy", "beClass", "cpuQOS", "nodeSelector", "gpu"),
    *("clusterStrategy", "nodeStrategies", "nodeConfigs", "matchLabels", "matchExpressions"),
    *("hostApplications", "applications", "spec", "data", "kind", *CONFIG_KEYS),
]
_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["1Gi", "auto", "0-3", "NodeSLO", "ConfigMap", "{}", "{", "x" * 300])
)
trees = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_known) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
texts = st.sampled_from(HOSTILE) | st.text(max_size=40) | trees.map(lambda t: json.dumps(t))


@given(texts)
@settings(max_examples=400)
def test_parse_pod_never_raises(text: str) -> None:
    labels = {k.name: text for k in keys.KEYS.values() if k.kind is keys.Kind.POD_LABEL}
    annotations = {k.name: text for k in keys.KEYS.values() if k.kind is keys.Kind.POD_ANNOTATION}
    pod = parse_pod(labels, annotations)
    for refusal in pod.refused:
        assert refusal.key in keys.KEYS
        assert refusal.message
    parse_node({k.name: text for k in keys.KEYS.values() if k.kind is keys.Kind.NODE_ANNOTATION})


@pytest.mark.parametrize(
    "text", HOSTILE, ids=lambda text: text[:12].encode("unicode-escape").decode()
)
def test_hostile_texts_in_every_key(text: str) -> None:
    for key in keys.KEYS.values():
        with contextlib.suppress(ProtocolError):
            key.read({key.name: text})


@given(st.binary(max_size=60) | texts.map(lambda text: text.encode("utf-8", "surrogatepass")))
@settings(max_examples=300)
def test_bytes_into_the_decoder(data: bytes) -> None:
    for strict in (True, False):
        with contextlib.suppress(ProtocolError):
            spec = decode_json(NodeSLOSpec, data, strict=strict)
            if spec is not None:
                list(validate(effective(spec)))


@given(trees)
@settings(max_examples=400)
def test_trees_into_slo_documents(tree: Any) -> None:
    with contextlib.suppress(ProtocolError):
        effective(load_slo(tree, {"pool": "xl"}))
    for key in CONFIG_KEYS:
        with contextlib.suppress(ProtocolError):
            load_slo({"data": {key: json.dumps(tree)}}, {"pool": "xl"})


def test_flipped_bytes_of_good_documents() -> None:
    """Mutations of real documents reach deeper than random ones."""
    rng = random.Random(20240607)
    spec = effective(NodeSLOSpec())
    good = json.dumps(
        {
            "resourceQOSStrategy": {
                "beClass": {"blkioQOS": {"blocks": [{"name": "x", "ioCfg": {"readIOPS": 5}}]}}
            },
            "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000},
            "systemStrategy": {"schedFeatures": {"a": True}, "totalNetworkBandwidth": "1G"},
            "hostApplications": [{"name": "n", "qos": "LS", "cgroupPath": {"base": "Kubepods"}}],
        }
    ).encode()
    accepted = 0
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(rng.randint(0, 3)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 2))
        with contextlib.suppress(ProtocolError):
            tree = parse_json(bytes(data))
            accepted += effective(decode(NodeSLOSpec, tree, strict=False)) != spec
    assert accepted > 100
