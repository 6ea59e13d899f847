"""Any history of plans for what is no cgroup file, cut anywhere, on a host where processes come
and go: restore gives back what was there at first."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from koordlet_fakefs.machine import Process

from koordlet.actuator.journal.journal import load
from koordlet.decision.plan import Plan, Result
from koordlet.decision.resctrl import PRESENT, control_group
from koordlet.decision.resource import ABSENT, Resource, Value
from koordlet.kernel.proc.core_sched import try_cookie
from tests.actuator.test_history import KilledError, kill
from tests.actuator.world import BOOT, World, fake, plan

R = Resource
CGROUPS = ("a", "a/b", "c")
GROUPS = ("koordlet-1", "koordlet-2")
MONITORS = (
    *("mon_groups/koordlet-m", "other/mon_groups/koordlet-m"),
    *(f"{group}/mon_groups/koordlet-m" for group in GROUPS),
)
RESCTRL, TERWAY = "/sys/fs/resctrl", "/var/lib/terway/qos"
VALUES: dict[Resource, st.SearchStrategy[Value]] = {
    R.OOM_SCORE_ADJ: st.sampled_from([0, 5, 300, 1000, -3]),
    R.CORE_SCHED_GROUP: st.sampled_from(["g", "h", ""]),
    R.RESCTRL_GROUP: st.sampled_from([*GROUPS, ""]),
    R.RESCTRL_SCHEMATA: st.sampled_from(["L3:0=f\n", "MB:0=30\n", "L3:0=3\nMB:0=50", "L3:0=5\n"]),
    R.RESCTRL_MONITOR: st.sampled_from([*MONITORS]),
    R.RESCTRL_MONITOR_GROUP: st.just(PRESENT),
    R.SYSCTL_GROUP_IDENTITY: st.integers(0, 1),
    R.SYSCTL_SCHED_CORE: st.integers(0, 1),
    R.TERWAY_GLOBAL: st.sampled_from(["a 1\n", "a 2\n", ABSENT]),
    R.TERWAY_PODS: st.sampled_from(["{}", ABSENT]),
    R.CPU_SHARES: st.sampled_from([2, 500]),
}
_OF_PROCESSES = (
    *(R.OOM_SCORE_ADJ, R.CORE_SCHED_GROUP, R.RESCTRL_GROUP, R.RESCTRL_MONITOR),
    R.CPU_SHARES,
)
_OF_MACHINE = (
    *(R.SYSCTL_GROUP_IDENTITY, R.SYSCTL_SCHED_CORE),
    *(R.TERWAY_GLOBAL, R.TERWAY_PODS),
)
KEYS = [
    *(
        (cgroup, resource)
        for cgroup in CGROUPS
        for resource in _OF_PROCESSES
        # The hook groups containers, which are never inside each other.
        if (cgroup, resource) != ("a/b", R.CORE_SCHED_GROUP)
    ),
    *((group, R.RESCTRL_SCHEMATA) for group in GROUPS),
    *((group, R.RESCTRL_MONITOR_GROUP) for group in MONITORS),
    *(("", resource) for resource in _OF_MACHINE),
]


@dataclass
class Step:
    """``killed_after``: die before this call that changes something, if it comes."""

    kind: str
    owner: str = ""
    wants: tuple[tuple[str, Resource, Value], ...] = ()
    cgroup: str = ""
    killed_after: int | None = None


@st.composite
def steps(draw: st.DrawFn) -> Step:
    kind = draw(st.sampled_from(["plan", "plan", "plan", "restart", "wait", "fork", "exit"]))
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=8, unique=True))
    wants = tuple((*key, draw(VALUES[key[1]])) for key in keys)
    killed_after = draw(st.one_of(st.none(), st.integers(0, 15)))
    return Step(
        kind,
        draw(st.sampled_from("ab")),
        wants,
        draw(st.sampled_from(CGROUPS)),
        killed_after,
    )


class Stage:
    """``first``: processes from before koordlet, each with a value of its own."""

    def __init__(self, layout: str, directory: str) -> None:
        self.host = fake(layout, anolis=True, core_sched=True, resctrl=True, terway=True)
        for cgroup in CGROUPS:
            self.host.make_cgroup(cgroup)
        self.host.replace(f"{TERWAY}/pod.json", b"{old}")
        self.host.mkdir(f"{RESCTRL}/other")
        self.first = [self.host.spawn(cgroup, threads=2) for cgroup in CGROUPS for _ in range(3)]
        self.first[0].oom_score_adj = 100
        self.host.write(f"{RESCTRL}/other/tasks", b"%d" % self.first[1].pid)
        self.host.mkdir(f"{RESCTRL}/mon_groups/theirs")
        self.host.write(f"{RESCTRL}/mon_groups/theirs/tasks", b"%d" % self.first[2].pid)
        self.world = World(self.host, directory)

    def play(self, step: Step) -> None:
        if step.kind in ("fork", "exit"):
            self._change_processes(step)
            return
        count = iter(range(1000))

        def kill_in_time() -> None:
            if next(count) == step.killed_after:
                kill()

        for op in ("write", "replace", "rename", "unlink", "mkdir", "rmdir", "prctl"):
            self.host.faults.before("*", kill_in_time, op=op, times=None)  # type: ignore[arg-type]
        try:
            if step.kind == "plan":
                self.world.apply(plan(step.owner, *step.wants))
            elif step.kind == "wait":
                self.world.apply(after_s=100.0)
            else:
                self.world.start()
        except KilledError:
            self.host.faults.clear()
            self.world.start()
        self.host.faults.clear()

    def _change_processes(self, step: Step) -> None:
        """A fork inherits all but the membership, which comes with it too."""
        inside = [p for p in self._processes() if self._cgroup(p) == step.cgroup]
        if step.kind == "exit" and len(inside) > 1:
            self.host.exit(inside[-1])
        elif step.kind == "fork" and inside:
            parent, child = inside[0], self.host.spawn(step.cgroup)
            child.oom_score_adj = parent.oom_score_adj
            thread = child.threads[child.pid]
            thread.cookie = parent.threads[parent.pid].cookie
            self.host.resctrl.fork(parent, child)

    def _processes(self) -> list[Process]:
        return [p for p in self.host.machine.processes.values() if p.pid >= self.first[0].pid]

    def _cgroup(self, process: Process) -> str:
        thread = process.threads[process.pid]
        return next(group.path for h, group in thread.cgroups.items() if "cpu" in h.controllers)

    def seen(self) -> dict[str, object]:
        root = self.host.resctrl
        names = {id(node): name for name, node in root.entries.items()}
        monitors = {
            f"{names.get(id(group), '')}/{name}": node
            for group in root.groups()
            for name, node in group.entries["mon_groups"].entries.items()
        }
        alive = [process for process in self.first if process.alive]
        threads = [thread for process in alive for thread in process.threads.values()]
        return {
            "scores": [process.oom_score_adj for process in alive],
            "cookies": [thread.cookie for thread in threads],
            "groups": [names.get(id(root.group_of(thread)), "") for thread in threads],
            "monitors": [
                next((name for name in monitors if root.watched.get(thread) is monitors[name]), "")
                for thread in threads
            ],
            "resctrl": [*root.names(), *monitors],
            "switches": [self.world.value("", each) for each in _OF_MACHINE],
            "terway": self.host.listdir(TERWAY),
            "shares": [self.world.cgroups.read_raw(cgroup, R.CPU_SHARES) for cgroup in CGROUPS],
        }

    def expected(self, before: dict[str, object]) -> dict[str, object]:
        """``before`` without the processes that have ended since."""
        alive = [process.alive for process in self.first]
        twice = [each for each in alive for _ in range(2)]
        kept = dict(before)
        masks = (("scores", alive), *((each, twice) for each in ("cookies", "groups", "monitors")))
        for name, mask in masks:
            values = before[name]
            assert isinstance(values, list)
            kept[name] = [value for value, lives in zip(values, mask, strict=True) if lives]
        return kept


histories = st.lists(steps(), min_size=1, max_size=8)


_OUT_OF_A_MONITOR_GROUP_OF_OTHERS = [
    Step(
        "plan",
        "a",
        (
            ("koordlet-1", R.RESCTRL_SCHEMATA, "L3:0=f\n"),
            ("a", R.RESCTRL_GROUP, "koordlet-1"),
        ),
        "a",
    ),
    Step(
        "plan",
        "a",
        (
            ("a", R.RESCTRL_MONITOR, "mon_groups/koordlet-m"),
            ("mon_groups/koordlet-m", R.RESCTRL_MONITOR_GROUP, PRESENT),
        ),
        "a",
    ),
]


@pytest.mark.parametrize("layout", ["v1", "v2"])
@settings(max_examples=60, deadline=None)
@given(history=histories)
@example(history=_OUT_OF_A_MONITOR_GROUP_OF_OTHERS)
def test_restore_after_any_history_gives_the_originals_back(
    layout: str, history: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        stage = Stage(layout, directory)
        before = stage.seen()
        for step in history:
            stage.play(step)
        report = stage.world.restore()
        assert report.ok, report
        assert not [item for item in report.items if item.status == "foreign"]
        assert stage.seen() == stage.expected(before)
        assert not load(stage.world.journal_path, BOOT).entries
        try_cookie(stage.host)
        assert stage.host.sched_core(0, 0, 0) == 0


@pytest.mark.parametrize("layout", ["v1", "v2"])
@settings(max_examples=25, deadline=None)
@given(history=histories)
def test_when_all_owners_leave_the_originals_are_back(layout: str, history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        stage = Stage(layout, directory)
        before = stage.seen()
        for step in history:
            stage.play(step)
        for _ in range(2):
            stage.world.apply(Plan("a"), Plan("b"), after_s=1000.0)
        assert stage.seen() == stage.expected(before)
        assert not stage.world.actuator.owned()
        assert not stage.world.actuator.conflicts()  # nobody else wrote
        stage.world.close()


@settings(max_examples=25, deadline=None)
@given(history=histories)
def test_what_is_said_to_be_in_force_is_in_the_kernel(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        stage = Stage("v2", directory)
        world = stage.world
        for step in history:
            for outcome in world.apply(plan(step.owner, *step.wants)):
                if outcome.result not in {Result.WRITTEN, Result.IN_FORCE} or outcome.text:
                    continue
                found = world.value(outcome.cgroup, outcome.resource)
                if outcome.resource in (R.RESCTRL_GROUP, R.RESCTRL_MONITOR) and not found:
                    continue  # nobody wants the group itself any more
                if outcome.resource is R.RESCTRL_MONITOR_GROUP and found == ABSENT:
                    control = control_group(outcome.cgroup)
                    assert not stage.host.exists(f"{RESCTRL}/{control}"), outcome
                    continue  # nor the one around it
                assert world.knobs.equal(outcome.resource, outcome.wanted, found), outcome
        world.close()


@settings(max_examples=10, deadline=None)
@given(history=histories)
def test_observe_mode_never_writes(history: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        stage = Stage("v2", directory)
        before = stage.seen()
        stage.world.start(observe=True)
        for step in history:
            outcomes = stage.world.apply(plan(step.owner, *step.wants))
            assert not {Result.WRITTEN, Result.RESTORED} & {each.result for each in outcomes}
        assert stage.seen() == before
