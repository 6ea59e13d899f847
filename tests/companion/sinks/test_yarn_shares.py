"""What YARN may use, and how it is told to Kubernetes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord_scheduler.model.amounts import Amounts
from koord_scheduler.model.facts import NodeFacts
from koord_scheduler.sinks.yarn_shares import (
    NOTHING,
    NodeManager,
    Share,
    allocations_text,
    is_due,
    node_manager,
    offered,
    taken,
)
from koordlet.protocol.errors import ProtocolError

CPU, MEMORY = "kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"
ORIGIN = "node.koordinator.sh/originExtendedAllocatable"
ALLOCATIONS = "node.koordinator.sh/thirdPartyAllocations"
GIB = 1 << 30


def _node(origin: dict[str, Any] | None = None, allocations: Any = None, **batch: int) -> NodeFacts:
    annotations = {}
    if origin is not None:
        annotations[ORIGIN] = json.dumps({"resources": origin})
    if allocations is not None:
        annotations[ALLOCATIONS] = json.dumps({"allocations": allocations})
    allocatable = {f"kubernetes.io/batch-{name}": amount for name, amount in batch.items()}
    return NodeFacts("n1", annotations=annotations, extended_allocatable=allocatable)


def _entry(name: str, cpu: str, memory: str, priority: str = "koord-batch") -> dict[str, Any]:
    return {"name": name, "priority": priority, "resources": {CPU: cpu, MEMORY: memory}}


FULL = {CPU: "50000", MEMORY: "120Gi"}


@pytest.mark.parametrize(
    ("node", "requested", "expected"),
    [
        (_node(FULL), Amounts(), Share(50, 122880)),
        # What is not whole is not offered.
        (_node({CPU: "1999", MEMORY: str(2 * (1 << 20) - 1)}), Amounts(), Share(1, 1)),
        # What pods of Kubernetes asked for is theirs; what YARN took is its own.
        (_node(FULL), Amounts(10_000, 20 * GIB), Share(40, 102400)),
        (
            _node(FULL, [_entry("hadoop-yarn", "10000", "10Gi")], cpu=40_000, memory=110 * GIB),
            Amounts(),
            Share(50, 122880),
        ),
        # What another engine took is not.
        (
            _node(FULL, [_entry("hadoop-yarn", "1", "1"), _entry("spark", "5000", "10Gi")]),
            Amounts(),
            Share(45, 112640),
        ),
        (_node(FULL, [_entry("x", "5000", "10Gi", "koord-mid")]), Amounts(), Share(50, 122880)),
        # More is asked for than there is.
        (_node(FULL), Amounts(60_000, 200 * GIB), NOTHING),
        # A manager without the annotation; a node that is not heard from.
        (_node(None, cpu=3000, memory=4 * GIB), Amounts(), Share(3, 4096)),
        (_node(None), Amounts(), NOTHING),
        (_node({CPU: "0", MEMORY: "0"}, cpu=3000, memory=4 * GIB), Amounts(), NOTHING),
        (_node({CPU: "9" * 18}), Amounts(), Share(2**31 - 1, 0)),
        (_node({CPU: "x"}, cpu=3000, memory=4 * GIB), Amounts(), Share(3, 4096)),
    ],
)
def test_offered(node: NodeFacts, requested: Amounts, expected: Share) -> None:
    assert offered(node, requested) == expected


@pytest.mark.parametrize(
    ("present", "wanted", "due"),
    [
        (Share(4, 1000), Share(4, 1000), False),
        (Share(4, 1000), Share(4, 999), True),
        (Share(4, 1000), Share(4, 1020), False),
        (Share(4, 1000), Share(4, 1021), True),
        (Share(4, 1000), Share(5, 1000), True),
        (Share(4, 1000), Share(3, 1000), True),
        (NOTHING, Share(0, 1), True),
    ],
)
def test_due(present: Share, wanted: Share, due: bool) -> None:
    assert is_due(present, wanted) is due


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"id": "nm-0.nm.yarn:8041"}, NodeManager("", "nm-0.nm.yarn", 8041)),
        ({"id": "10.0.0.7:8041", "cluster": "blue"}, NodeManager("blue", "10.0.0.7", 8041)),
        ({"id": "worker-1"}, NodeManager("", "worker-1", 0)),
    ],
)
def test_node_manager(annotations: dict[str, str], expected: NodeManager) -> None:
    assert node_manager(annotations, "id", "cluster") == expected


@pytest.mark.parametrize("text", ["", ":", "a:b", "a:99999", "a:-1", "a b:1", "a/b:1", "x" * 300])
def test_no_node_manager(text: str) -> None:
    with pytest.raises(ValueError, match="HOST:PORT"):
        node_manager({"id": text}, "id", "cluster")


def test_what_yarn_took_as_the_reference_writes_it() -> None:
    text = allocations_text("", Share(10, 10240))
    assert text is not None
    assert json.loads(text) == {
        "allocations": [
            {
                "name": "hadoop-yarn",
                "priority": "koord-batch",
                "resources": {CPU: "10k", MEMORY: "10Gi"},
            }
        ]
    }
    assert taken(text) == Share(10, 10240)


def test_entries_of_others_stay_with_what_we_do_not_know() -> None:
    spark = {**_entry("spark", "5", "1Gi"), "since": {"deep": [1, None]}}
    old = json.dumps({"allocations": [_entry("hadoop-yarn", "1000", "1Gi"), spark]})
    new = allocations_text(old, Share(2, 2048))
    assert new is not None
    entries = {each["name"]: each for each in json.loads(new)["allocations"]}
    assert entries["spark"] == spark and entries["hadoop-yarn"]["resources"][CPU] == "2k"
    gone = allocations_text(new, NOTHING)
    assert gone is not None and json.loads(gone) == {"allocations": [spark]}


def test_nothing_left_removes_the_annotation() -> None:
    assert allocations_text(allocations_text("", Share(1, 1)) or "", NOTHING) is None
    assert allocations_text("", NOTHING) is None


@pytest.mark.parametrize(
    "text", ["{", '{"allocations": 5}', '{"allocations": [{"name": 1}]}', "[" * 99, "x" * 30_000]
)
def test_what_cannot_be_read_is_not_written_over(text: str) -> None:
    with pytest.raises(ProtocolError):
        allocations_text(text, Share(1, 1))
    assert taken(text) == NOTHING
    node = NodeFacts("n1", annotations={ALLOCATIONS: text, ORIGIN: json.dumps({"resources": FULL})})
    assert offered(node, Amounts()) == Share(50, 122880)
