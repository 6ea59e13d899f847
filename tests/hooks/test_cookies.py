"""Cookies on a model of the kernel: processes of cgroups, each with one cookie."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from koordlet.decision.cookies import Clear, Create, Observed, ShareCookie, Step, steps

GROUPS = ("", "a", "b", "-expeller")


class Kernel:
    """``groups``: cgroup -> group. ``cookies``: cgroup -> pid -> cookie."""

    def __init__(self, groups: dict[str, str], cookies: dict[str, dict[int, int]]) -> None:
        self.groups = groups
        self.cookies = cookies
        self.made = 1000

    def observe(self, cgroup: str) -> Observed:
        return Observed(cgroup, dict(self.cookies[cgroup]))

    def wanted(self, cgroup: str) -> tuple[Step, ...]:
        group = self.groups[cgroup]
        others = [each for each in self.groups if each != cgroup]
        siblings = [self.observe(each) for each in others if self.groups[each] == group]
        taken = {
            cookie
            for each in others
            if self.groups[each] != group
            for cookie in self.cookies[each].values()
        }
        return steps(cgroup, group, self.observe(cgroup), siblings, taken - {0})

    def set(self, pids: tuple[int, ...], cookie: int) -> None:
        for held in self.cookies.values():
            held.update((pid, cookie) for pid in pids if pid in held)

    def run(self, step: Step) -> None:
        if isinstance(step, Create):
            self.made += 1
            self.set(step.pids, self.made)
        elif isinstance(step, ShareCookie):
            source = next(h[step.from_pid] for h in self.cookies.values() if step.from_pid in h)
            self.set(step.to_pids, source)
        else:
            self.set(step.pids, 0)

    def turn(self) -> None:
        for cgroup in self.groups:
            for step in self.wanted(cgroup):
                self.run(step)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    count = draw(st.integers(1, 5))
    pids = iter(draw(st.permutations(range(1, 40))))
    groups = {f"c{i}": draw(st.sampled_from(GROUPS)) for i in range(count)}
    sizes = st.integers(0, 4)
    cookies = {
        cgroup: {next(pids): draw(st.integers(0, 4)) for _ in range(draw(sizes))}
        for cgroup in groups
    }
    return Kernel(groups, cookies)


@given(kernels())
def test_two_turns_give_each_group_one_cookie_of_its_own(kernel: Kernel) -> None:
    kernel.turn()
    kernel.turn()
    of_group: dict[str, set[int]] = {}
    for cgroup, group in kernel.groups.items():
        of_group.setdefault(group, set()).update(kernel.cookies[cgroup].values())
    assert of_group.pop("", set()) <= {0}
    assert all(len(cookies) <= 1 and 0 not in cookies for cookies in of_group.values())
    held = [cookie for cookies in of_group.values() for cookie in cookies]
    assert len(held) == len(set(held))
    assert all(kernel.wanted(cgroup) == () for cgroup in kernel.groups)


@given(kernels())
def test_one_turn_is_enough_where_no_cookie_is_in_two_groups(kernel: Kernel) -> None:
    numbers = {group: 10 * index for index, group in enumerate(GROUPS)}
    for cgroup, group in kernel.groups.items():
        held = kernel.cookies[cgroup]
        held.update({pid: cookie + numbers[group] for pid, cookie in held.items() if cookie})
    kernel.turn()
    assert all(kernel.wanted(cgroup) == () for cgroup in kernel.groups)


@given(kernels(), st.data())
def test_a_new_process_takes_the_cookie_that_is_there(kernel: Kernel, data: st.DataObject) -> None:
    kernel.turn()
    kernel.turn()
    cgroup = data.draw(st.sampled_from(sorted(kernel.groups)))
    before = {pid: cookie for held in kernel.cookies.values() for pid, cookie in held.items()}
    kernel.cookies[cgroup][99] = 0
    kernel.turn()
    after = {pid: cookie for held in kernel.cookies.values() for pid, cookie in held.items()}
    assert {pid: after[pid] for pid in before} == before


def test_steps_by_example() -> None:
    alone = Observed("c", {3: 0, 2: 0})
    assert steps("c", "g", alone, ()) == (Create((2, 3)),)
    assert steps("c", "g", Observed("c", {}), ()) == ()
    assert steps("c", "g", Observed("c", {2: 7, 3: 0}), ()) == (ShareCookie(2, (3,)),)
    assert steps("c", "g", alone, (Observed("d", {9: 7, 8: 7}),)) == (ShareCookie(8, (2, 3)),)
    assert steps("c", "g", Observed("c", {2: 7, 3: 7}), ()) == ()
    assert steps("c", "", Observed("c", {2: 7, 3: 0}), ()) == (Clear((2,)),)
    assert steps("c", "", alone, ()) == ()


def test_a_cookie_of_another_group_is_left_behind() -> None:
    moved = Observed("c", {2: 7})
    assert steps("c", "g", moved, (), taken={7}) == (Create((2,)),)
    assert steps("c", "g", moved, (Observed("d", {5: 7, 4: 8}),), taken={7}) == (
        ShareCookie(4, (2,)),
    )


def test_the_cookie_of_most_stays() -> None:
    siblings = (Observed("d", {5: 8}), Observed("e", {6: 8}))
    assert steps("c", "g", Observed("c", {2: 7}), siblings) == (ShareCookie(5, (2,)),)
    assert steps("d", "g", siblings[0], (Observed("c", {2: 7}), siblings[1])) == ()
