"""From plan to tree, and from tree to tree, on a model of what HTB refuses."""

from __future__ import annotations

import errno

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordlet.actuator.traffic.tree import GROUP, LINK, Changes, addresses, compare, tree_of
from koordlet.decision.traffic import BandwidthShare, Member, Rate, TrafficClass, TrafficPlan
from koordlet.kernel.net.filters import DESTINATION, SOURCE, Match
from koordlet.kernel.net.tc import HtbClass, Tree

MBIT = 1_000_000
SYSTEM, LS, BE = 2, 3, 4


def of_class(
    minor: int, least: int, most: int, *, part_of: int = 0, down: Rate | None = None
) -> TrafficClass:
    rate = Rate(least * MBIT, most * MBIT)
    share = BandwidthShare(rate, down if down is not None else rate)
    return TrafficClass(f"c{minor}", minor, minor, share, part_of)


def plan(*pods: TrafficClass, members: tuple[Member, ...] = ()) -> TrafficPlan:
    classes = (of_class(SYSTEM, 50, 100), of_class(LS, 40, 90), of_class(BE, 10, 50))
    return TrafficPlan(100 * MBIT, SYSTEM, (*classes, *pods), members)


class Kernel:
    """HTB and u32: a class needs its parent, keeps its place, and is busy while used."""

    def __init__(self, tree: Tree) -> None:
        self.classes = dict(tree.classes)
        self.matches = list(tree.matches)

    def tree(self) -> Tree:
        return Tree(dict(self.classes), tuple(self.matches))

    def make(self, changes: Changes) -> None:
        for match in changes.drop_matches:
            self.matches.remove(match)
        for minor in changes.drop_classes:
            used = minor in {each.parent for each in self.classes.values()}
            if used or minor in {match.minor for match in self.matches}:
                raise OSError(errno.EBUSY, f"class {minor} in use")
            del self.classes[minor]
        for each in changes.set_classes:
            parent = self.classes.get(each.minor, each).parent
            if parent and parent not in self.classes:
                raise OSError(errno.ENOENT, f"no class {parent}")
            self.classes[each.minor] = msgspec.structs.replace(each, parent=parent)
        for match in changes.add_matches:
            assert match.minor in self.classes
            self.matches.append(match)


def test_the_tree_of_the_node() -> None:
    assert tree_of(plan(), SOURCE).classes == {
        LINK: HtbClass(LINK, 0, 12_500_000, 12_500_000),
        SYSTEM + GROUP: HtbClass(SYSTEM + GROUP, LINK, 6_250_000, 12_500_000),
        SYSTEM: HtbClass(SYSTEM, SYSTEM + GROUP, 6_250_000, 12_500_000, SYSTEM),
        LS + GROUP: HtbClass(LS + GROUP, LINK, 5_000_000, 11_250_000),
        LS: HtbClass(LS, LS + GROUP, 5_000_000, 11_250_000, LS),
        BE + GROUP: HtbClass(BE + GROUP, LINK, 1_250_000, 6_250_000),
        BE: HtbClass(BE, BE + GROUP, 1_250_000, 6_250_000, BE),
    }


def test_a_limit_is_no_promise() -> None:
    """Pods with limits divide among them and the others what their class is promised."""
    found = tree_of(plan(of_class(16, 0, 20, part_of=BE), of_class(17, 0, 1, part_of=BE)), SOURCE)
    third = 1_250_000 // 3
    assert found.classes[16] == HtbClass(16, BE + GROUP, third, 2_500_000, 16)
    assert found.classes[17] == HtbClass(17, BE + GROUP, 125_000, 125_000, 17)
    assert found.classes[BE].rate == third


def test_each_direction_has_its_own() -> None:
    pod = of_class(16, 0, 20, part_of=LS, down=Rate(0, 8 * MBIT))
    both = plan(pod, members=(Member(16, "x", ("10.0.0.7",)),))
    assert tree_of(both, SOURCE).classes[16].ceil == 2_500_000
    assert tree_of(both, DESTINATION).classes[16].ceil == 1_000_000
    assert tree_of(both, SOURCE).matches == (Match("10.0.0.7", 16),)


