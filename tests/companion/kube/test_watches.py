"""One watch of a kind for all parts of a process."""

from __future__ import annotations

import pytest

from koord_scheduler.kube.scheduling.shapes import NODES as ALL_OF_NODES
from koord_scheduler.kube.shapes import NODES
from koord_scheduler.kube.watches import Watches
from koordlet.kube.client import Client
from koordlet.kube.credentials import Cluster
from koordlet.kube.kinds import Kind
from koordlet.kube.mirror import Keep
from koordlet.kube.objects import Object


class _Other(Object, frozen=True):
    """A shape that is no part of those that are watched."""


def _watches() -> Watches:
    return Watches(Client(Cluster("http://127.0.0.1:1", "the test")), lambda text: None)


def test_who_asks_again_gets_the_same_one() -> None:
    watches = _watches()
    assert watches.of(NODES) is watches.of(NODES)
    assert watches.of(NODES, labels="a=b") is not watches.of(NODES)


def test_two_shapes_of_a_kind_are_a_defect_that_shows_at_once() -> None:
    watches = _watches()
    watches.of(NODES)
    with pytest.raises(TypeError, match="nodes: one watch cannot give both"):
        watches.of(Kind("", "v1", "Node", "nodes", False, _Other))


def test_a_shape_that_has_all_of_another_serves_both() -> None:
    watches = _watches()
    first = watches.of(NODES)
    assert watches.of(ALL_OF_NODES) is first
    assert first.mirror.kind is ALL_OF_NODES
    assert watches.of(NODES) is first and first.mirror.kind is ALL_OF_NODES


def test_as_much_is_kept_as_any_of_them_needs() -> None:
    watches = _watches()
    first = watches.of(NODES, keep=Keep.NOTHING)
    assert first.mirror.keep is Keep.NOTHING
    assert watches.of(NODES, keep=Keep.LEAN).mirror.keep is Keep.LEAN
    assert watches.of(NODES, keep=Keep.NOTHING).mirror.keep is Keep.LEAN
    assert watches.of(NODES).mirror.keep is Keep.WHOLE
