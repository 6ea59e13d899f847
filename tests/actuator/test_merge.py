from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.actuator.merge import RULES, Claim, Key, Rule, bound_protection, merge
from koordlet.decision.resource import UNLIMITED, Resource, Value
from koordlet.protocol.cpuset import parse_cpulist
from tests.actuator.world import setting

RANKS = {"first": 0, "second": 1}


def claim(owner: str, value: Value, resource: Resource, active: bool = True) -> Claim:
    return Claim(owner, setting("be", resource, value), active)


@pytest.mark.parametrize(
    ("resource", "wants", "value", "owner", "outvoted"),
    [
        (Resource.CPUSET_CPUS, {"first": "0-3", "second": "2-5"}, "2-3", "first", ["second"]),
        (Resource.CPUSET_CPUS, {"first": "0-3", "second": "1,2"}, "1-2", "second", ["first"]),
        (Resource.CPUSET_CPUS, {"first": "0,1", "second": "2-3"}, "0-1", "first", ["second"]),
        (
            Resource.CPUSET_CPUS,
            {"second": "2-3", "x": "0-1", "y": "0"},
            "2-3",
            "second",
            ["x", "y"],
        ),
        (Resource.CPU_QUOTA_US, {"first": -1, "second": 5000}, 5000, "second", ["first"]),
        (Resource.CPU_QUOTA_US, {"first": 9000, "second": 5000}, 5000, "second", ["first"]),
        (Resource.CPU_QUOTA_US, {"first": -1, "second": -1}, -1, "first", []),
        (Resource.CPU_SHARES, {"second": 2, "first": 9000, "x": 7}, 9000, "first", ["second", "x"]),
        (Resource.CPU_IDLE, {"x": 1, "second": 0}, 0, "second", ["x"]),
        (Resource.MEMORY_MIN, {"first": 100, "second": 900}, 900, "second", ["first"]),
        (Resource.MEMORY_LOW, {"first": 100, "second": -1}, -1, "second", ["first"]),
        (Resource.MEMORY_LIMIT, {"first": 100, "second": 900}, 100, "first", ["second"]),
        (Resource.CPU_SHARES, {"b": 3, "a": 2}, 2, "a", ["b"]),
    ],
)
def test_rules(
    resource: Resource, wants: dict[str, Value], value: Value, owner: str, outvoted: list[str]
) -> None:
    merged = merge([claim(o, v, resource) for o, v in wants.items()], RANKS)
    assert (merged.value, merged.owner) == (value, owner)
    assert [loss.claim.owner for loss in merged.losses] == outvoted
    for loss in merged.losses:
        assert f"wanted {wants[loss.claim.owner]}, got {value}" in loss.text


@pytest.mark.parametrize(
    ("others", "value", "winner"),
    [
        ({}, 168_000, "burst"),
        ({"scaled": 140_000}, 168_000, "burst"),
        ({"scaled": 140_000, "x": -1}, 168_000, "burst"),
        ({"scaled": 120_000}, 120_000, "scaled"),
        ({"scaled": 150_000}, 150_000, "scaled"),
        ({"pinned": -1}, -1, "pinned"),
    ],
)
def test_a_raise_stands_in_the_place_of_the_limit_it_starts_from(
    others: dict[str, Value], value: Value, winner: str
) -> None:
    raised = msgspec.structs.replace(setting("web", Resource.CPU_QUOTA_US, 168_000), raises=140_000)
    claims = [claim(owner, each, Resource.CPU_QUOTA_US) for owner, each in others.items()]
    merged = merge([Claim("burst", raised), *claims], RANKS)
    assert (merged.value, merged.owner) == (value, winner)


def test_the_reason_names_all_sides_when_they_differ() -> None:
    both = [claim("first", "0-3", Resource.CPUSET_CPUS), claim("x", "2-5", Resource.CPUSET_CPUS)]
    text = merge(both, RANKS).why.text
    assert "first wants 0-3" in text and "x wants 2-5" in text and "all of them allow" in text
    assert merge(both[:1], RANKS).why == both[0].setting.why


def test_owners_that_agree_are_not_outvoted() -> None:
    merged = merge([claim(o, 7, Resource.CPU_SHARES) for o in ("x", "first")], RANKS)
    assert [c.owner for c in merged.agreed] == ["first", "x"] and not merged.losses


def test_passive_claims_count_in_the_vote_but_do_not_make_it_active() -> None:
    kept = claim("first", 5000, Resource.CPU_QUOTA_US, active=False)
    assert not merge([kept], RANKS).active
    merged = merge([kept, claim("second", 9000, Resource.CPU_QUOTA_US)], RANKS)
    assert merged.active and merged.value == 5000


numbers = st.one_of(st.just(UNLIMITED), st.integers(1, 1 << 40))
lists = st.frozensets(st.integers(0, 5), min_size=1).map(lambda s: ",".join(map(str, sorted(s))))


@given(data=st.data(), resource=st.sampled_from(sorted(RULES)))
def test_the_result_does_not_depend_on_the_order_of_owners(
    data: st.DataObject, resource: Resource
) -> None:
    values = lists if RULES[resource] is Rule.INTERSECTION else numbers
    owners = ["first", "second", "x", "y"]
    claims = [claim(owner, data.draw(values), resource) for owner in owners]
    merged = merge(claims, RANKS)
    assert merge(data.draw(st.permutations(claims)), RANKS) == merged
    assert len(merged.agreed) + len(merged.losses) == len(owners)


@given(st.lists(lists, min_size=1, max_size=4))
def test_a_merged_cpuset_is_never_empty_and_never_wider_than_its_winner(wants: list[str]) -> None:
    claims = [claim(f"o{i}", cpus, Resource.CPUSET_CPUS) for i, cpus in enumerate(wants)]
    merged = merge(claims, {})
    cpus = parse_cpulist(str(merged.value))
    winner = next(c for c in claims if c.owner == merged.owner)
    assert cpus and cpus <= parse_cpulist(str(winner.setting.value))


def test_protection_is_scaled_to_what_the_node_has() -> None:
    gib = 1 << 30
    wants = {"a": 3 * gib, "b": gib, "a/child": 3 * gib}
    targets = {
        Key(cgroup, Resource.MEMORY_MIN): merge(
            [Claim("o", setting(cgroup, Resource.MEMORY_MIN, value))], {}
        )
        for cgroup, value in wants.items()
    }
    bound_protection(targets, 2 * gib)
    values = {key.cgroup: merged.value for key, merged in targets.items()}
    assert values == {"a": 3 * gib // 2, "b": gib // 2, "a/child": 3 * gib}
    assert "the sum exceeds the node's memory" in targets[Key("a", Resource.MEMORY_MIN)].why.text
    before = dict(targets)
    bound_protection(targets, 2 * gib)
    assert targets == before


def test_what_moves_processes_or_is_read_only_cannot_be_set() -> None:
    assert not {Resource.TASKS, Resource.PROCS, Resource.CPU_STAT} & RULES.keys()
