"""The invariants see what is wrong: each is broken on purpose once."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.companion.histories.checks import DEVICES, Checks
from tests.companion.histories.hands import SPACE, Hands
from tests.companion.running import definitions
from tests.fakekube import serving

WORD = "PreemptionByScheduler"


def _store(hands: Hands, plural: str, name: str, patch: dict[str, Any]) -> None:
    """As a role writes, not the hands."""
    store, resource = hands.fake.store, hands.fake.resource(plural)
    store.merge(resource, (SPACE if resource.namespaced else "", name), patch)


def _bind(hands: Hands, name: str, node: str, **notes: str) -> None:
    patch = {"metadata": {"annotations": notes}, "spec": {"nodeName": node}}
    _store(hands, "pods", name, patch)


def _too_much(hands: Hands) -> None:
    for name in ("a", "b"):
        hands.pod(name, "3")
        _bind(hands, name, "n")


def _a_card_twice(hands: Hands) -> None:
    given = {"gpu": [{"minor": 0, "resources": {"koordinator.sh/gpu-core": "60"}}]}
    for name in ("a", "b"):
        hands.pod(name, "1")
        _bind(hands, name, "n", **{DEVICES: json.dumps(given)})


def _moved(hands: Hands) -> None:
    hands.pod("a", "1")
    _bind(hands, "a", "n")
    _bind(hands, "a", "m")


def _evicted_for_good(hands: Hands) -> None:
    hands.pod("a", "1", nodeName="n")
    hands.fake.store.delete(hands.fake.resource("pods"), (SPACE, "a"), {})


def _preempted_for_nobody(hands: Hands) -> None:
    hands.pod("a", "1", nodeName="n")
    said = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": WORD}]}
    hands.merge("pods", "a", {"status": said}, "status")
    hands.fake.store.delete(hands.fake.resource("pods"), (SPACE, "a"), {})


def _two_at_once(hands: Hands) -> None:
    for name in ("a", "b"):
        hands.pod(name, "1", nodeName="n")
        spec = {"podRef": {"namespace": SPACE, "name": name}}
        hands.create("podmigrationjobs", {"metadata": {"name": f"j{name}"}, "spec": spec})
        hands.merge("podmigrationjobs", f"j{name}", {"status": {"phase": "Running"}}, "status")


def _twice(hands: Hands) -> None:
    hands.pod("a", "1", nodeName="n")
    for name in ("j", "k"):
        spec = {"podRef": {"namespace": SPACE, "name": "a"}}
        hands.create("podmigrationjobs", {"metadata": {"name": name}, "spec": spec})
        hands.merge("podmigrationjobs", name, {"status": {"phase": "Running"}}, "status")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (_too_much, "6000m of 4000m CPU"),
        (_a_card_twice, "card 0 was given 120 %"),
        (_moved, "moved from n to m"),
        (_evicted_for_good, "nobody makes it anew"),
        (_preempted_for_nobody, "was preempted for nobody"),
        (_two_at_once, "2 pods migrate from node n"),
        (_twice, "two jobs move pod a"),
    ],
)
def test_what_is_wrong_is_seen(wrong: Callable[[Hands], None], said: str) -> None:
    async def story() -> list[str]:
        async with serving(*definitions()) as fake:
            hands = Hands(fake, random.Random(1), time.time)
            checks = Checks(hands)
            fake.store.on_write = checks.look
            hands.node("n", 4, 1)
            wrong(hands)
            return list(checks.broken)

    assert any(said in each for each in asyncio.run(story()))
