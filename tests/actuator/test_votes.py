"""Counting again what changed comes to the same as counting everything."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from koordlet.actuator.claims import absorb
from koordlet.actuator.merge import Claim, Key, bound_protection, merge, within_quota
from koordlet.actuator.votes import Fault, Votes
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resource import Resource
from tests.actuator.world import plan, setting

OWNERS = ("a", "b", "c")
RANKS = {"b": 0, "a": 1}
MEMORY_BYTES = 1 << 20
VALUES = {
    Resource.CPU_QUOTA_US: (1000, 2000, -1),
    Resource.CPU_BURST_US: (500, 1500, 3000),
    Resource.CPUSET_CPUS: ("0-1", "1-2", "3"),
    Resource.MEMORY_MIN: (1 << 19, 3 << 18, -1),
}
_GROUP = Resource.RESCTRL_SCHEMATA
_Naive = dict[str, dict[Key, Claim]]

wants = st.sampled_from(list(VALUES)).flatmap(
    lambda resource: st.tuples(
        st.sampled_from(("x", "x/y", "z")), st.just(resource), st.sampled_from(VALUES[resource])
    )
)
plans = st.builds(
    lambda owner, listed, keep, below, keep_all, amends: msgspec.structs.replace(
        plan(owner, *listed, keep=keep),
        keep_below=tuple(below),
        keep_all=keep_all,
        amends=amends,
    ),
    st.sampled_from(OWNERS),
    st.lists(wants, max_size=4),
    st.lists(st.tuples(st.just("x"), st.sampled_from(list(VALUES))), max_size=1),
    st.lists(st.sampled_from(("x", "x/y", "z")), max_size=1),
    st.booleans(),
    st.booleans(),
)
steps = st.one_of(
    plans,
    st.sampled_from(OWNERS),  # is dropped
    st.sampled_from([*VALUES, None]),  # the only resource of which nothing can be written now
)


class Machine:
    """Where a resource may be missing for a while."""

    def __init__(self) -> None:
        self.missing: Resource | None = None

    def fault(self, claim: Claim) -> Fault | None:
        if claim.setting.resource is self.missing:
            return Result.UNSUPPORTED, "not here"
        return None


def targets(claims: _Naive, faulty: Iterable[tuple[str, Key]]) -> dict[Key, object]:
    left_out = set(faulty)
    ballots: dict[Key, list[Claim]] = {}
    for owner, wanted in claims.items():
        for key, claim in wanted.items():
            if (owner, key) not in left_out:
                ballots.setdefault(key, []).append(claim)
    found = {key: merge(ballot, RANKS) for key, ballot in ballots.items()}
    bound_protection(found, MEMORY_BYTES)
    for key in found:
        if key.resource is Resource.CPU_BURST_US:
            quota = found.get(Key(key.cgroup, Resource.CPU_QUOTA_US))
            found[key] = within_quota(found[key], quota)
    return dict(found)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(steps, st.booleans()), max_size=12))
def test_targets_and_faults(sequence: list[tuple[Plan | str | Resource | None, bool]]) -> None:
    machine = Machine()
    votes = Votes({}, RANKS, machine.fault, MEMORY_BYTES)
    naive: _Naive = {}
    before = targets({}, ())
    for step, again in sequence:
        if isinstance(step, Plan):
            for _ in range(2 if again else 1):
                votes.take(step)
                naive[step.owner] = absorb(naive.get(step.owner, {}), step)
        elif isinstance(step, Resource) or step is None:
            machine.missing = step
        else:
            votes.drop(step)
            naive.pop(step, None)
        changed = votes.count()
        faulty = [(owner, key) for key, found in votes.faults.items() for owner in found]
        # What was sound once stays so while its value does; what is found now is wrong now.
        for owner, key in faulty:
            assert naive[owner][key].active
            assert key.resource is machine.missing
            assert votes.claim(owner, key) == naive[owner][key]
        expected = targets(naive, faulty)
        assert votes.targets == expected
        differ = {key for key in before.keys() | expected if before.get(key) != expected.get(key)}
        assert differ <= set(changed)
        before = expected


def test_what_is_below_a_pod_that_nobody_knows_is_kept() -> None:
    first = plan(
        "a",
        *(("kube/pod1", Resource.CPU_QUOTA_US, 1000), ("kube/pod1/c", Resource.CPU_QUOTA_US, 1000)),
        *(("kube/pod10", Resource.CPU_QUOTA_US, 1000), ("pod1-group", _GROUP, "L3:0=f")),
    )
    before = absorb({}, first)
    second = msgspec.structs.replace(
        plan("a", ("kube/pod1", Resource.CPU_QUOTA_US, 2000)), keep_below=("kube/pod1",)
    )
    after = absorb(before, second)
    assert {key.cgroup: claim.active for key, claim in after.items()} == {
        "kube/pod1": True,
        "kube/pod1/c": False,
        "pod1-group": False,
    }
    assert after[Key("kube/pod1", Resource.CPU_QUOTA_US)].setting.value == 2000
    assert absorb(after, plan("a")) == {}


def test_a_new_value_is_looked_at_and_an_old_one_is_not() -> None:
    asked: list[Claim] = []

    def fault(claim: Claim) -> Fault | None:
        asked.append(claim)
        return (Result.REFUSED, "no") if claim.setting.value == 7 else None

    votes = Votes({}, RANKS, fault, None)
    key = Key("x", Resource.CPU_QUOTA_US)
    for value, times in ((1000, 1), (1000, 0), (2000, 1), (7, 1), (7, 1), (2000, 1)):
        asked.clear()
        votes.take(plan("a", (*key, value)))
        votes.count()
        assert len(asked) == times
        assert (key in votes.faults) == (value == 7)


def test_the_same_plan_says_nothing_new_unless_something_was_added() -> None:
    votes = Votes({}, RANKS, lambda claim: None, None)
    whole = plan("a", ("x", Resource.CPU_QUOTA_US, 1000))
    votes.take(whole)
    assert votes.count() == (Key("x", Resource.CPU_QUOTA_US),)
    votes.take(whole)
    assert votes.count() == ()
    more = Plan("a", (setting("z", Resource.CPU_QUOTA_US, 5000),), amends=True)
    votes.take(more)
    assert votes.count() == (Key("z", Resource.CPU_QUOTA_US),)
    assert len(votes.targets) == 2
    votes.take(whole)
    assert votes.count() == (Key("z", Resource.CPU_QUOTA_US),)
    assert len(votes.targets) == 1


def test_only_faults_asked_for_are_looked_at_again() -> None:
    machine = Machine()
    machine.missing = Resource.CPU_QUOTA_US
    votes = Votes({}, RANKS, machine.fault, None)
    one, other = Key("x", Resource.CPU_QUOTA_US), Key("z", Resource.CPU_QUOTA_US)
    votes.take(plan("a", (*one, 1000), (*other, 1000)))
    votes.count()
    machine.missing = None
    assert votes.count({one}) == (one,)
    assert list(votes.targets) == [one]
    assert votes.count() == (other,)
    assert not votes.faults
