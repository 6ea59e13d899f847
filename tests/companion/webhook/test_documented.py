"""The page about admission has the webhooks that there are."""

from __future__ import annotations

import re
from pathlib import Path

from bench.central import admission
from koord_scheduler.admission.words import Gates, gate_name
from koord_scheduler.webhook.handlers import HANDLERS
from koord_scheduler.webhook.registration import WEBHOOKS, Place, configuration, same

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "admission.md"
ROW = re.compile(r"^\| `(/\S+)` \| (\S+) \| ([A-Z, ]+) \| (\w+) \| (\w+) \((on|off)\) \|$", re.M)


def test_the_table_of_webhooks() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert rows == [
        (
            each.path,
            each.resources[0],
            ", ".join(each.operations),
            "Ignore" if each.ignores else "Fail",
            gate_name(each.gate),
            "on" if getattr(Gates(), each.gate) else "off",
        )
        for each in WEBHOOKS
    ]


def test_every_path_has_a_handler() -> None:
    assert {each.path for each in WEBHOOKS} == HANDLERS.keys()


def test_the_policy_of_all_webhooks() -> None:
    for mutating in (True, False):
        usual = configuration(Gates(), Place(), b"x", mutating=mutating)
        assert {each["failurePolicy"] for each in usual["webhooks"]} == {"Fail"}
        ignoring = configuration(Gates(), Place(ignores_all=True), b"x", mutating=mutating)
        assert {each["failurePolicy"] for each in ignoring["webhooks"]} == {"Ignore"}
        assert not same(usual["webhooks"], ignoring["webhooks"], trust=True)
        others = configuration(Gates(), Place(), b"y", mutating=mutating)["webhooks"]
        assert not same(usual["webhooks"], others, trust=True)
        assert same(usual["webhooks"], others, trust=False)
        for each in usual["webhooks"]:
            service = each["clientConfig"]["service"]
            assert (service["namespace"], service["port"]) == ("koordinator-system", 443)


def test_the_bench_in_small() -> None:
    figures = admission.run(True, lambda _: None)
    assert [each.name.split(",")[0] for each in figures] == [
        "/mutate-pod",
        "/settle-pod",
        "/validate-pod",
    ]
    assert all(each.value > 0 for each in figures)