def test_who_is_promised_nothing_still_moves() -> None:
    idle = TrafficPlan(100 * MBIT, SYSTEM, (of_class(SYSTEM, 0, 100), of_class(BE, 0, 0)), ())
    found = tree_of(idle, SOURCE).classes
    assert found[SYSTEM + GROUP].rate == 12_500
    assert found[BE + GROUP] == HtbClass(BE + GROUP, LINK, 12_500, 12_500_000)


def test_addresses_are_written_as_the_kernel_does() -> None:
    asked = plan(members=(Member(LS, "a", ("fd00:0:0::7", "10.0.0.7", "no address")),))
    assert addresses(asked) == {"fd00::7": LS, "10.0.0.7": LS}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (plan(), plan(), Changes()),
        (
            plan(of_class(16, 0, 20, part_of=LS)),
            plan(of_class(16, 0, 30, part_of=LS)),
            Changes(set_classes=(HtbClass(16, LS + GROUP, 2_500_000, 3_750_000, 16),)),
        ),
        (
            plan(members=(Member(LS, "a", ("10.0.0.7",)),)),
            plan(members=(Member(BE, "a", ("10.0.0.7",)),)),
            Changes((Match("10.0.0.7", LS),), add_matches=(Match("10.0.0.7", BE),)),
        ),
    ],
    ids=["nothing", "a limit in place", "a pod changes its class"],
)
def test_only_what_differs_changes(
    before: TrafficPlan, after: TrafficPlan, expected: Changes
) -> None:
    assert compare(tree_of(after, SOURCE), tree_of(before, SOURCE)) == expected


IPS = [f"10.0.0.{number}" for number in range(6)] + ["fd00::1", "fd00::2"]


@st.composite
def plans(draw: st.DrawFn) -> TrafficPlan:
    minors = draw(st.lists(st.integers(16, 22), unique=True, max_size=5))
    pods = [
        of_class(minor, 0, draw(st.integers(0, 99)), part_of=draw(st.sampled_from([2, 3, 4])))
        for minor in minors
    ]
    choices = st.sampled_from([SYSTEM, LS, BE, *minors])
    ips = draw(st.dictionaries(st.sampled_from(IPS), choices))
    members = tuple(Member(minor, "pod", (ip,)) for ip, minor in ips.items())
    return plan(*pods, members=members)


@given(plans(), plans())
def test_every_way_is_one_the_kernel_takes(before: TrafficPlan, after: TrafficPlan) -> None:
    found, wanted = tree_of(before, SOURCE), tree_of(after, SOURCE)
    kernel = Kernel(found)
    kernel.make(compare(wanted, found))
    assert kernel.classes == wanted.classes
    assert set(kernel.matches) == set(wanted.matches)
    assert not compare(wanted, kernel.tree()).count


@given(plans(), st.sets(st.integers(0, 30)), st.data())
def test_half_made_is_made_whole(
    wanted_plan: TrafficPlan, lost: set[int], data: st.DataObject
) -> None:
    """Killed at any instant: a tree without some leaves, a match twice."""
    wanted = tree_of(wanted_plan, SOURCE)
    parents = {each.parent for each in wanted.classes.values()}
    classes = {m: each for m, each in wanted.classes.items() if m not in lost or m in parents}
    matches = tuple(match for match in wanted.matches if match.minor in classes)
    if matches:
        matches += (data.draw(st.sampled_from(matches)),)
    kernel = Kernel(Tree(classes, matches))
    kernel.make(compare(wanted, kernel.tree()))
    assert kernel.classes == wanted.classes
    assert sorted(kernel.matches, key=str) == sorted(wanted.matches, key=str)


@given(plans())
def test_promises_of_leaves_are_within_that_of_their_class(asked: TrafficPlan) -> None:
    classes = tree_of(asked, SOURCE).classes
    for minor in (SYSTEM, LS, BE):
        above = classes[minor + GROUP]
        leaves = [each for each in classes.values() if each.parent == above.minor]
        assert sum(each.rate for each in leaves) <= above.rate
        assert all(0 < each.rate <= each.ceil <= above.ceil for each in leaves)
