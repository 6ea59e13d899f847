"""Roles are made of what the parts declare."""

from __future__ import annotations

from pathlib import Path

import yaml

from koordlet.kube.access import Need
from tools.rbac import ACCOUNTS, Account, Rule, rules, text


def test_needs_of_the_same_objects_become_one_rule() -> None:
    needs = (
        Need("", "nodes", ("list",), "so that nodes are known"),
        Need("", "nodes", ("watch", "list"), "so that they stay known"),
        Need("", "nodes/status", ("patch",), "so that resources are offered"),
    )
    assert rules(needs) == {
        "": (
            Rule(
                "",
                "nodes",
                (),
                ("list", "watch"),
                ("so that nodes are known", "so that they stay known"),
            ),
            Rule("", "nodes/status", (), ("patch",), ("so that resources are offered",)),
        )
    }


def test_a_need_in_a_namespace_is_a_role_there() -> None:
    made = text(Account("a", "", (Need("g", "r", ("get",), "so that", namespace="there"),)))
    assert "kind: Role\nmetadata:\n  name: a\n  namespace: there\n" in made
    assert "ClusterRole" not in made


def test_what_is_permitted_everywhere_is_not_permitted_again() -> None:
    everywhere = Need("", "events", ("create",), "so that one")
    there = Need("", "events", ("create", "patch"), "so that two", namespace="there")
    assert rules((everywhere, there)) == {
        "": (Rule("", "events", (), ("create",), ("so that one",)),),
        "there": (Rule("", "events", (), ("patch",), ("so that two",)),),
    }


def test_parts_that_are_off_give_no_rights() -> None:
    (manager,) = (each for each in ACCOUNTS if each.name == "koord-manager")
    asked = {(each.resource, verb) for each in manager.needs for verb in each.verbs}
    assert ("nodes/status", "patch") in asked
    assert ("pods", "update") not in asked  # the part colocationprofile


def test_create_is_never_limited_to_names() -> None:
    """The name is in the body, which RBAC does not read: such a rule permits nothing."""
    found = rules((Need("", "secrets", ("get", "create"), "so that", "ns", names=("one",)),))
    assert found == {
        "ns": (
            Rule("", "secrets", (), ("create",), ("so that",)),
            Rule("", "secrets", ("one",), ("get",), ("so that",)),
        )
    }


def test_nobody_asks_for_everything() -> None:
    for account in ACCOUNTS:
        for need in account.needs:
            if (need.resource, need.verbs) == ("*/scale", ("get",)):
                # How many pods a workload of these groups should have, and nothing else.
                assert need.group in ("apps", "apps.kruise.io")
                continue
            words = (need.group, need.resource, *need.verbs)
            assert "*" not in words, (account.name, need)
            assert need.why


def test_the_rules_are_yaml() -> None:
    for path in sorted((Path(__file__).parents[2] / "deploy").glob("*/rbac.yaml")):
        assert list(yaml.safe_load_all(path.read_text())), path
