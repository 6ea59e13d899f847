"""Reservations as the watch shows them."""

from __future__ import annotations

import msgspec

from koord_scheduler.kube.reservation_shapes import ReservationObject
from koord_scheduler.model.pod_reading import Classes
from koord_scheduler.place.reservation.reading import read_reservation


def _deeper(calls: int, item: ReservationObject) -> object:
    return _deeper(calls - 1, item) if calls else read_reservation(item.tree(), Classes())


def test_one_that_is_nested_as_deep_as_can_be_is_none() -> None:
    for depth in range(700, 1000, 10):
        text = b'{"metadata":{"name":"r"},"spec":{"template":' + b"[" * depth + b"]" * depth + b"}}"
        try:
            item = msgspec.json.decode(text, type=ReservationObject)
        except RecursionError:
            return
        assert _deeper(200, item) is None


def test_parts_that_are_no_objects_are_empty() -> None:
    item = msgspec.json.decode(b'{"spec":[1],"status":null}', type=ReservationObject)
    tree = item.tree()
    assert (tree["spec"], tree["status"]) == ({}, {})
