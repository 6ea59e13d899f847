"""``nodeSelector`` of those who evict: where a pod must fit that goes."""

from __future__ import annotations

from typing import Any

import pytest

from koord_scheduler.balance.controller import make_controller, make_default
from koord_scheduler.balance.selecting import read_selector
from koord_scheduler.model.cluster.arguments import ArgumentError
from koordlet.protocol.selector import matches
from tests.companion.balance.build import node, pod, world


@pytest.mark.parametrize(
    ("text", "labels", "selected"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b, c!=d", {"a": "b", "c": "e"}, True),
        ("a=b,c!=d", {"a": "b", "c": "d"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("!a", {}, True),
    ],
)
def test_a_selector_of_text(text: str, labels: dict[str, str], selected: bool) -> None:
    found = read_selector("P", "nodeSelector", text)
    assert found is not None
    assert matches(found, labels) is selected


def test_empty_text_selects_nothing_in_particular() -> None:
    assert read_selector("P", "nodeSelector", " ") is None


@pytest.mark.parametrize("make", [make_controller, make_default])
def test_a_selector_that_cannot_be_read_is_named(make: Any) -> None:
    with pytest.raises(ArgumentError, match="nodeSelector"):
        make({"nodeSelector": "a in (b)"})


@pytest.mark.parametrize("make", [make_controller, make_default])
@pytest.mark.parametrize(("selector", "fits"), [("", True), ("pool=x", False), ("pool=y", True)])
def test_a_pod_must_fit_a_selected_node(make: Any, selector: str, fits: bool) -> None:
    resident = pod("p", "n1", requests={"cpu": 100})
    where = world([node("n1", labels={"pool": "x"}), node("n2", labels={"pool": "y"})], [resident])
    evictor = make({"nodeFit": True, "nodeSelector": selector})
    assert (evictor.before(where, resident) is None) is fits
