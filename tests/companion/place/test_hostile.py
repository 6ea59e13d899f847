"""What users write into annotations never raises: it counts as absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koord_scheduler.model.annotations import RESERVATION_ALLOCATED
from koord_scheduler.model.cluster.nodes import Node
from koord_scheduler.place import hint, load, load_arguments, load_estimate, load_reading, strain
from koord_scheduler.place.device import reading as devices
from koord_scheduler.place.reservation import matching, plugin, reading, reservation
from koord_scheduler.share.quota.words import read_quota
from tests.companion.place.build import cls, cluster, node, pod, reasons

DEEP = '{"other":' + "[" * 5000
LONG = '{"nodeNames":["' + "n" * 20_000 + '"]}'


def _node(key: str, text: str) -> Node:
    return node(annotations={key: text})


READERS: dict[str, Callable[[str], object]] = {
    "hint": lambda text: hint.hint_of(cls(annotations={hint.KEYS[0]: text})),
    "strain": lambda text: strain.read_strain({strain.ANNOTATION: text}),
    "thresholds": lambda text: (
        load_arguments.own_thresholds(_node(load_arguments.THRESHOLDS, text)).usage_thresholds
    ),
    "raw allocatable": lambda text: reasons(
        load.make({}), cluster(_node(load.RAW_ALLOCATABLE, text)), cls()
    )[0],
    "factors": lambda text: (
        load_estimate.Estimates(("cpu",), {}, custom=True)
        .of(cls(annotations={load_estimate.FACTORS: text}))
        .any()
    ),
    "report": lambda text: load_reading.read_load(text.encode(), b"").usage,
    "allocated": lambda text: plugin.make({}).recognise(
        pod("p", annotations={RESERVATION_ALLOCATED: text})
    ),
    "restricted": lambda text: reading._names(text),
    "partitions": lambda text: devices.read_device({}, {devices.GPU_PARTITIONS: text}, {}).shape[1],
    "quota": lambda text: (
        (
            read_quota("q", "n", {}, {"quota.scheduling.koordinator.sh/namespaces": text}, {}, {})
        ).namespaces
    ),
}


@pytest.mark.parametrize("text", [DEEP, LONG, "{", '"\ud800"'], ids=["deep", "long", "cut", "odd"])
@pytest.mark.parametrize("reader", READERS)
def test_what_cannot_be_read_counts_as_absent(reader: str, text: str) -> None:
    if reader == "report" and "\ud800" in text:
        pytest.skip("bytes of the API server are UTF-8")
    assert not READERS[reader](text)


@pytest.mark.parametrize("key", [reservation.AFFINITY, reservation.EXACT_MATCH])
def test_a_wish_that_is_too_deep_matches_no_reservation(key: str) -> None:
    assert matching.wishes_of(cls(annotations={key: DEEP})).unreadable
